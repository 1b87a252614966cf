//! The log gives way to a snapshot after so many entries, by the library; and after so many bytes, by this: a few long entries take as
//! much room as many short ones.

use super::group::Raft;
use super::seat::Seat;
use crate::services::blocking;
use karman_store::Store;
use karman_types::TaskError;
use std::sync::Weak;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// The pause before a log is looked at again that is still too long: a snapshot takes a while, and so may the purge.
const PAUSE: Duration = Duration::from_secs(1);

/// Shortens the log of this seat whenever it has more than `most` bytes, as long as the seat is taken.
pub(super) async fn keep_short(seat: Weak<Seat>, mut bytes: watch::Receiver<u64>, most: u64) {
    while bytes.wait_for(|bytes| *bytes > most).await.is_ok() {
        let Some(seat) = seat.upgrade() else { return };
        if let Err(error) = seat.shorten().await {
            tracing::warn!(%error, "the keepers' log is too long");
        }
        drop(seat);
        sleep(PAUSE).await;
    }
}

/// Begins what is to be done next for the log to have no more than `most` bytes: entries that a snapshot has go, and where it has too
/// few, the next is made.
///
/// # Errors
/// When the store cannot be read, or the library has stopped.
pub(super) async fn shorten(raft: &Raft, store: &Store, most: u64) -> Result<(), TaskError> {
    let store = store.clone();
    let surplus = blocking(move || store.keepers().surplus(most).map_err(TaskError::from)).await?;
    let metrics = raft.metrics().borrow().clone();
    let [applied, snapshot, purged] =
        [metrics.last_applied, metrics.snapshot, metrics.purged].map(|id| id.map(|id| id.index));
    // What is not applied is in no snapshot yet.
    let Some(through) = surplus.min(applied) else {
        return Ok(());
    };
    let stopped =
        |error: &dyn std::fmt::Display| TaskError::unavailable(format!("the keepers' log: {error}"));
    if let Some(upto) = snapshot.map(|snapshot| snapshot.min(through))
        && Some(upto) > purged
    {
        let begun = raft.trigger().purge_log(upto).await;
        begun.map_err(|error| stopped(&error))?;
    }
    if snapshot < Some(through) {
        let begun = raft.trigger().snapshot().await;
        begun.map_err(|error| stopped(&error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::group::{Group, Key, Vote};
    use super::super::log::Log;
    use super::super::replica::Replica;
    use super::super::wire::{Appended, Installed, Voted};
    use super::*;
    use karman_tasks::{Entry, Epoch};
    use karman_types::TaskId;
    use openraft::error::{Fatal, RPCError, RaftError, ReplicationClosed, StreamingError};
    use openraft::network::RPCOption;
    use openraft::raft::{AppendEntriesRequest, VoteRequest};
    use openraft::{Config, EmptyNode, OptionalSend, RaftNetwork, RaftNetworkFactory, ServerState, Snapshot};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// The way to the other keepers of a keeper that is alone.
    struct Nowhere;

    type Sent<T> = Result<T, RPCError<Key, EmptyNode, RaftError<Key>>>;

    impl RaftNetworkFactory<Group> for Nowhere {
        type Network = Self;

        async fn new_client(&mut self, _: Key, _: &EmptyNode) -> Self {
            Self
        }
    }

    impl RaftNetwork<Group> for Nowhere {
        async fn append_entries(&mut self, _: AppendEntriesRequest<Group>, _: RPCOption) -> Sent<Appended> {
            unreachable!()
        }

        async fn vote(&mut self, _: VoteRequest<Key>, _: RPCOption) -> Sent<Voted> {
            unreachable!()
        }

        async fn full_snapshot(
            &mut self,
            _: Vote,
            _: Snapshot<Group>,
            _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
            _: RPCOption,
        ) -> Result<Installed, StreamingError<Group, Fatal<Key>>> {
            unreachable!()
        }
    }

    #[tokio::test]
    async fn a_log_of_few_long_entries_gives_way_to_a_snapshot() {
        const MOST: u64 = 4 << 10;
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let (effects, _) = mpsc::unbounded_channel();
        let replica = Replica::open(store.clone(), effects).await.unwrap();
        let me = Key::from(1);
        let log = Log::new(store.clone(), me);
        let mut bytes = log.bytes();
        let config = Arc::new(Config::default().validate().unwrap());
        let raft = Raft::new(me, config, Nowhere, log, replica).await.unwrap();
        raft.initialize(BTreeMap::from([(me, EmptyNode::default())]))
            .await
            .unwrap();
        let until = raft.wait(Some(PATIENCE));
        until.state(ServerState::Leader, "it leads").await.unwrap();
        let mut last = 0;
        for _ in 0..8 {
            let entry = Entry::Progress {
                task: TaskId::from_parts(0, 1),
                epoch: Epoch::FIRST,
                progress: vec![0; 1 << 10].into(),
            };
            last = raft.client_write(vec![entry]).await.unwrap().log_id.index;
        }
        until.applied_index(Some(last), "it is applied").await.unwrap();
        assert!(*bytes.borrow() > 8 << 10);
        // A log that is short enough is let be.
        shorten(&raft, &store, 1 << 20).await.unwrap();
        shorten(&raft, &store, MOST).await.unwrap();
        let made = |of: &openraft::RaftMetrics<Key, EmptyNode>| of.snapshot.is_some();
        let then = until.metrics(made, "a snapshot is made").await.unwrap();
        assert_eq!(then.purged, None);
        shorten(&raft, &store, MOST).await.unwrap();
        let short = timeout(PATIENCE, bytes.wait_for(|bytes| *bytes <= MOST)).await;
        let left = *short.unwrap().unwrap();
        assert!(left > MOST / 2, "only what is too much goes: {left}");
        raft.shutdown().await.unwrap();
    }
}
