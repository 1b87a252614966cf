//! The keepers' messages among themselves, over the mesh.

use super::group::{Group, Key, Vote};
use super::wire::{Appended, Installed, Message, Voted, send};
use karman_mesh::Mesh;
use karman_types::TaskError;
use openraft::error::{Fatal, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{AppendEntriesRequest, VoteRequest};
use openraft::{EmptyNode, OptionalSend, RaftNetwork, RaftNetworkFactory, Snapshot};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// The way to the other keepers.
pub(super) struct Network {
    pub(super) mesh: Mesh,
    /// How long one that did not answer is left alone.
    pub(super) pause: Duration,
}

/// The way to one.
pub(super) struct Line {
    to: Key,
    mesh: Mesh,
    pause: Duration,
}

impl RaftNetworkFactory<Group> for Network {
    type Network = Line;

    async fn new_client(&mut self, target: Key, _: &EmptyNode) -> Line {
        Line {
            to: target,
            mesh: self.mesh.clone(),
            pause: self.pause,
        }
    }
}

impl Line {
    async fn send<T: DeserializeOwned>(&self, message: &Message) -> Result<T, Unreachable> {
        let sent = async {
            let peer = self
                .to
                .peer()
                .ok_or_else(|| TaskError::invalid("no key of a node"))?;
            send(&self.mesh, peer, message).await
        };
        sent.await.map_err(|error| Unreachable::new(&error))
    }
}

type Sent<T> = Result<T, RPCError<Key, EmptyNode, RaftError<Key>>>;

impl RaftNetwork<Group> for Line {
    async fn append_entries(&mut self, rpc: AppendEntriesRequest<Group>, _: RPCOption) -> Sent<Appended> {
        Ok(self.send(&Message::Append(rpc)).await?)
    }

    async fn vote(&mut self, rpc: VoteRequest<Key>, _: RPCOption) -> Sent<Voted> {
        Ok(self.send(&Message::Vote(rpc)).await?)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<Group>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<Installed, StreamingError<Group, Fatal<Key>>> {
        let message = Message::Snapshot(vote, snapshot.meta, *snapshot.snapshot);
        tokio::select! {
            closed = cancel => Err(closed.into()),
            sent = self.send(&message) => Ok(sent?),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(self.pause))
    }
}
