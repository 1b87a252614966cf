//! The names by which the consensus library knows ours.

use bytes::Bytes;
use karman_mesh::PeerId;
use karman_tasks::{Effect, Entry, KeptError};
use karman_types::NodeId;
use openraft::EmptyNode;
use serde::{Deserialize, Serialize};
use std::fmt;

openraft::declare_raft_types!(
    /// What the keepers agree on: entries, some at once, and what became of each.
    pub(crate) Group:
        D = Vec<Entry>,
        R = Vec<Result<Effect, KeptError>>,
        NodeId = Key,
        Node = EmptyNode,
        SnapshotData = Bytes,
);

pub(super) type Raft = openraft::Raft<Group>;
pub(super) type LogEntry = openraft::Entry<Group>;
pub(super) type LogId = openraft::LogId<Key>;
pub(super) type Vote = openraft::Vote<Key>;
pub(super) type StoredMembership = openraft::StoredMembership<Key, EmptyNode>;
pub(super) type SnapshotMeta = openraft::SnapshotMeta<Key, EmptyNode>;
pub(super) type StorageError = openraft::StorageError<Key>;
pub(super) type StorageIoError = openraft::StorageIOError<Key>;

/// A keeper, by its public key.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Key(#[serde(with = "serde_bytes")] pub(super) [u8; 32]);

impl Key {
    pub(super) fn node(&self) -> NodeId {
        NodeId::of_key(&self.0)
    }

    pub(super) fn peer(&self) -> Option<PeerId> {
        karman_mesh::peer_of(&self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node().fmt(f)
    }
}
