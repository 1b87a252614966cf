//! A run as the rest of the node sees it: what has happened, and a word to it.

use super::news::Life;
use super::record::FedStatus;
use karman_fed::Event;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

/// The outside of a run that is driven.
#[derive(Clone)]
pub(super) struct Handle {
    inbox: UnboundedSender<Event>,
    seen: Arc<Mutex<FedStatus>>,
    /// The number of events, as it grows.
    events: watch::Receiver<usize>,
    life: Life,
}

/// The other end of a [`Handle`]: what the run shows of itself.
pub(super) struct Shown {
    seen: Arc<Mutex<FedStatus>>,
    events: watch::Sender<usize>,
}

/// A handle of a run that stands like this, and what changes it.
pub(super) fn handle(inbox: UnboundedSender<Event>, status: FedStatus) -> (Handle, Shown) {
    let (events, watched) = watch::channel(status.events);
    let seen = Arc::new(Mutex::new(status));
    let handle = Handle {
        inbox,
        seen: seen.clone(),
        events: watched,
        life: Life::begins(),
    };
    (handle, Shown { seen, events })
}

impl Shown {
    /// Changes what is seen; whoever waits for more events hears of them.
    pub(super) fn change(&self, change: impl FnOnce(&mut FedStatus)) {
        let mut seen = self.seen.lock();
        change(&mut seen);
        let (count, running) = (seen.events, seen.running);
        drop(seen);
        // The end is news also when it brings no event.
        self.events
            .send_if_modified(|events| std::mem::replace(events, count) != count || !running);
    }
}

impl Handle {
    pub(super) fn tell(&self, event: Event) {
        // A run that is over hears nothing any more.
        let _ = self.inbox.send(event);
    }

    /// How far it is, with its events after so many.
    pub(super) fn status(&self, after: usize) -> FedStatus {
        self.seen.lock().since(after)
    }

    /// Something of it, with all of its events that are kept.
    pub(super) fn told<T>(&self, tell: impl FnOnce(&FedStatus, Life) -> T) -> T {
        tell(&self.seen.lock(), self.life)
    }

    pub(super) fn is_running(&self) -> bool {
        self.seen.lock().running
    }

    /// Waits until there are more events than so many, or it is over.
    pub(super) async fn more_than(&mut self, events: usize) {
        while *self.events.borrow_and_update() <= events && self.is_running() {
            if self.events.changed().await.is_err() {
                return;
            }
        }
    }
}
