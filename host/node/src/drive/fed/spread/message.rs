//! What a driver and its clients say to each other over a round whose updates go from client to client.

use crate::drive::fed::wire::{self, Course, Frames};
use bytes::Bytes;
use karman_fed::Reached;
use karman_fed::strategy::WeightPolicy;
use karman_fed::swarm::{Layout, Link, MeanRule, SwarmSettings};
use karman_types::{Digest, serde_list};
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;

/// What a client is asked.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::drive::fed) enum Step {
    /// To train, and to keep what that has changed.
    Train(Lesson),
    /// To wait for the round of this name, and bring that into it.
    Join(Joining),
    /// What it has come to, once the round is over.
    Outcome { name: String },
    /// The mean that it has come to.
    Mean { name: String },
}

/// A training whose update goes from client to client.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::drive::fed) struct Lesson {
    pub(in crate::drive::fed) version: u64,
    pub(in crate::drive::fed) course: Course,
    #[serde(deserialize_with = "wire::a_model")]
    pub(in crate::drive::fed) model: Arc<Frames>,
}

/// A round that is to be waited for.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::drive::fed) struct Joining {
    pub(super) name: String,
    /// What it was trained from.
    pub(super) version: u64,
    /// How many take part at most.
    pub(super) clients: u32,
    pub(super) layout: Layout,
    pub(super) weights: WeightPolicy,
    pub(super) rule: MeanRule,
    pub(super) link: Link,
    /// How long there will be an outcome for.
    pub(super) within_ms: u64,
}

/// What it answers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::drive::fed) enum Answered {
    /// What it says of its training in the open.
    Trained {
        samples: u64,
        steps: u32,
        loss: f32,
    },
    Waits,
    Came(Box<Came>),
    /// The numbers, little-endian.
    Mean(Bytes),
}

/// What the round has come to for a client.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::drive::fed) struct Came {
    pub(super) reached: Reached,
    /// Updates that are no numbers to take a mean of, and why.
    #[serde(deserialize_with = "left_out")]
    pub(super) left_out: Vec<(Digest, String)>,
    /// Pieces of its own that it sent outside of any cover.
    pub(super) unprotected: u32,
}

/// No more of them than a round has clients.
fn left_out<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(Digest, String)>, D::Error> {
    serde_list::at_most(deserializer, SwarmSettings::MOST_CLIENTS)
}
