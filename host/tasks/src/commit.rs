use crate::{AttemptId, Epoch, Kept, KeyReused, LimitReached, StaleEpoch, TaskRecord, UnixMs};
use bytes::Bytes;
use karman_types::{Digest, NodeId, TaskError, TaskId, TaskResponse};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// What a task has read and would write, all of it in buckets with one home: the node whose disk they are on.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Batch {
    /// The home.
    pub home: NodeId,
    /// What was read. It still has to be so when the operations are applied.
    pub reads: Vec<Read>,
    /// What is to be written, all or nothing, in this order.
    pub operations: Vec<Operation>,
}

/// A value that was read.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Read {
    /// The bucket.
    pub bucket: Arc<str>,
    /// The key.
    pub key: Arc<str>,
    /// The version of the value; 0 when there was none.
    pub version: u64,
}

/// One write to a bucket.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Operation {
    /// Sets a value.
    Set {
        /// The bucket.
        bucket: Arc<str>,
        /// The key.
        key: Arc<str>,
        /// The value.
        value: Bytes,
    },
    /// Deletes a value, if there is one.
    Delete {
        /// The bucket.
        bucket: Arc<str>,
        /// The key.
        key: Arc<str>,
    },
}

/// What an attempt answers: the response, and what it would write.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Answer {
    /// The response. It counts once the batch is applied.
    pub response: TaskResponse,
    /// What the task would write to buckets.
    pub batch: Option<Batch>,
}

/// A batch on its way to its home.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Commit {
    /// The attempt that made the batch.
    pub attempt: AttemptId,
    /// [`TaskRecord::effect_key`]: the effect is applied once per key.
    pub key: Arc<str>,
    /// The fingerprint of the submission.
    pub fingerprint: Digest,
    /// The ownership.
    pub epoch: Epoch,
    /// The reads and operations.
    pub batch: Batch,
    /// The response, remembered with the effect: a node that runs the task again gets this one.
    pub response: TaskResponse,
}

impl Commit {
    pub(crate) fn new(record: &TaskRecord, attempt: AttemptId, response: TaskResponse, batch: Batch) -> Self {
        Self {
            attempt,
            key: record.effect_key(),
            fingerprint: record.fingerprint,
            epoch: record.epoch,
            batch,
            response,
        }
    }

    /// Whether the node that brings it owns its task, by what the keepers know of that. Otherwise any member could write what is
    /// remembered for days, or stand under the key of a task in its way.
    ///
    /// # Errors
    /// [`CommitError::Stale`] when there is a later owner, [`CommitError::Unowned`] when the keepers know of no such task of this node
    /// with this home.
    pub fn of_owner(&self, from: NodeId, kept: Option<&Kept>) -> Result<(), CommitError> {
        let task = self.attempt.task;
        let is_it = |kept: &&Kept| {
            let record = &kept.record;
            let is_same = record.effect_key() == self.key && record.fingerprint == self.fingerprint;
            record.task == task && is_same && record.home == Some(self.batch.home)
        };
        let Kept { owner, record, .. } = kept.filter(is_it).ok_or(CommitError::Unowned(task))?;
        if self.epoch < record.epoch {
            return Err(CommitError::Stale(StaleEpoch {
                task,
                given: self.epoch,
                current: record.epoch,
            }));
        }
        match *owner == from && self.epoch == record.epoch {
            true => Ok(()),
            false => Err(CommitError::Unowned(task)),
        }
    }
}

/// What a home knows of a task's key.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Seen {
    /// The task that came with the key.
    pub task: TaskId,
    /// What it asked for.
    pub fingerprint: Digest,
    /// The newest epoch that came.
    pub epoch: Epoch,
    /// The response, once the effect is applied.
    pub applied: Option<TaskResponse>,
    /// When this was written, if the home could tell. A home sets it as soon as its clock is trusted.
    pub at: Option<UnixMs>,
}

impl Seen {
    /// Whether the home may delete this row: when its clock is trusted and [`crate::Limits::key_retention`] is over. Before
    /// that, a home that has no room for more rows refuses commits with [`CommitError::Limit`].
    pub fn may_be_forgotten(&self, wall: Option<UnixMs>, retention: Duration) -> bool {
        matches!((self.at, wall), (Some(at), Some(wall)) if wall >= at.after(retention))
    }
}

