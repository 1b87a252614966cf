use crate::dedupe::Keys;
use crate::limits::room;
use crate::{Effect, Entry, Epoch, KeptError, KeyReused, Saved, StaleEpoch, TaskRecord};
use bytes::Bytes;
use karman_types::{NodeId, TaskId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A kept task, as the keepers know it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Kept {
    /// Its owner.
    pub owner: NodeId,
    /// The task; its epoch is that of the owner.
    pub record: TaskRecord,
    /// Whether another submission of the same has been told of it.
    pub joined: bool,
    /// How far it had got when that was last told, until nothing is known of its result any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Bytes>,
}

impl Kept {
    /// Bytes of its input or result, and of its progress.
    fn weight(&self) -> u64 {
        let progress = self.progress.as_ref().map_or(0, Bytes::len);
        self.record.weight() + progress as u64
    }
}

/// What the keepers agree on: the state machine behind their replicated log. The consensus itself is a library's. The same
/// entries in the same order give the same state and the same answers on every keeper: no clock, no chance.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct KeptState {
    tasks: BTreeMap<TaskId, Kept>,
    keys: Keys,
    most: usize,
    bytes: u64,
    refused_stale: u64,
}

impl KeptState {
    /// Nothing yet, and room for `most` tasks (forgotten results included), which has to be the same on all keepers.
    pub fn new(most: usize) -> Self {
        Self {
            tasks: BTreeMap::new(),
            keys: Keys::default(),
            most,
            bytes: 0,
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

    /// Whether the entry speaks for an ownership that is over already. Epochs only grow: it would have no effect when its turn
    /// came, so it is not worth a place in the log.
    pub fn stale(&self, entry: &Entry) -> Option<StaleEpoch> {
        let (task, given) = entry.ownership()?;
        let current = self.get(task)?.record.epoch;
        (given < current).then_some(StaleEpoch { task, given, current })
    }

    /// A task.
    pub fn get(&self, task: TaskId) -> Option<&Kept> {
        self.tasks.get(&task)
    }

    /// Every task, the oldest first.
    pub fn tasks(&self) -> impl Iterator<Item = &Kept> {
        self.tasks.values()
    }

    /// Every node that owns a task.
    pub fn owners(&self) -> BTreeSet<NodeId> {
        self.tasks.values().map(|kept| kept.owner).collect()
    }

    /// Bytes of the inputs, results and progress that are kept.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that are kept once this entry is applied.
    pub fn bytes_with(&self, entry: &Entry) -> u64 {
        let replaced = match entry {
            Entry::Progress { task, .. } => {
                let progress = self.get(*task).and_then(|kept| kept.progress.as_ref());
                progress.map_or(0, |progress| progress.len() as u64)
            }
            Entry::End { task, .. } => self.get(*task).map_or(0, |kept| kept.record.weight()),
            _ => 0,
        };
        (self.bytes + entry.bytes()).saturating_sub(replaced)
    }

    /// What makes room for a result where `most` bytes would be exceeded: entries by which other results are forgotten, those of the
    /// tasks that were accepted first, but of none that is part of another task. Nothing for other entries, and where it would not
    /// help.
    pub fn making_room(&self, entry: &Entry, most: u64) -> Vec<Entry> {
        let Entry::End { task: ending, .. } = entry else {
            return Vec::new();
        };
        let mut over = self.bytes_with(entry).saturating_sub(most);
        if over == 0 {
            return Vec::new();
        }
        let may_go = |kept: &&Kept| {
            let ended = matches!(kept.record.state, Saved::Ended { .. }) && kept.weight() > 0;
            ended && !kept.record.is_part() && kept.record.task != *ending
        };
        let mut trims = Vec::new();
        for kept in self.tasks.values().filter(may_go) {
            if over == 0 {
                break;
            }
            over = over.saturating_sub(kept.weight());
            let (task, epoch) = (kept.record.task, kept.record.epoch);
            trims.push(Entry::Trim { task, epoch });
        }
        match over {
            0 => trims,
            _ => Vec::new(),
        }
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
            Entry::Withdraw { task, epoch } => self.withdraw(task, epoch),
            Entry::Own { task, node, epoch } => self.own(task, node, epoch),
            Entry::Dispatch {
                task, epoch, number, ..
            } => {
                let record = self.owned(task, epoch)?;
                open(record)?;
                record.attempts = record.attempts.max(number);
                Ok(Effect::Dispatched(task))
            }
            Entry::Progress {
                task,
                epoch,
                progress,
            } => {
                let record = self.owned(task, epoch)?;
                open(record)?;
                // An attempt that gets on is not one of those that lead nowhere.
                record.attempts = 0;
                self.edit(task, |kept| kept.progress = Some(progress));
                Ok(Effect::Progressed(task))
            }
            Entry::End {
                task,
                epoch,
                outcome,
                at,
            } => {
                open(self.owned(task, epoch)?)?;
                self.edit(task, |kept| kept.record.state = Saved::Ended { outcome, at });
                Ok(Effect::Ended(task))
            }
            Entry::Trim { task, epoch } => {
                if let Saved::Ended { at, .. } = self.owned(task, epoch)?.state {
                    self.edit(task, |kept| {
                        kept.record.state = Saved::Forgotten { at };
                        kept.progress = None;
                    });
                }
                Ok(Effect::Trimmed(task))
            }
            Entry::Forget { task, epoch } => {
                self.owned(task, epoch)?;
                self.remove(task);
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
            let known = self.tasks.get_mut(&first);
            return match known.filter(|known| known.record.fingerprint == record.fingerprint) {
                None => Err(KeyReused(record.own_key()).into()),
                // The first proposal was committed after all.
                Some(known)
                    if first == task && known.owner == owner && known.record.epoch == record.epoch =>
                {
                    Ok(Effect::Accepted(task))
                }
                Some(known) => {
                    known.joined = true;
                    Err(KeptError::Same(first))
                }
            };
        }
        room("kept", self.tasks.len(), self.most)?;
        self.keys.insert(record.key.as_ref(), task);
        self.bytes += record.weight();
        let joined = false;
        self.tasks.insert(
            task,
            Kept {
                owner,
                record,
                joined,
                progress: None,
            },
        );
        Ok(Effect::Accepted(task))
    }

    fn withdraw(&mut self, task: TaskId, epoch: Epoch) -> Result<Effect, KeptError> {
        self.owned(task, epoch)?;
        if self.tasks.get(&task).is_some_and(|kept| kept.joined) {
            return Err(KeptError::Joined(task));
        }
        self.remove(task);
        Ok(Effect::Withdrawn(task))
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

    fn edit(&mut self, task: TaskId, edit: impl FnOnce(&mut Kept)) {
        if let Some(kept) = self.tasks.get_mut(&task) {
            self.bytes -= kept.weight();
            edit(kept);
            self.bytes += kept.weight();
        }
    }

    fn remove(&mut self, task: TaskId) {
        if let Some(kept) = self.tasks.remove(&task) {
            self.bytes -= kept.weight();
            self.keys.remove(kept.record.key.as_ref(), task);
        }
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
mod tests;
