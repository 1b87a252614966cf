use crate::dedupe::Keys;
use crate::limits::room;
use crate::{Epoch, KeyReused, LimitReached, Outcome, Saved, StaleEpoch, TaskRecord, UnixMs};
use karman_types::{NodeId, TaskId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One entry of the keepers' log. Whoever proposes it may do so again until it knows what became of it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Entry {
    /// A task is accepted. Once this is committed, the caller gets its acknowledgement.
    Accept {
        /// The node that accepted it, which is its first owner.
        owner: NodeId,
        /// The task.
        record: Box<TaskRecord>,
    },
    /// A node takes the task over.
    Own {
        /// The task.
        task: TaskId,
        /// Its owner from now on.
        node: NodeId,
        /// The next epoch.
        epoch: Epoch,
    },
    /// An attempt is about to start. Only the owner learns that this was committed, so that nobody else starts one.
    Dispatch {
        /// The task.
        task: TaskId,
        /// The ownership.
        epoch: Epoch,
        /// The number of the attempt.
        number: u32,
        /// Where it runs.
        provider: NodeId,
    },
    /// The task has ended: it is done, failed, expired or cancelled.
    End {
        /// The task.
        task: TaskId,
        /// The ownership.
        epoch: Epoch,
        /// How.
        outcome: Outcome,
        /// When, if the owner could tell.
        at: Option<UnixMs>,
    },
    /// The result was fetched, or nobody came for it in time.
    Trim {
        /// The task.
        task: TaskId,
        /// The ownership.
        epoch: Epoch,
    },
    /// The key is old enough: nothing is known of the task any more.
    Forget {
        /// The task.
        task: TaskId,
        /// The ownership.
        epoch: Epoch,
    },
}

/// What an entry did. A node that lets clients wait at any keeper tells them from these.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Effect {
    /// The task is kept.
    Accepted(TaskId),
    /// The task has this owner.
    Owned {
        /// The task.
        task: TaskId,
        /// Its owner.
        node: NodeId,
        /// The ownership.
        epoch: Epoch,
    },
    /// The attempt may start.
    Dispatched(TaskId),
    /// The task has ended, with the outcome of its record.
    Ended(TaskId),
    /// The result is gone.
    Trimmed(TaskId),
    /// All of it is gone.
    Forgotten(TaskId),
}

/// Why an entry had no effect. It stays in the log all the same, and is refused by every keeper alike.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[non_exhaustive]
pub enum KeptError {
    /// An owner that is one no longer.
    #[error(transparent)]
    Stale(#[from] StaleEpoch),
    /// The same request under the same key was accepted before, perhaps by another node.
    #[error("task {0} asks for the same under the same key: wait for that one")]
    Same(TaskId),
    /// Another request came under a key that is taken.
    #[error(transparent)]
    KeyReused(#[from] KeyReused),
    /// There is no such task, or it was forgotten.
    #[error("task {0} is not known to the keepers: submit it again")]
    Unknown(TaskId),
    /// The task has ended before. This is how.
    #[error("task {task} has ended: fetch its result")]
    Ended {
        /// The task.
        task: TaskId,
        /// The recorded outcome, while it is known.
        outcome: Option<Box<Outcome>>,
    },
    /// The keepers have no room for more.
    #[error(transparent)]
    Limit(#[from] LimitReached),
}

/// A kept task, as the keepers know it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Kept {
    /// Its owner.
    pub owner: NodeId,
    /// The task; its epoch is that of the owner.
    pub record: TaskRecord,
}

/// What the keepers agree on: the state machine behind their replicated log. The consensus itself is a library's. The same
/// entries in the same order give the same state and the same answers on every keeper: no clock, no chance.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct KeptState {
    tasks: BTreeMap<TaskId, Kept>,
    keys: Keys,
    most: usize,
    refused_stale: u64,
}

impl KeptState {
    /// Nothing yet, and room for `most` tasks (forgotten results included), which has to be the same on all keepers.
    pub fn new(most: usize) -> Self {
        Self {
            tasks: BTreeMap::new(),
            keys: Keys::default(),
            most,
            refused_stale: 0,
        }
    }

