//! The thread that writes tasks down. What comes while it waits for the disk is written together next time, so that one fsync
//! serves many tasks; another thread tells meanwhile what has become of what was written before.

use super::tasks::Inner;
use karman_store::{Store, StoreError};
use karman_tasks::{Ticket, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Writes that go into one transaction.
const MOST_TOGETHER: usize = 1024;
/// How long nothing is written until it is looked whether a disk that was full has room again.
const LOOK: Duration = Duration::from_secs(5);

/// The way to the disk. The threads end when it is dropped.
pub(super) struct Disk(Sender<(Ticket, Write)>);

impl Disk {
    /// Starts the threads; `tasks` is told what has become of each write.
    pub(super) fn start(store: Store, tasks: Weak<Inner>) -> Self {
        let (send, writes) = channel();
        let (tell, outcomes) = channel();
        start("karman-disk", move || write_down(&store, &writes, &tell));
        start("karman-written", move || tell_all(&outcomes, &tasks));
        Self(send)
    }

    /// Writes are carried out in the order of these calls.
    pub(super) fn write(&self, ticket: Ticket, write: Write) {
        let _ = self.0.send((ticket, write));
    }
}

/// What became of these writes.
type Outcome = (Vec<Ticket>, Result<(), String>);

fn start(name: &str, run: impl FnOnce() + Send + 'static) {
    if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(run) {
        // Without it no task is ever acknowledged, which is the truth.
        tracing::error!(%error, "tasks cannot be written down: no thread for it");
    }
}

fn tell_all(outcomes: &Receiver<Outcome>, tasks: &Weak<Inner>) {
    for (tickets, outcome) in outcomes {
        let Some(tasks) = tasks.upgrade() else { return };
        tasks.saved(tickets, outcome);
    }
}

fn write_down(store: &Store, writes: &Receiver<(Ticket, Write)>, tell: &Sender<Outcome>) {
    let mut fails = false;
    loop {
        let first = match writes.recv_timeout(LOOK) {
            Ok(first) => first,
            // While the node is not ready, nobody else may write.
            Err(RecvTimeoutError::Timeout) => {
                let _ = written(|| store.check());
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let more = writes.try_iter().take(MOST_TOGETHER - 1);
        let (tickets, writes): (Vec<Ticket>, Vec<Write>) = std::iter::once(first).chain(more).unzip();
        let outcome = written(|| store.tasks().write(&writes));
        match &outcome {
            // Whoever asks for one hears of it; the log says when that begins, and when it ends.
            Err(error) if !fails => tracing::error!(error, "tasks cannot be written down"),
            Ok(()) if fails => tracing::info!("tasks are written down again"),
            _ => {}
        }
        fails = outcome.is_err();
        if tell.send((tickets, outcome)).is_err() {
            return;
        }
    }
}

/// What became of a transaction. One that panics, which is a defect of the store, has failed like any other: without this thread nothing
/// would be written any more, and nobody told.
fn written(write: impl FnOnce() -> Result<(), StoreError>) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(write)) {
        Ok(written) => written.map_err(|error| error.to_string()),
        Err(_) => Err("the store has failed in the host".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_panics_has_not_written() {
        assert_eq!(written(|| Ok(())), Ok(()));
        assert!(written(|| panic!("a defect")).is_err());
    }
}
