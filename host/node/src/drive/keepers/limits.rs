use karman_types::{ByteSize, serde_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How a node deals with the keepers, and what it keeps where it is one. The same on all keepers, or the strictest counts.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct KeepersConfig {
    /// How often the leader tells the others that it is there. What goes to a keeper at once has to arrive within this time:
    /// the slowest link between two keepers decides. Default 1 s: 1 MiB over 10 Mbit/s.
    #[serde(with = "serde_duration")]
    pub heartbeat: Duration,
    /// Keepers that have not heard of the leader for two to four times this long elect another. Default 3 s.
    #[serde(with = "serde_duration")]
    pub election: Duration,
    /// The owner of kept tasks is lost when the keepers have had no sign of it for this long. Default 30 s.
    #[serde(with = "serde_duration")]
    pub takeover: Duration,
    /// How long a node tries to reach a majority before it answers `unavailable`. An election should fit in. Default 20 s.
    #[serde(with = "serde_duration")]
    pub patience: Duration,
    /// Writes to the log after which it gives way to a snapshot of all that is kept. Default 5,000.
    pub log: u64,
    /// Tasks that are kept, those of which only the key is remembered included. Default 20,000.
    pub tasks: usize,
    /// Bytes of the inputs and results that are kept, which a keeper holds in memory. Default 256 MiB.
    pub bytes: ByteSize,
    /// Bytes of the input, and of the result, of one kept task. Default 1 MiB.
    pub entry: ByteSize,
}

impl Default for KeepersConfig {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(1),
            election: Duration::from_secs(3),
            takeover: Duration::from_secs(30),
            patience: Duration::from_secs(20),
            log: 5_000,
            tasks: 20_000,
            bytes: ByteSize::mib(256),
            entry: ByteSize::mib(1),
        }
    }
}

impl KeepersConfig {
    /// How often signs of life are given, and looked for.
    pub(super) fn pulse(&self) -> Duration {
        self.takeover / 4
    }

    /// How long one keeper may take to answer before the next is asked.
    pub(super) fn turn(&self) -> Duration {
        self.election
    }

    /// The longest message between keepers that is no snapshot: one batch of entries, in whole.
    pub(super) fn frame(&self) -> u64 {
        4 * self.entry.0 + (1 << 20)
    }

    /// The longest snapshot: what is kept, and what is written down of each task besides.
    pub(super) fn snapshot(&self) -> u64 {
        2 * self.bytes.0 + self.tasks as u64 * (4 << 10)
    }
}
