//! What a driver and its clients say to each other over a secure sum.

use super::identity::Credential;
use crate::drive::cbor;
use crate::drive::fed::wire::{self, Course, Frames, Order, RunId};
use bytes::Bytes;
use karman_fed::Limits;
use karman_fed::secure::{Settings, ToClient, ToServer};
use karman_fed::strategy::WeightPolicy;
use karman_tensor::arithmetic::Grid;
use karman_types::{Digest, TaskError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a client is asked.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::drive::fed) enum Step {
    /// Who it is.
    Who,
    /// To join a sum. Its settings name the lesson by [`Lesson::digest`].
    Join {
        settings: Settings,
        invited: Arc<Vec<Credential>>,
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
    #[serde(deserialize_with = "wire::a_model")]
    pub(in crate::drive::fed) model: Arc<Frames>,
    /// What the sum is made on.
    pub(in crate::drive::fed) grid: Grid,
    pub(in crate::drive::fed) weights: WeightPolicy,
    pub(in crate::drive::fed) limits: Limits,
}

/// What an order says beside the lesson, that is the same for all clients of a sum.
#[derive(Clone, Debug, Serialize)]
pub(in crate::drive::fed) struct Common {
    run: RunId,
    name: String,
    /// Its name, and the digest of its file: of one name there may be several.
    plugin: (String, Digest),
    /// How many shares there are of data that lie at every client.
    shares: Option<u32>,
    properties: Vec<(String, String)>,
}

impl Common {
    /// That of an order to this plugin.
    pub(in crate::drive::fed) fn of((plugin, file): (&str, Digest), order: &Order) -> Self {
        Self {
            run: order.run.clone(),
            name: order.name.clone(),
            plugin: (plugin.to_owned(), file),
            shares: order.share.map(|(_, count)| count),
            properties: order.properties.clone(),
        }
    }

    /// The file of the plugin.
    pub(super) const fn file(&self) -> Digest {
        self.plugin.1
    }
}

impl Lesson {
    /// What the clients of a sum agree on before they join: all of the training but what decides the order of a client's samples, and what it is to forget. Else a
    /// driver could give all clients but one a lesson that changes nothing, and the sum would be that one's update.
    pub(in crate::drive::fed) fn digest(&self, common: &Common) -> Result<Digest, TaskError> {
        let course = Course {
            seed: 0,
            counted: None,
            ..self.course.clone()
        };
        let array = |(name, frame): &(String, Bytes)| (name.clone(), Digest::of(frame));
        let model: Vec<(String, Digest)> = self.model.iter().map(array).collect();
        let rules = (self.grid, self.weights, &self.limits);
        let whole = ("karman lesson 2", common, self.version, course, model, rules);
        Ok(Digest::of(&cbor::write(&whole)?))
    }

    /// Whether it is one of those that are summed.
    ///
    /// # Errors
    /// The field that is none.
    pub(super) fn check(&self) -> Result<(), TaskError> {
        let refused = |field: &str, says: &str| Err(TaskError::invalid(says).with_field(field));
        if self.course.rows != 1 {
            return refused("course.rows", "a secure sum is of updates with one row");
        }
        if self.course.most_steps.is_some() {
            let says = "the clients of a secure sum train alike: no bound on the steps of one of them";
            return refused("course.most-steps", says);
        }
        Ok(())
    }
}

/// What it answers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::drive::fed) enum Answered {
    Who {
        credential: Credential,
        /// The file of its plugin.
        plugin: Digest,
    },
    Says(ToServer),
    /// Its masked update, and what it says of it in the open.
    Trained {
        says: ToServer,
        samples: u64,
        steps: u32,
        loss: f32,
    },
}
