use crate::limits::room;
use crate::{AttemptId, Call, Epoch, LimitReached, StaleEpoch};
use karman_types::{ErrorKind, TaskError, TaskId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The other side of [`crate::Action::Start`]: which attempts of other nodes run here.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Provider {
    running: BTreeSet<AttemptId>,
    /// The newest epoch of tasks that have had more than one owner. The smallest id goes first when there are too many.
    epochs: BTreeMap<TaskId, Epoch>,
    most_running: usize,
    most_epochs: usize,
    draining: bool,
    refused_stale: u64,
}

/// What to do with a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Begin {
    /// Run it.
    Run,
    /// It runs already: the message came twice.
    Running,
}

/// Why an attempt does not start here.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    /// Its owner is one no longer.
    #[error(transparent)]
    Stale(#[from] StaleEpoch),
    /// Enough runs here.
    #[error(transparent)]
    Limit(#[from] LimitReached),
    /// This node is about to stop.
    #[error("this node is draining: start the attempt at another one")]
    Draining,
}

impl From<BeginError> for TaskError {
    fn from(error: BeginError) -> Self {
        let kind = match error {
            BeginError::Stale(_) => ErrorKind::Denied,
            // Another node could cure it.
            BeginError::Limit(_) | BeginError::Draining => ErrorKind::Unavailable,
        };
        Self::new(kind, error.to_string())
    }
}

impl Provider {
    /// A provider that runs at most this many attempts at once, and remembers the epochs of at most this many tasks.
    pub fn new(most_running: usize, most_epochs: usize) -> Self {
        Self {
            running: BTreeSet::new(),
            epochs: BTreeMap::new(),
            most_running,
            most_epochs,
            draining: false,
            refused_stale: 0,
        }
    }

    /// A call has come.
    ///
    /// # Errors
    /// When it may not run here (now).
    pub fn begin(&mut self, call: &Call) -> Result<Begin, BeginError> {
        let (attempt, given) = (call.attempt, call.epoch);
        let current = self.epochs.get(&attempt.task).copied().unwrap_or(Epoch::FIRST);
        if given < current {
            self.refused_stale += 1;
            let task = attempt.task;
            return Err(StaleEpoch { task, given, current }.into());
        }
        if self.running.contains(&attempt) {
            return Ok(Begin::Running);
        }
        if self.draining {
            return Err(BeginError::Draining);
        }
        room("running", self.running.len(), self.most_running)?;
        if given > Epoch::FIRST {
            self.epochs.insert(attempt.task, given);
            if self.epochs.len() > self.most_epochs {
                self.epochs.pop_first();
            }
        }
        self.running.insert(attempt);
        Ok(Begin::Run)
    }

    /// An attempt has ended or was stopped; whether it ran.
    pub fn finish(&mut self, attempt: AttemptId) -> bool {
        self.running.remove(&attempt)
    }

    /// From now on nothing new starts.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether nothing new starts.
    pub const fn draining(&self) -> bool {
        self.draining
    }

    /// How many attempts run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// How many calls came too late from a former owner.
    pub const fn refused_stale(&self) -> u64 {
        self.refused_stale
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::TaskRequest;

    fn call(task: u128, number: u32, epoch: u64) -> Call {
        Call {
            attempt: AttemptId {
                task: TaskId::from_parts(0, task),
                run: 0,
                number,
            },
            epoch: Epoch(epoch),
            name: "classify".into(),
            request: TaskRequest::default(),
            key: "k".into(),
            home: None,
            within: None,
        }
    }

    #[test]
    fn a_former_owner_starts_nothing() {
        let mut provider = Provider::new(8, 8);
        assert_eq!(provider.begin(&call(1, 1, 2)), Ok(Begin::Run));
        assert!(matches!(
            provider.begin(&call(1, 2, 1)),
            Err(BeginError::Stale(_))
        ));
        assert_eq!(provider.begin(&call(1, 3, 2)), Ok(Begin::Run));
        assert_eq!(provider.refused_stale(), 1);
    }

    #[test]
    fn a_draining_provider_finishes_what_runs() {
        let mut provider = Provider::new(1, 8);
        assert_eq!(provider.begin(&call(1, 1, 1)), Ok(Begin::Run));
        assert_eq!(provider.begin(&call(1, 1, 1)), Ok(Begin::Running));
        assert!(matches!(
            provider.begin(&call(2, 1, 1)),
            Err(BeginError::Limit(_))
        ));
        provider.drain();
        assert!(provider.finish(call(1, 1, 1).attempt));
        assert_eq!(provider.begin(&call(2, 1, 1)), Err(BeginError::Draining));
    }
}
