use karman_types::serde_duration;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How rounds follow each other.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(
    tag = "mode",
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case",
    deny_unknown_fields
)]
pub enum Pace {
    /// Each round waits for all of its clients, or until its time is over.
    Synchronous {
        /// Clients of a round.
        clients: usize,
        /// With fewer updates the round fails. Default 2.
        #[serde(default = "two")]
        minimum: usize,
        /// How long a round waits. Default 10 min.
        #[serde(with = "serde_duration", default = "ten_minutes")]
        timeout: Duration,
    },
    /// Each round waits for some of its clients, or for some time. Who is late counts in a later round, the less the staler.
    SemiAsynchronous {
        /// Clients of a round.
        clients: usize,
        /// With fewer updates the round fails. Default 2.
        #[serde(default = "two")]
        minimum: usize,
        /// So many updates close it.
        enough: usize,
        /// So much time closes it, with the minimum of updates.
        #[serde(with = "serde_duration")]
        wait: Duration,
        /// How long a client may take. Default 10 min.
        #[serde(with = "serde_duration", default = "ten_minutes")]
        timeout: Duration,
        /// An update that the model has left further behind is refused. Default 10.
        #[serde(default = "ten")]
        most_stale: u64,
    },
    /// FedBuff (Nguyen et al. 2022): clients train all the time, and each so many updates make a version. An update counts by
    /// `1 / √(1 + staleness)`.
    Buffered {
        /// Clients that train at once.
        at_once: usize,
        /// Updates that make a version. Default 10.
        #[serde(default = "ten_updates")]
        buffer: usize,
        /// How long a client may take. Default 10 min.
        #[serde(with = "serde_duration", default = "ten_minutes")]
        timeout: Duration,
        /// An update that the model has left further behind is refused. Default 10.
        #[serde(default = "ten")]
        most_stale: u64,
    },
}

const fn two() -> usize {
    2
}

const fn ten() -> u64 {
    10
}

const fn ten_updates() -> usize {
    10
}

const fn ten_minutes() -> Duration {
    Duration::from_secs(600)
}

impl Default for Pace {
    fn default() -> Self {
        Self::Synchronous {
            clients: 10,
            minimum: two(),
            timeout: ten_minutes(),
        }
    }
}

impl Pace {
    /// Clients that train at once.
    pub const fn cohort(&self) -> usize {
        match self {
            Self::Synchronous { clients, .. } | Self::SemiAsynchronous { clients, .. } => *clients,
            Self::Buffered { at_once, .. } => *at_once,
        }
    }

    /// How long a client may take.
    pub const fn timeout(&self) -> Duration {
        match self {
            Self::Synchronous { timeout, .. }
            | Self::SemiAsynchronous { timeout, .. }
            | Self::Buffered { timeout, .. } => *timeout,
        }
    }

    /// The fewest updates that make a version.
    pub const fn minimum(&self) -> usize {
        match self {
            Self::Synchronous { minimum, .. } | Self::SemiAsynchronous { minimum, .. } => *minimum,
            Self::Buffered { buffer, .. } => *buffer,
        }
    }

    /// How far the model may have gone on since a client got it.
    pub const fn most_stale(&self) -> u64 {
        match self {
            Self::Synchronous { .. } => 0,
            Self::SemiAsynchronous { most_stale, .. } | Self::Buffered { most_stale, .. } => *most_stale,
        }
    }
}
