//! The keepers' log on this node's disk, as the consensus library wants it.

use super::group::{Group, Key, LogEntry, LogId, StorageError, StorageIoError, Vote};
use crate::drive::cbor::{read, write};
use crate::services::blocking;
use bytes::Bytes;
use karman_store::{Store, StoreError};
use karman_types::TaskError;
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, LogState, OptionalSend, RaftLogReader};
use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};
use tokio::sync::watch;

const VOTE: &str = "vote";
const PURGED: &str = "purged";
const ENTRY: &str = "entry of the log";
/// Bytes of entries that go to another keeper at once, unless a single one has more.
const TOGETHER: u64 = 1 << 20;

/// The log. Whatever is acknowledged is fsynced.
#[derive(Clone)]
pub(super) struct Log {
    store: Store,
    me: Key,
    bytes: watch::Sender<u64>,
}

impl Log {
    pub(super) fn new(store: Store, me: Key) -> Self {
        let bytes = watch::Sender::new(0);
        Self { store, me, bytes }
    }

    /// How many bytes its entries have, as of its last change; 0 before the first.
    pub(super) fn bytes(&self) -> watch::Receiver<u64> {
        self.bytes.subscribe()
    }

    /// Changes it, and tells how long it is then.
    async fn change(
        &self,
        step: impl FnOnce(&Store) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(), TaskError> {
        let changed = self.with(move |store| {
            step(store)?;
            store.keepers().log_bytes()
        });
        self.bytes.send_replace(changed.await?);
        Ok(())
    }

    async fn with<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, TaskError> {
        let store = self.store.clone();
        blocking(move || step(&store).map_err(TaskError::from)).await
    }

    async fn read(&self, range: (Bound<u64>, Bound<u64>), most: u64) -> Result<Vec<LogEntry>, StorageError> {
        let found = self.with(move |store| store.keepers().read(range, most)).await;
        let entries = found.and_then(|found| found.iter().map(|entry| read(ENTRY, entry)).collect());
        Ok(entries.map_err(|error| StorageIoError::read_logs(AnyError::new(&error)))?)
    }
}

impl RaftLogReader<Group> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<LogEntry>, StorageError> {
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        self.read(range, u64::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<LogEntry>, StorageError> {
        self.read((Bound::Included(start), Bound::Excluded(end)), TOGETHER)
            .await
    }
}

impl RaftLogStorage<Group> for Log {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Group>, StorageError> {
        let found = self.with(|store| Ok((store.keepers().get(PURGED)?, store.keepers().last()?)));
        let found = found.await.and_then(|(purged, last)| {
            let last: Option<Bytes> = last;
            Ok((purged, last.map(|entry| read(ENTRY, &entry)).transpose()?))
        });
        let (purged, last): (Option<LogId>, Option<LogEntry>) =
            found.map_err(|error| StorageIoError::read_logs(AnyError::new(&error)))?;
        Ok(LogState {
            last_purged_log_id: purged,
            last_log_id: last.map(|entry| entry.log_id).or(purged),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let vote = *vote;
        let saved = self.with(move |store| store.keepers().put(VOTE, &vote)).await;
        Ok(saved.map_err(|error| StorageIoError::write_vote(AnyError::new(&error)))?)
    }

    /// A keeper that led when it was stopped does not lead again at once: it may have been stopped before it had written that it
    /// does, and the library cannot go on from there. It has voted for itself, and may be elected anew.
    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        let found = self.with(|store| store.keepers().get(VOTE)).await;
        let found: Option<Vote> = found.map_err(|error| StorageIoError::read_vote(AnyError::new(&error)))?;
        Ok(found.map(|vote| match vote.leader_id().voted_for() {
            Some(me) if me == self.me => Vote::new(vote.leader_id().term, me),
            _ => vote,
        }))
    }

    async fn append<I>(&mut self, entries: I, flushed: LogFlushed<Group>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let encoded: Result<Vec<(u64, Bytes)>, TaskError> = entries
            .into_iter()
            .map(|entry| Ok((entry.log_id.index, write(&entry)?)))
            .collect();
        let written = match encoded {
            Ok(encoded) => self.change(move |store| store.keepers().append(&encoded)).await,
            Err(error) => Err(error),
        };
        flushed.log_io_completed(written.map_err(std::io::Error::other));
        Ok(())
    }

    async fn truncate(&mut self, from: LogId) -> Result<(), StorageError> {
        let cut = self
            .change(move |store| store.keepers().truncate(from.index))
            .await;
        Ok(cut.map_err(|error| StorageIoError::write_logs(AnyError::new(&error)))?)
    }

    async fn purge(&mut self, through: LogId) -> Result<(), StorageError> {
        let cut = self.change(move |store| store.keepers().purge(through.index, PURGED, &through));
        Ok(cut
            .await
            .map_err(|error| StorageIoError::write_logs(AnyError::new(&error)))?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::replica::Replica;
    use super::*;
    use openraft::StorageError;
    use openraft::testing::{StoreBuilder, Suite};
    use tempfile::TempDir;
    use tokio::sync::mpsc;

    impl From<u64> for Key {
        fn from(number: u64) -> Self {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_be_bytes());
            Self(key)
        }
    }

    struct Folder;

    impl StoreBuilder<Group, Log, Replica, TempDir> for Folder {
        async fn build(&self) -> Result<(TempDir, Log, Replica), StorageError<Key>> {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::open(folder.path()).unwrap();
            let (effects, _) = mpsc::unbounded_channel();
            let replica = Replica::open(store.clone(), effects).await.unwrap();
            // Nobody whom the library's tests know.
            let me = Key::from(u64::MAX);
            Ok((folder, Log::new(store, me), replica))
        }
    }

    #[tokio::test]
    async fn who_led_before_it_was_stopped_is_elected_anew() {
        let (_folder, mut log, _) = Folder.build().await.unwrap();
        log.save_vote(&Vote::new_committed(7, log.me)).await.unwrap();
        assert_eq!(log.read_vote().await.unwrap(), Some(Vote::new(7, log.me)));
        let other = Vote::new_committed(7, Key::from(1));
        log.save_vote(&other).await.unwrap();
        assert_eq!(log.read_vote().await.unwrap(), Some(other));
    }

    #[test]
    fn log_and_replica_are_what_the_library_expects() {
        Suite::test_all(Folder).unwrap();
    }
}
