//! What was sent for tasks that go by bundle: one row on the disk for each, until the task has ended.
//!
//! Memory is what the node acts by; the disk is what it knows after a restart. Reading never waits for the disk.

mod open;

use bytes::Bytes;
use karman_store::Store;
use karman_tasks::{Needs, Place};
use karman_types::{Digest, NodeId, TaskError, TaskId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Tasks that are away at once.
pub(super) const MOST_AWAY: usize = 1_000;
const ROWS: &str = "away-task/";
const ANSWERS: &str = "away-answer/";

/// A bundle whose answer is waited for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Sent {
    pub(super) to: NodeId,
    pub(super) bundle: Digest,
    pub(super) expires_ms: u64,
}

/// What is known of a task that goes by bundle.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Trip {
    /// What it is found by.
    pub(super) name: Arc<str>,
    /// The name under which the other node runs it.
    pub(super) there: String,
    /// Whether the keepers have the task, and not this disk.
    pub(super) kept: bool,
    pub(super) sent: Option<Sent>,
    needs: Needs,
}

struct Known {
    trip: Trip,
    answered: bool,
    told: Arc<Notify>,
}

impl Known {
    /// The bundle whose answer is here or may still come.
    fn sent(&self, now_ms: u64) -> Option<Sent> {
        let sent = self.trip.sent;
        sent.filter(|sent| self.answered || sent.expires_ms > now_ms)
    }

    /// Whether the answer to this bundle is what is waited for, or was.
    fn is_for(&self, bundle: &Digest) -> bool {
        self.trip.sent.is_some_and(|sent| sent.bundle == *bundle)
    }
}

/// How it stands with a bundle.
pub(super) enum Stands {
    /// Its answer is on the disk.
    Answered,
    /// It has time left until it expires; something may be told of it before.
    Waits(Duration, Arc<Notify>),
    /// Nobody waits for its answer any more.
    Gone,
}

pub(super) struct Ledger {
    store: Store,
    known: Mutex<BTreeMap<TaskId, Known>>,
    /// Held while the disk follows, so that it goes through the same states in the same order.
    writing: Mutex<()>,
}

impl Ledger {
    /// Whether something was sent for the task.
    pub(super) fn knows(&self, task: TaskId) -> bool {
        self.known.lock().contains_key(&task)
    }

    /// The bundle of the task whose answer is here or may still come.
    pub(super) fn sent(&self, task: TaskId, now_ms: u64) -> Option<Sent> {
        self.known.lock().get(&task)?.sent(now_ms)
    }

    /// Every task of which something is known.
    pub(super) fn tasks(&self) -> Vec<TaskId> {
        self.known.lock().keys().copied().collect()
    }

    /// Where the task was sent, and what of it runs there.
    pub(super) fn there(&self, task: TaskId) -> Option<String> {
        Some(self.known.lock().get(&task)?.trip.there.clone())
    }

    /// How it stands with the bundle of the task.
    pub(super) fn stands(&self, task: TaskId, bundle: &Digest, now_ms: u64) -> Stands {
        let all = self.known.lock();
        let known = all.get(&task);
        match known.and_then(|known| Some((known, known.trip.sent?))) {
            Some((known, sent)) if sent.bundle == *bundle => match known.answered {
                true => Stands::Answered,
                false => {
                    let left = Duration::from_millis(sent.expires_ms.saturating_sub(now_ms));
                    Stands::Waits(left, known.told.clone())
                }
            },
            _ => Stands::Gone,
        }
    }