/// The verdict on a commit.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Verdict {
    /// Its operations are applied, in the same transaction as the row that remembers it.
    Applied,
    /// They were applied before. This was the response.
    AlreadyApplied(TaskResponse),
    /// Something that it read has changed: the task runs again.
    Conflict {
        /// The first such value: its bucket.
        bucket: Arc<str>,
        /// The first such value: its key.
        key: Arc<str>,
    },
}

/// Why a home refuses a commit.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// A newer owner was here.
    #[error(transparent)]
    Stale(#[from] StaleEpoch),
    /// The key was used for another request.
    #[error(transparent)]
    KeyReused(#[from] KeyReused),
    /// The owner may not write to this bucket.
    #[error("the node that owns the task has no right `bucket-write:{bucket}` at the home of its buckets")]
    Denied {
        /// The bucket.
        bucket: Arc<str>,
    },
    /// It comes from a node that does not own the task.
    #[error("the keepers know of no task {0} that belongs to the node that brought what it writes")]
    Unowned(TaskId),
    /// It writes what no bucket takes, however much room there is: a key or value that is too long, or to a name that is none.
    #[error(transparent)]
    Unfit(TaskError),
    /// The home cannot remember more keys for now.
    #[error(transparent)]
    Limit(#[from] LimitReached),
}

/// What a home does with a commit, all in one transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Judgement {
    /// What is answered. The operations are applied if and only if this is [`Verdict::Applied`].
    pub verdict: Verdict,
    /// The row of the key from now on, if it changes.
    pub remember: Option<Seen>,
}

/// The rule by which an effect is applied exactly once: if its key is unseen and all that it read is as it was.
///
/// `seen` is the row of [`Commit::key`], and `version` gives the version of a value by bucket and key, 0 for none. The caller
/// reads them, applies the operations and writes [`Judgement::remember`] in one transaction.
///
/// **The bound.** A row is kept for [`crate::Limits::key_retention`] (8 days) after it was written. A task that was accepted when
/// its owner's clock was trusted ends within [`crate::Limits::lifetime`] (7 days), so that its key is known for as long as it can
/// run. Beyond that (a task accepted in doubt of the time, a caller that uses a key again after 8 days) only a batch that writes
/// without having read what it writes could be applied a second time: for every other, the versions differ.
///
/// # Errors
/// [`CommitError::Stale`] when a newer owner of the task was here, [`CommitError::KeyReused`] when the key came with another
/// request. Nothing is written then.
pub fn judge(
    commit: &Commit,
    seen: Option<&Seen>,
    wall: Option<UnixMs>,
    version: impl Fn(&str, &str) -> u64,
) -> Result<Judgement, CommitError> {
    let task = commit.attempt.task;
    if let Some(seen) = seen {
        if seen.fingerprint != commit.fingerprint {
            return Err(KeyReused(commit.key.clone()).into());
        }
        if seen.task == task && seen.epoch > commit.epoch {
            return Err(StaleEpoch {
                task,
                given: commit.epoch,
                current: seen.epoch,
            }
            .into());
        }
        if let Some(response) = &seen.applied {
            let newer = seen.task == task && seen.epoch < commit.epoch;
            return Ok(Judgement {
                verdict: Verdict::AlreadyApplied(response.clone()),
                remember: newer.then(|| Seen {
                    epoch: commit.epoch,
                    ..seen.clone()
                }),
            });
        }
    }
    let row = |applied| Seen {
        task,
        fingerprint: commit.fingerprint,
        epoch: commit.epoch,
        applied,
        at: wall,
    };
    let changed = |read: &&Read| version(&read.bucket, &read.key) != read.version;
    Ok(match commit.batch.reads.iter().find(changed) {
        Some(read) => Judgement {
            verdict: Verdict::Conflict {
                bucket: read.bucket.clone(),
                key: read.key.clone(),
            },
            // The first epoch is fenced off by nobody, so that only a later one has to be remembered.
            remember: (commit.epoch > Epoch::FIRST).then(|| row(None)),
        },
        None => Judgement {
            verdict: Verdict::Applied,
            remember: Some(row(Some(commit.response.clone()))),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Due, Guarantee, Saved};
    use karman_types::TaskRequest;

    fn commit(epoch: u64, version: u64) -> Commit {
        Commit {
            attempt: AttemptId {
                task: TaskId::from_parts(0, 1),
                run: 0,
                number: 1,
            },
            key: "k".into(),
            fingerprint: Digest::of(b"a"),
            epoch: Epoch(epoch),
            batch: Batch {
                home: NodeId::of_key(b"home"),
                reads: vec![Read {
                    bucket: "road".into(),
                    key: "last".into(),
                    version,
                }],
                operations: vec![],
            },
            response: TaskResponse::default(),
        }
    }

    #[test]
    fn applied_once_then_remembered() {
        let first = judge(&commit(1, 4), None, None, |_, _| 4).unwrap();
        assert_eq!(first.verdict, Verdict::Applied);
        let again = judge(&commit(1, 4), first.remember.as_ref(), None, |_, _| 5).unwrap();
        assert_eq!(again.verdict, Verdict::AlreadyApplied(TaskResponse::default()));
        let other = Commit {
            fingerprint: Digest::of(b"b"),
            ..commit(1, 5)
        };
        let error = judge(&other, first.remember.as_ref(), None, |_, _| 5).unwrap_err();
        assert!(matches!(error, CommitError::KeyReused(_)));
    }

    #[test]
    fn a_batch_is_of_the_owner_that_the_keepers_know() {
        let [home, heir, member] = ["home", "heir", "member"].map(|key| NodeId::of_key(key.as_bytes()));
        let kept = |owner, epoch| Kept {
            owner,
            joined: false,
            progress: None,
            record: TaskRecord {
                task: TaskId::from_parts(0, 1),
                name: "append".into(),
                guarantee: Guarantee::Kept,
                key: Some("k".into()),
                effect: None,
                fingerprint: Digest::of(b"a"),
                epoch: Epoch(epoch),
                home: Some(home),
                attempts: 1,
                written: None,
                due: Due::default(),
                hedge_after: None,
                stays: false,
                state: Saved::Open(TaskRequest::default()),
            },
        };
        let (first, later, unowned) = (
            commit(1, 4),
            commit(2, 4),
            Err(CommitError::Unowned(TaskId::from_parts(0, 1))),
        );
        assert_eq!(later.of_owner(heir, Some(&kept(heir, 2))), Ok(()));
        assert_eq!(later.of_owner(member, Some(&kept(heir, 2))), unowned);
        assert_eq!(
            later.of_owner(home, Some(&kept(home, 1))),
            unowned,
            "it owns it under an earlier epoch"
        );
        assert_eq!(later.of_owner(member, None), unowned);
        let stale = first.of_owner(home, Some(&kept(heir, 2)));
        assert!(matches!(stale, Err(CommitError::Stale(_))), "{stale:?}");
        for forged in [
            Commit {
                key: "another".into(),
                ..later.clone()
            },
            Commit {
                fingerprint: Digest::of(b"b"),
                ..later.clone()
            },
            Commit {
                batch: Batch {
                    home: heir,
                    ..later.batch.clone()
                },
                ..later
            },
        ] {
            assert_eq!(forged.of_owner(heir, Some(&kept(heir, 2))), unowned);
        }
    }

    #[test]
    fn a_changed_read_conflicts_and_still_fences() {
        let conflict = judge(&commit(2, 4), None, None, |_, _| 5).unwrap();
        assert!(matches!(conflict.verdict, Verdict::Conflict { .. }));
        let stale = judge(&commit(1, 5), conflict.remember.as_ref(), None, |_, _| 5).unwrap_err();
        assert!(matches!(stale, CommitError::Stale(_)));
        let newer = judge(&commit(2, 5), conflict.remember.as_ref(), None, |_, _| 5).unwrap();
        assert_eq!(newer.verdict, Verdict::Applied);
    }

    #[test]
    fn a_row_without_a_date_stays() {
        let retention = Duration::from_millis(10);
        let mut seen = judge(&commit(1, 0), None, None, |_, _| 0)
            .unwrap()
            .remember
            .unwrap();
        assert!(!seen.may_be_forgotten(Some(UnixMs(100)), retention));
        seen.at = Some(UnixMs(90));
        assert!(!seen.may_be_forgotten(None, retention));
        assert!(seen.may_be_forgotten(Some(UnixMs(100)), retention));
    }
}
