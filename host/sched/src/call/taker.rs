use karman_types::NodeId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A node that could run a task, as far as it is known.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Taker {
    /// The node.
    pub node: NodeId,
    /// The last round trip to it; nothing while none was measured.
    pub round_trip: Option<Duration>,
    /// The cores that it has.
    pub cores: u32,
    /// Calls under way there, as far as is known.
    pub busy: u32,
    /// What calls of this task took lately until they were answered, without the round trip; nothing where none was made.
    pub takes: Option<Duration>,
    /// How long a call of this task was waited for that was given up, where none was answered since: it takes no less.
    pub outlasted: Option<Duration>,
    /// How long ago it did not answer a call of this task; nothing where that is long past.
    pub failed: Option<Duration>,
    /// How long ago it said what it offers, and how busy it is.
    pub heard: Option<Duration>,
}

impl Taker {
    /// An idle node of which nothing was measured.
    pub const fn new(node: NodeId, cores: u32) -> Self {
        Self {
            node,
            round_trip: None,
            cores,
            busy: 0,
            takes: None,
            outlasted: None,
            failed: None,
            heard: None,
        }
    }

    /// Calls on each core, in thousandths.
    pub(super) fn load(&self) -> u64 {
        u64::from(self.busy) * 1000 / u64::from(self.cores.max(1))
    }

    /// The same, and 0 while a core is free: how busy such a node is makes no difference to one call more.
    pub(super) fn backlog(&self) -> u64 {
        match self.busy < self.cores.max(1) {
            true => 0,
            false => self.load(),
        }
    }

    /// The round trip; the longest there is where none was measured.
    pub(super) fn way(&self) -> Duration {
        self.round_trip.unwrap_or(Duration::MAX)
    }
}
