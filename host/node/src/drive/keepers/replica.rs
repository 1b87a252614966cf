//! What this keeper has applied of the log: the kept tasks, in memory, and snapshots of them on the disk.

use super::group::{Group, LogEntry, LogId, SnapshotMeta, StorageError, StorageIoError, StoredMembership};
use crate::drive::cbor::{read, read_apart, write};
use crate::services::blocking;
use bytes::Bytes;
use karman_store::Store;
use karman_tasks::{Effect, KeptError, KeptState};
use karman_types::TaskError;
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{AnyError, EntryPayload, OptionalSend, RaftSnapshotBuilder};
use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

const SNAPSHOT: &str = "snapshot";
/// More tasks than any configuration allows: the last bound, the same on every keeper.
const MOST_KEPT: usize = 1_000_000;

/// The kept tasks as far as this keeper knows them. Cheap to clone.
#[derive(Clone)]
pub(super) struct Replica {
    state: Arc<RwLock<State>>,
    store: Store,
    effects: mpsc::UnboundedSender<Effect>,
    applied: watch::Sender<u64>,
}

struct State {
    kept: KeptState,
    applied: Option<LogId>,
    membership: StoredMembership,
}

/// A snapshot as it is on the disk.
#[derive(Deserialize, Serialize)]
struct Record {
    meta: SnapshotMeta,
    data: Bytes,
}

impl Replica {
    /// As the last snapshot has it. What was applied after that is in the log, and comes again. `effects` is told what entries did.
    ///
    /// # Errors
    /// When the snapshot does not read.
    pub(super) async fn open(
        store: Store,
        effects: mpsc::UnboundedSender<Effect>,
    ) -> Result<Self, TaskError> {
        let replica = Self {
            state: Arc::new(RwLock::new(State {
                kept: KeptState::new(MOST_KEPT),
                applied: None,
                membership: StoredMembership::default(),
            })),
            store,
            effects,
            applied: watch::Sender::new(0),
        };
        if let Some(Record { meta, data }) = replica.record().await? {
            replica.replace(&meta, read(SNAPSHOT, &data)?);
        }
        Ok(replica)
    }

    /// The kept tasks, to look at. Nothing is applied meanwhile.
    pub(super) fn kept(&self) -> MappedRwLockReadGuard<'_, KeptState> {
        RwLockReadGuard::map(self.state.read(), |state| &state.kept)
    }

    /// Changes whenever entries were applied.
    pub(super) fn applied(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    fn replace(&self, meta: &SnapshotMeta, kept: KeptState) {
        *self.state.write() = State {
            kept,
            applied: meta.last_log_id,
            membership: meta.last_membership.clone(),
        };
        self.applied.send_modify(|times| *times += 1);
    }

    async fn record(&self) -> Result<Option<Record>, TaskError> {
        let store = self.store.clone();
        blocking(move || store.keepers().get(SNAPSHOT).map_err(TaskError::from)).await
    }

    async fn write(&self, meta: SnapshotMeta, data: Bytes) -> Result<(), StorageError> {
        let (store, signature) = (self.store.clone(), meta.signature());
        let record = Record { meta, data };
        let written = blocking(move || store.keepers().put(SNAPSHOT, &record).map_err(TaskError::from)).await;
        Ok(
            written
                .map_err(|error| StorageIoError::write_snapshot(Some(signature), AnyError::new(&error)))?,
        )
    }
}

impl State {
    fn apply(&mut self, entry: LogEntry) -> Vec<Result<Effect, KeptError>> {
        self.applied = Some(entry.log_id);
        match entry.payload {
            EntryPayload::Blank => Vec::new(),
            EntryPayload::Normal(entries) => {
                entries.into_iter().map(|entry| self.kept.apply(entry)).collect()
            }
            EntryPayload::Membership(members) => {
                self.membership = StoredMembership::new(Some(entry.log_id), members);
                Vec::new()
            }
        }
    }
}

impl RaftStateMachine<Group> for Replica {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        let state = self.state.read();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Vec<Result<Effect, KeptError>>>, StorageError>
    where
        I: IntoIterator<Item = LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut state = self.state.write();
        let done: Vec<_> = entries.into_iter().map(|entry| state.apply(entry)).collect();
        drop(state);
        for effect in done.iter().flatten().flatten() {
            // Nobody listens while the node shuts down.
            let _ = self.effects.send(effect.clone());
        }
        self.applied.send_modify(|times| *times += 1);
        Ok(done)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Bytes>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, data: Box<Bytes>) -> Result<(), StorageError> {
        let unread = |error: &dyn std::fmt::Display| {
            StorageIoError::read_snapshot(Some(meta.signature()), AnyError::error(error))
        };
        let kept = read_apart(SNAPSHOT, (*data).clone()).await;
        let kept = kept.map_err(|error| unread(&error))?;
        self.write(meta.clone(), *data).await?;
        self.replace(meta, kept);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Group>>, StorageError> {
        let record = self.record().await;
        let record = record.map_err(|error| StorageIoError::read_snapshot(None, AnyError::new(&error)))?;
        Ok(record.map(|Record { meta, data }| Snapshot {
            meta,
            snapshot: Box::new(data),
        }))
    }
}

impl RaftSnapshotBuilder<Group> for Replica {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Group>, StorageError> {
        let replica = self.clone();
        let built = blocking(move || {
            // Inputs and results are shared, not copied. Who applies an entry meanwhile waits on a thread of the network.
            let (kept, applied, membership) = {
                let state = replica.state.read();
                (state.kept.clone(), state.applied, state.membership.clone())
            };
            let data = write(&kept)?;
            let index = applied.map_or(0, |id| id.index);
            let meta = SnapshotMeta {
                last_log_id: applied,
                last_membership: membership,
                snapshot_id: format!("{index}-{:016x}", fastrand::u64(..)),
            };
            Ok((meta, data))
        });
        let built = built.await;
        let (meta, data) =
            built.map_err(|error| StorageIoError::read_state_machine(AnyError::new(&error)))?;
        self.write(meta.clone(), data.clone()).await?;
        Ok(Snapshot {
            meta,
            snapshot: Box::new(data),
        })
    }
}
