//! The leader writes together what comes while it waits for the others, so that one round among the keepers serves many.

use super::group::Raft;
use karman_tasks::{Effect, Entry, KeptError};
use karman_types::TaskError;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

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
    /// What a majority does not have after this time is given up, so that the caller can ask again.
    pub(super) fn start(raft: Raft, patience: Duration) -> Self {
        let (send, waiting) = mpsc::channel(WAITING);
        tokio::spawn(write(raft, patience, waiting));
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

async fn write(raft: Raft, patience: Duration, mut waiting: mpsc::Receiver<Waiting>) {
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
        // An answer may never come: when this keeper has lost the lead meanwhile and has learnt the rest from a snapshot, nobody tells
        // what became of the entry.
        let written = timeout(patience, raft.client_write(entries)).await;
        let error = match written {
            Ok(Ok(written)) => {
                for (caller, effect) in callers.into_iter().zip(written.data) {
                    let _ = caller.send(Ok(effect));
                }
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no majority has it in time".into(),
        };
        let error = TaskError::unavailable(format!("the keepers' log: {error}"));
        for caller in callers {
            let _ = caller.send(Err(error.clone()));
        }
    }
}
