//! What is taken up again when the node is started.

use super::{ANSWERS, Known, Ledger, ROWS, Trip, answer_of};
use karman_store::{BundleState, Store, StoreError};
use karman_types::{Digest, TaskError, TaskId};
use parking_lot::Mutex;
use std::sync::Arc;

impl Ledger {
    /// What was away when the node was last stopped, of tasks that have not ended. Of kept tasks the keepers will tell.
    ///
    /// # Errors
    /// What the disk refuses.
    pub(in crate::drive::away) fn open(
        store: Store,
        is_open: impl Fn(TaskId) -> bool,
        now_ms: u64,
    ) -> Result<Self, TaskError> {
        let ledger = Self {
            store,
            known: Mutex::default(),
            writing: Mutex::default(),
        };
        let store = &ledger.store;
        for row in store.mesh().names(ROWS)? {
            let task: Option<TaskId> = row[ROWS.len()..].parse().ok();
            let trip = match store.mesh().get::<Trip>(&row) {
                Err(StoreError::Record { .. }) => None,
                read => read?,
            };
            match task.zip(trip) {
                Some((task, trip)) => ledger.take_up((task, is_open(task)), trip, now_ms)?,
                None => {
                    tracing::warn!(row, "what was sent for a task does not read, and is forgotten");
                    store.mesh().remove(&[&row])?;
                }
            }
        }
        // What was answered to nobody.
        for answer in store.mesh().names(ANSWERS)? {
            let bundle: Option<Digest> = answer[ANSWERS.len()..].parse().ok();
            let known = ledger.known.lock();
            let waited_for = bundle.is_some_and(|bundle| {
                known
                    .values()
                    .any(|known| known.answered && known.is_for(&bundle))
            });
            drop(known);
            if !waited_for {
                store.mesh().remove(&[&answer])?;
            }
        }
        Ok(ledger)
    }

    /// Goes on waiting for what was sent, where somebody here still does.
    fn take_up(&self, (task, is_open): (TaskId, bool), mut trip: Trip, now_ms: u64) -> Result<(), TaskError> {
        let (sent, mut answered) = (trip.sent, false);
        if let Some(sent) = sent {
            let answer = self.store.mesh().names(&answer_of(&sent.bundle));
            answered = !answer?.is_empty();
            let bundle = self.store.bundles().get(&sent.bundle)?;
            // It was written down, and then there was no room for it, or no power; or it was called back.
            let gone = bundle.is_none_or(|bundle| bundle.state == BundleState::Expired);
            trip.sent = Some(sent).filter(|_| answered || !gone);
        }
        let told = Arc::default();
        let known = Known { trip, answered, told };
        // Who owns a kept task, the keepers say later.
        let waits = match known.trip.kept {
            true => known.sent(now_ms).is_some(),
            false => is_open,
        };
        match waits {
            true => drop(self.known.lock().insert(task, known)),
            false => self.erase(task, sent)?,
        }
        Ok(())
    }
}
