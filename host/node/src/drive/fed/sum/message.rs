//! What a driver and its clients say to each other over a secure sum.

use super::identity::Credential;
use crate::drive::fed::wire::{Course, Frames};
use karman_fed::Limits;
use karman_fed::secure::{Settings, ToClient, ToServer};
use karman_fed::strategy::WeightPolicy;
use karman_tensor::arithmetic::Grid;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a client is asked.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::drive::fed) enum Step {
    /// Who it is.
    Who,
    /// To join a sum.
    Join {
        settings: Settings,
        invited: Vec<Credential>,
    },
    /// To go on.
    Said(ToClient),
    /// To train, and to mask what that has changed: its neighbours' shares are here.
    Train { said: ToClient, lesson: Box<Lesson> },
}

/// A training whose update goes into a sum.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::drive::fed) struct Lesson {
    pub(in crate::drive::fed) version: u64,
    pub(in crate::drive::fed) course: Course,
    pub(in crate::drive::fed) model: Arc<Frames>,
    /// What the sum is made on.
    pub(in crate::drive::fed) grid: Grid,
    pub(in crate::drive::fed) weights: WeightPolicy,
    pub(in crate::drive::fed) limits: Limits,
}

/// What it answers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::drive::fed) enum Answered {
    Who(Credential),
    Says(ToServer),
    /// Its masked update, and what it says of it in the open.
    Trained {
        says: ToServer,
        samples: u64,
        steps: u32,
        loss: f32,
    },
}