    /// The keys that the task has asked for.
    pub(super) fn places(&self, task: TaskId) -> Vec<Place> {
        let known = self.known.lock();
        let needs = known.get(&task).map(|known| &known.trip.needs);
        needs
            .map(|needs| needs.places().iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Whether one more task may go away. Where none may it waits until others have come back.
    pub(super) fn has_room(&self, now_ms: u64) -> bool {
        self.away(now_ms) < MOST_AWAY
    }

    /// How many tasks are away: not those that were called back, nor those whose bundles are over.
    pub(super) fn away(&self, now_ms: u64) -> usize {
        let known = self.known.lock();
        let away = known.values().filter(|known| known.sent(now_ms).is_some());
        away.count()
    }

    /// The tasks whose bundles are not answered: what they are found by, and the bundle.
    pub(super) fn unanswered(&self) -> Vec<(TaskId, Arc<str>, Digest)> {
        let known = self.known.lock();
        let waits = known.iter().filter(|(_, known)| !known.answered);
        waits
            .filter_map(|(task, known)| Some((*task, known.trip.name.clone(), known.trip.sent?.bundle)))
            .collect()
    }

    /// Sends a bundle for a task. That it is sent is written down before `keep` puts it where it waits for its contact, so that none is
    /// ever sent twice; of a task that has ended meanwhile nothing stays.
    ///
    /// # Errors
    /// What the disk refuses, and `unavailable` where the task has ended; nothing is on its way then.
    pub(super) fn send(
        &self,
        task: TaskId,
        what: (Arc<str>, String, bool),
        sent: Sent,
        keep: impl FnOnce() -> Result<(), TaskError>,
        is_open: impl FnOnce() -> bool,
    ) -> Result<(), TaskError> {
        self.sends(task, what, sent)?;
        if let Err(error) = keep() {
            self.recall(task)?;
            return Err(error);
        }
        if is_open() {
            return Ok(());
        }
        self.forget(task)?;
        // It may have been forgotten before its bundle was there.
        self.withdraw(Some(sent))?;
        Err(TaskError::unavailable("the task has ended meanwhile"))
    }

    /// Writes down that a bundle is about to be sent for a task.
    ///
    /// # Errors
    /// What the disk refuses; nothing is written down then.
    pub(super) fn sends(
        &self,
        task: TaskId,
        (name, there, kept): (Arc<str>, String, bool),
        sent: Sent,
    ) -> Result<(), TaskError> {
        let _order = self.writing.lock();
        let before = self.known.lock().get(&task).map(|known| known.trip.clone());
        let needs = before.map(|trip| trip.needs).unwrap_or_default();
        let sent = Some(sent);
        let trip = Trip {
            name,
            there,
            kept,
            sent,
            needs,
        };
        self.write(task, &trip)?;
        let (answered, told) = (false, Arc::default());
        self.known.lock().insert(task, Known { trip, answered, told });
        Ok(())
    }

    /// Takes what is answered to a bundle, and wakes who waits for it. False where nobody does (any more).
    ///
    /// # Errors
    /// What the disk refuses.
    pub(super) fn answer(&self, bundle: &Digest, reply: &Bytes) -> Result<bool, TaskError> {
        let _order = self.writing.lock();
        let waits = |known: &Known| !known.answered && known.is_for(bundle);
        let task = {
            let known = self.known.lock();
            known
                .iter()
                .find(|(_, known)| waits(known))
                .map(|(task, _)| *task)
        };
        let Some(task) = task else { return Ok(false) };
        let bytes = serde_bytes::Bytes::new(reply);
        self.store.mesh().put(&answer_of(bundle), &bytes)?;
        if let Some(known) = self.known.lock().get_mut(&task) {
            known.answered = true;
            known.told.notify_one();
        }
        Ok(true)
    }

    /// What was answered to a bundle.
    ///
    /// # Errors
    /// What the disk refuses; `internal` where there is nothing.
    pub(super) fn answer_to(&self, bundle: &Digest) -> Result<ByteBuf, TaskError> {
        let found = self.store.mesh().get(&answer_of(bundle))?;
        found.ok_or_else(|| TaskError::internal("what was answered is not on the disk"))
    }

    /// Notes what an attempt asks for; the next bundle brings it all.
    ///
    /// # Errors
    /// `limit` when it asks for too much or too often, else what the disk refuses.
    pub(super) fn asks(&self, task: TaskId, places: Vec<Place>) -> Result<(), TaskError> {
        self.change(task, |trip| {
            trip.needs.add(places)?;
            Ok(trip.sent.take())
        })
    }

    /// Waits for the task's bundle no longer; one that has not left stays here. What it has asked for stays known.
    ///
    /// # Errors
    /// What the disk refuses.
    pub(super) fn recall(&self, task: TaskId) -> Result<(), TaskError> {
        let waits = self
            .known
            .lock()
            .get(&task)
            .is_some_and(|known| known.trip.sent.is_some());
        match waits {
            true => self.change(task, |trip| Ok(trip.sent.take())),
            false => Ok(()),
        }
    }

    /// The same after an attempt that has answered, and has to run again because what it had read has changed.
    ///
    /// # Errors
    /// What the disk refuses.
    pub(super) fn met(&self, task: TaskId) -> Result<(), TaskError> {
        self.change(task, |trip| {
            trip.needs.met();
            Ok(trip.sent.take())
        })
    }

    /// Recalls a bundle if it has not left yet; whether it had not.
    ///
    /// # Errors
    /// What the disk refuses.
    pub(super) fn call_back(&self, task: TaskId, bundle: &Digest) -> Result<bool, TaskError> {
        if !self.store.bundles().withdraw(bundle)? {
            return Ok(false);
        }
        self.change(task, |trip| Ok(trip.sent.take_if(|sent| sent.bundle == *bundle)))?;
        Ok(true)
    }

    /// The task has ended: nothing is known of it any more, and what has not left does not.
    ///
    /// # Errors
    /// What the disk refuses.
    pub(super) fn forget(&self, task: TaskId) -> Result<(), TaskError> {
        let _order = self.writing.lock();
        let Some(known) = self.known.lock().remove(&task) else {
            return Ok(());
        };
        known.told.notify_one();
        self.erase(task, known.trip.sent)
    }

    /// Changes what is known of a task, then the disk; what it says was sent is over.
    fn change(
        &self,
        task: TaskId,
        change: impl FnOnce(&mut Trip) -> Result<Option<Sent>, TaskError>,
    ) -> Result<(), TaskError> {
        let _order = self.writing.lock();
        let (over, trip, answered) = {
            let mut all = self.known.lock();
            let Some(known) = all.get_mut(&task) else {
                return Ok(());
            };
            let over = change(&mut known.trip)?;
            let answered = over.is_some() && std::mem::take(&mut known.answered);
            known.told.notify_one();
            (over, known.trip.clone(), answered)
        };
        self.write(task, &trip)?;
        if let Some(over) = over.filter(|_| answered) {
            let answer = answer_of(&over.bundle);
            self.store.mesh().remove(&[&answer])?;
        }
        self.withdraw(over)
    }

    fn write(&self, task: TaskId, trip: &Trip) -> Result<(), TaskError> {
        self.store
            .mesh()
            .put(&row_of(task), trip)
            .map_err(TaskError::from)
    }

    fn erase(&self, task: TaskId, sent: Option<Sent>) -> Result<(), TaskError> {
        let answer = sent.map(|sent| answer_of(&sent.bundle));
        let row = row_of(task);
        let rows: Vec<&str> = [&row].into_iter().chain(&answer).map(String::as_str).collect();
        self.store.mesh().remove(&rows)?;
        self.withdraw(sent)
    }

    fn withdraw(&self, sent: Option<Sent>) -> Result<(), TaskError> {
        if let Some(sent) = sent {
            self.store.bundles().withdraw(&sent.bundle)?;
        }
        Ok(())
    }
}

fn row_of(task: TaskId) -> String {
    format!("{ROWS}{task}")
}

fn answer_of(bundle: &Digest) -> String {
    format!("{ANSWERS}{bundle}")
}

#[cfg(test)]
mod tests;