    /// Applies a committed entry.
    ///
    /// # Errors
    /// When the entry has no effect. An entry of an older epoch never has one.
    pub fn apply(&mut self, entry: Entry) -> Result<Effect, KeptError> {
        let applied = self.apply_one(entry);
        if let Err(KeptError::Stale(_)) = applied {
            self.refused_stale += 1;
        }
        applied
    }

    /// A task.
    pub fn get(&self, task: TaskId) -> Option<&Kept> {
        self.tasks.get(&task)
    }

    /// The tasks that this node owns: what another one takes over when it is lost, and itself when it starts again.
    pub fn owned_by(&self, node: NodeId) -> Vec<TaskRecord> {
        let owned = self.tasks.values().filter(|kept| kept.owner == node);
        owned.map(|kept| kept.record.clone()).collect()
    }

    /// How many tasks are kept, forgotten results included.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether no task is kept.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// How many entries came too late from a former owner.
    pub const fn refused_stale(&self) -> u64 {
        self.refused_stale
    }

    fn apply_one(&mut self, entry: Entry) -> Result<Effect, KeptError> {
        match entry {
            Entry::Accept { owner, record } => self.accept(owner, *record),
            Entry::Own { task, node, epoch } => self.own(task, node, epoch),
            Entry::Dispatch {
                task, epoch, number, ..
            } => {
                let record = self.owned(task, epoch)?;
                open(record)?;
                record.attempts = record.attempts.max(number);
                Ok(Effect::Dispatched(task))
            }
            Entry::End {
                task,
                epoch,
                outcome,
                at,
            } => {
                let record = self.owned(task, epoch)?;
                open(record)?;
                record.state = Saved::Ended { outcome, at };
                Ok(Effect::Ended(task))
            }
            Entry::Trim { task, epoch } => {
                let record = self.owned(task, epoch)?;
                if let Saved::Ended { at, .. } = record.state {
                    record.state = Saved::Forgotten { at };
                }
                Ok(Effect::Trimmed(task))
            }
            Entry::Forget { task, epoch } => {
                let key = self.owned(task, epoch)?.key.clone();
                self.tasks.remove(&task);
                self.keys.remove(key.as_ref(), task);
                Ok(Effect::Forgotten(task))
            }
        }
    }

    fn accept(&mut self, owner: NodeId, record: TaskRecord) -> Result<Effect, KeptError> {
        let task = record.task;
        let first = match self.tasks.contains_key(&task) {
            true => Some(task),
            false => self.keys.find(record.key.as_ref()),
        };
        if let Some(first) = first {
            let known = self.tasks.get(&first);
            return match known.filter(|known| known.record.fingerprint == record.fingerprint) {
                None => Err(KeyReused {
                    key: record.effect_key(),
                    task: first,
                }
                .into()),
                // The first proposal was committed after all.
                Some(known)
                    if first == task && known.owner == owner && known.record.epoch == record.epoch =>
                {
                    Ok(Effect::Accepted(task))
                }
                Some(_) => Err(KeptError::Same(first)),
            };
        }
        room("kept", self.tasks.len(), self.most)?;
        self.keys.insert(record.key.as_ref(), task);
        self.tasks.insert(task, Kept { owner, record });
        Ok(Effect::Accepted(task))
    }

    fn own(&mut self, task: TaskId, node: NodeId, epoch: Epoch) -> Result<Effect, KeptError> {
        let kept = self.tasks.get_mut(&task).ok_or(KeptError::Unknown(task))?;
        let current = kept.record.epoch;
        // Of several candidates the first in the log wins. Only its own repetition is no news.
        let repeated = epoch == current && node == kept.owner;
        if epoch != current.next() && !repeated {
            return Err(StaleEpoch {
                task,
                given: epoch,
                current,
            }
            .into());
        }
        kept.owner = node;
        kept.record.epoch = epoch;
        Ok(Effect::Owned { task, node, epoch })
    }

