//! What was sent for tasks that go by bundle: one row on the disk for each, until the task has ended.
//!
//! Memory is what the node acts by; the disk is what it knows after a restart. Whoever only asks never waits for the disk.

use crate::services::store_error;
use bytes::Bytes;
use karman_store::{BundleState, Store};
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
    /// When the last bundle that was sent for it expires.
    until_ms: u64,
}

struct Known {
    trip: Trip,
    answered: bool,
    told: Arc<Notify>,
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
    /// What was away when the node was last stopped, of tasks that have not ended. Of kept tasks the keepers will tell.
    ///
    /// # Errors
    /// What the disk refuses.
    pub(super) fn open(
        store: Store,
        is_open: impl Fn(TaskId) -> bool,
        now_ms: u64,
    ) -> Result<Self, TaskError> {
        let ledger = Self {
            store,
            known: Mutex::default(),
            writing: Mutex::default(),
        };
        for row in ledger.store.mesh().names(ROWS).map_err(store_error)? {
            let task: Option<TaskId> = row[ROWS.len()..].parse().ok();
            let trip: Option<Trip> = ledger.store.mesh().get(&row).unwrap_or_default();
            match task.zip(trip) {
                Some((task, trip)) if trip.until_ms > now_ms && (trip.kept || is_open(task)) => {
                    ledger.take_up(task, trip)?;
                }
                Some((task, trip)) => ledger.erase(task, trip.sent)?,
                None => {
                    tracing::warn!(row, "what was sent for a task does not read, and is forgotten");
                    ledger.store.mesh().remove(&[&row]).map_err(store_error)?;
                }
            }
        }
        // What was answered to nobody.
        for answer in ledger.store.mesh().names(ANSWERS).map_err(store_error)? {
            let task: Option<TaskId> = answer[ANSWERS.len()..].parse().ok();
            if !task.is_some_and(|task| ledger.known.lock().get(&task).is_some_and(|known| known.answered)) {
                ledger.store.mesh().remove(&[&answer]).map_err(store_error)?;
            }
        }
        Ok(ledger)
    }

    fn take_up(&self, task: TaskId, mut trip: Trip) -> Result<(), TaskError> {
        let answered = !self
            .store
            .mesh()
            .names(&answer_of(task))
            .map_err(store_error)?
            .is_empty();
        if let Some(sent) = trip.sent {
            let bundle = self.store.bundles().get(&sent.bundle).map_err(store_error)?;
            // It was written down, and then there was no room for it, or no power; or it was called back.
            let gone = bundle.is_none_or(|bundle| bundle.state == BundleState::Expired);
            trip.sent = Some(sent).filter(|_| answered || !gone);
        }
        let answered = answered && trip.sent.is_some();
        let told = Arc::default();
        self.known.lock().insert(task, Known { trip, answered, told });
        Ok(())
    }

    /// Whether something was sent for the task.
    pub(super) fn knows(&self, task: TaskId) -> bool {
        self.known.lock().contains_key(&task)
    }

    /// The bundle of the task whose answer is here or may still come.
    pub(super) fn sent(&self, task: TaskId, now_ms: u64) -> Option<Sent> {
        let known = self.known.lock();
        let known = known.get(&task)?;
        known
            .trip
            .sent
            .filter(|sent| known.answered || sent.expires_ms > now_ms)
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
        let known = self.known.lock();
        let away = known
            .values()
            .filter(|known| known.answered || known.trip.until_ms > now_ms);
        away.count() < MOST_AWAY
    }

    /// The tasks whose bundles are not answered: what they are found by, and the bundle.
    pub(super) fn unanswered(&self) -> Vec<(TaskId, Arc<str>, Digest)> {
        let known = self.known.lock();
        let waits = known.iter().filter(|(_, known)| !known.answered);
        waits
            .filter_map(|(task, known)| Some((*task, known.trip.name.clone(), known.trip.sent?.bundle)))
            .collect()
    }

    /// Writes down that a bundle is about to be sent for a task: before it is, so that none is ever sent twice.
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
        let until_ms = sent.expires_ms;
        let sent = Some(sent);
        let trip = Trip {
            name,
            there,
            kept,
            sent,
            needs,
            until_ms,
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
        let waits =
            |known: &Known| !known.answered && known.trip.sent.is_some_and(|sent| sent.bundle == *bundle);
        let task = {
            let known = self.known.lock();
            known
                .iter()
                .find(|(_, known)| waits(known))
                .map(|(task, _)| *task)
        };
        let Some(task) = task else { return Ok(false) };
        let bytes = serde_bytes::Bytes::new(reply);
        self.store
            .mesh()
            .put(&answer_of(task), &bytes)
            .map_err(store_error)?;
        if let Some(known) = self.known.lock().get_mut(&task) {
            known.answered = true;
            known.told.notify_one();
        }
        Ok(true)
    }

    /// What was answered for a task.
    ///
    /// # Errors
    /// What the disk refuses; `internal` where there is nothing.
    pub(super) fn answer_for(&self, task: TaskId) -> Result<ByteBuf, TaskError> {
        let found = self.store.mesh().get(&answer_of(task)).map_err(store_error)?;
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
        if !self.store.bundles().withdraw(bundle).map_err(store_error)? {
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
        if answered {
            self.store
                .mesh()
                .remove(&[&answer_of(task)])
                .map_err(store_error)?;
        }
        self.withdraw(over)
    }

    fn write(&self, task: TaskId, trip: &Trip) -> Result<(), TaskError> {
        self.store.mesh().put(&row_of(task), trip).map_err(store_error)
    }

    fn erase(&self, task: TaskId, sent: Option<Sent>) -> Result<(), TaskError> {
        let rows = [row_of(task), answer_of(task)];
        self.store
            .mesh()
            .remove(&rows.each_ref().map(String::as_str))
            .map_err(store_error)?;
        self.withdraw(sent)
    }

    fn withdraw(&self, sent: Option<Sent>) -> Result<(), TaskError> {
        if let Some(sent) = sent {
            self.store.bundles().withdraw(&sent.bundle).map_err(store_error)?;
        }
        Ok(())
    }
}

fn row_of(task: TaskId) -> String {
    format!("{ROWS}{task}")
}

fn answer_of(task: TaskId) -> String {
    format!("{ANSWERS}{task}")
}
