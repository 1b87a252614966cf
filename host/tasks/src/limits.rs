use karman_types::{Backoff, ByteSize, TaskError, serde_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What one node holds at most, and how long. Every number has a default; whatever would go over one is refused with
/// an [error](LimitReached) that names it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Limits {
    /// Tasks that have not ended. Default 10,000.
    pub queue: usize,
    /// Bytes of the requests of tasks that have not ended. Default 256 MiB.
    pub queue_bytes: ByteSize,
    /// Accepted tasks that have not ended, and results that have not been forgotten, together: whatever is accepted has
    /// room for its result. Default 20,000.
    pub results: usize,
    /// Bytes of the results that have not been forgotten. Nothing more is accepted when three quarters are taken: the rest is for
    /// results of what was accepted before. Where that is not enough, the results that have waited longest are forgotten before
    /// their time. A local task with a result that is longer than all of it fails. Default 256 MiB.
    pub results_bytes: ByteSize,
    /// Accepted tasks of any state, with those of which only the key is remembered. Default 100,000.
    pub keys: usize,
    /// Callers that wait for one and the same task. Default 64.
    pub callers: usize,
    /// Attempts of one task, hedges included. An accepted local task counts anew after a restart. Default 4.
    pub attempts: u32,
    /// How often a task runs again because what it read has changed. Default 8.
    pub conflicts: u32,
    /// Attempts that one provider has from this node at once. Default 64.
    pub running_per_provider: u32,
    /// Pause before the first retry; it doubles with each further one. Default 100 ms.
    #[serde(with = "serde_duration")]
    pub first_pause: Duration,
    /// The longest pause. Default 30 s.
    #[serde(with = "serde_duration")]
    pub longest_pause: Duration,
    /// An accepted task ends this long after it was accepted, whatever it asked for. Default 7 days.
    #[serde(with = "serde_duration")]
    pub lifetime: Duration,
    /// How long a result waits to be fetched. Default 1 day.
    #[serde(with = "serde_duration")]
    pub result_retention: Duration,
    /// How long the key of an ended task is remembered, here and at the home of the buckets it wrote to. It has to be longer
    /// than `lifetime`. Default 8 days.
    ///
    /// See [`crate::judge`].
    #[serde(with = "serde_duration")]
    pub key_retention: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(86_400);
        Self {
            queue: 10_000,
            queue_bytes: ByteSize::mib(256),
            results: 20_000,
            results_bytes: ByteSize::mib(256),
            keys: 100_000,
            callers: 64,
            attempts: 4,
            conflicts: 8,
            running_per_provider: 64,
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(30),
            lifetime: DAY * 7,
            result_retention: DAY,
            key_retention: DAY * 8,
        }
    }
}

impl Limits {
    pub(crate) fn backoff(&self) -> Backoff {
        Backoff {
            first: self.first_pause,
            longest: self.longest_pause,
        }
    }
}

/// A limit of this node that would be exceeded.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[error("the limit `{name}` of {most} is reached: try again later, or raise it in the node's configuration")]
pub struct LimitReached {
    /// The limit, as the configuration names it.
    pub name: String,
    /// How many there may be.
    pub most: u64,
}

impl From<LimitReached> for TaskError {
    fn from(reached: LimitReached) -> Self {
        Self::limit(reached.to_string()).with_field(reached.name)
    }
}

/// Refuses what would come on top of `held` when that is `most` already.
pub(crate) fn room(name: &'static str, held: usize, most: usize) -> Result<(), LimitReached> {
    match held < most {
        true => Ok(()),
        false => Err(LimitReached {
            name: name.into(),
            most: most as u64,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_named() {
        assert_eq!(room("queue", 9, 10), Ok(()));
        let error = room("queue", 10, 10).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("the limit `queue` of 10 is reached")
        );
    }

    #[test]
    fn keys_outlive_tasks() {
        let limits = Limits::default();
        assert!(limits.key_retention > limits.lifetime);
    }
}