    /// The record of a task, for an effect of its owner.
    fn owned(&mut self, task: TaskId, epoch: Epoch) -> Result<&mut TaskRecord, KeptError> {
        let kept = self.tasks.get_mut(&task).ok_or(KeptError::Unknown(task))?;
        let current = kept.record.epoch;
        match epoch == current {
            true => Ok(&mut kept.record),
            false => Err(StaleEpoch {
                task,
                given: epoch,
                current,
            }
            .into()),
        }
    }
}

fn open(record: &TaskRecord) -> Result<(), KeptError> {
    match record.state {
        Saved::Open(_) => Ok(()),
        _ => Err(KeptError::Ended {
            task: record.task,
            outcome: record.outcome().cloned().map(Box::new),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Due, Guarantee};
    use karman_types::{Digest, TaskRequest};

    const TASK: TaskId = TaskId::from_parts(0, 1);

    fn node(name: &str) -> NodeId {
        NodeId::of_key(name.as_bytes())
    }

    fn accept(task: TaskId, asks: &str) -> Entry {
        let record = TaskRecord {
            task,
            name: "classify".into(),
            guarantee: Guarantee::Kept,
            key: Some("k".into()),
            fingerprint: Digest::of(asks.as_bytes()),
            epoch: Epoch::FIRST,
            attempts: 0,
            written: None,
            due: Due::default(),
            hedge_after: None,
            state: Saved::Open(TaskRequest::default()),
        };
        Entry::Accept {
            owner: node("a"),
            record: Box::new(record),
        }
    }

    fn own(name: &str, epoch: u64) -> Entry {
        Entry::Own {
            task: TASK,
            node: node(name),
            epoch: Epoch(epoch),
        }
    }

    fn end(epoch: u64, outcome: Outcome) -> Entry {
        Entry::End {
            task: TASK,
            epoch: Epoch(epoch),
            outcome,
            at: None,
        }
    }

    #[test]
    fn a_former_owner_has_no_effect() {
        let mut kept = KeptState::new(8);
        kept.apply(accept(TASK, "x")).unwrap();
        kept.apply(own("b", 2)).unwrap();
        // The second candidate comes too late, the first may say it twice.
        assert!(matches!(kept.apply(own("c", 2)), Err(KeptError::Stale(_))));
        kept.apply(own("b", 2)).unwrap();
        assert!(matches!(
            kept.apply(end(1, Outcome::Expired)),
            Err(KeptError::Stale(_))
        ));
        kept.apply(end(2, Outcome::Cancelled)).unwrap();
        let error = kept.apply(end(2, Outcome::Expired)).unwrap_err();
        assert!(
            matches!(error, KeptError::Ended { outcome: Some(outcome), .. } if *outcome == Outcome::Cancelled)
        );
        assert_eq!(kept.refused_stale(), 2);
        assert_eq!(kept.owned_by(node("b")).len(), 1);
    }

    #[test]
    fn a_key_is_accepted_once() {
        let mut kept = KeptState::new(1);
        let other = TaskId::from_parts(0, 2);
        kept.apply(accept(TASK, "x")).unwrap();
        assert_eq!(kept.apply(accept(TASK, "x")), Ok(Effect::Accepted(TASK)));
        assert_eq!(kept.apply(accept(other, "x")), Err(KeptError::Same(TASK)));
        assert!(matches!(
            kept.apply(accept(other, "y")),
            Err(KeptError::KeyReused(_))
        ));
        let epoch = Epoch::FIRST;
        kept.apply(Entry::Forget { task: TASK, epoch }).unwrap();
        kept.apply(accept(other, "y")).unwrap();
    }
}
