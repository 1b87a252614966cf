//! The leader writes together what comes while it waits for the others, so that one round among the keepers serves many.

use super::group::Raft;
use karman_tasks::{Effect, Entry, KeptError};
use karman_types::TaskError;
use tokio::sync::{mpsc, oneshot};

/// Entries that wait to be written.
const WAITING: usize = 4096;
/// Entries, and bytes of them, that are written at once.
const TOGETHER: usize = 256;
const BYTES_TOGETHER: u64 = 512 << 10;

type Waiting = (Entry, oneshot::Sender<Written>);
/// What an entry did, or that nobody knows.
pub(super) type Written = Result<Result<Effect, KeptError>, TaskError>;

/// The way into the log.
pub(super) struct Writer(mpsc::Sender<Waiting>);

impl Writer {
    pub(super) fn start(raft: Raft) -> Self {
        let (send, waiting) = mpsc::channel(WAITING);
        tokio::spawn(write(raft, waiting));
        Self(send)
    }

    /// Writes an entry, and answers when a majority has it.
    ///
    /// # Errors
    /// `unavailable` when this keeper does not lead any more: nobody knows then whether the entry will be committed.
    pub(super) async fn write(&self, entry: Entry) -> Written {
        let (tell, told) = oneshot::channel();
        let stopped = || TaskError::unavailable("this node is a keeper no more");
        self.0.send((entry, tell)).await.map_err(|_| stopped())?;
        told.await.unwrap_or_else(|_| Err(stopped()))
    }
}

async fn write(raft: Raft, mut waiting: mpsc::Receiver<Waiting>) {
    let mut next = None;
    loop {
        let first = match next.take() {
            Some(first) => first,
            None => match waiting.recv().await {
                Some(first) => first,
                None => return,
            },
        };
        let (mut entries, mut callers, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut more = Some(first);
        while let Some((entry, caller)) = more {
            bytes += entry.bytes();
            if !entries.is_empty() && (bytes > BYTES_TOGETHER || entries.len() == TOGETHER) {
                next = Some((entry, caller));
                break;
            }
            // Who does not wait any more asks again.
            if !caller.is_closed() {
                entries.push(entry);
                callers.push(caller);
            }
            more = waiting.try_recv().ok();
        }
        if entries.is_empty() {
            continue;
        }
        match raft.client_write(entries).await {
            Ok(written) => {
                for (caller, effect) in callers.into_iter().zip(written.data) {
                    let _ = caller.send(Ok(effect));
                }
            }
            Err(error) => {
                let error = TaskError::unavailable(format!("the keepers' log: {error}"));
                for caller in callers {
                    let _ = caller.send(Err(error.clone()));
                }
            }
        }
    }
}
