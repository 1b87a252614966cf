//! How a node leaves. It takes back what it has announced, as far as it is connected with those who know of it: in a small mesh these are
//! all. Others name it for up to a day to those who search, who ask it in vain.

use crate::mesh::{Inner, Mesh};
use crate::swarm::Order;
use futures::StreamExt;
use futures::future::join_all;
use libp2p::StreamProtocol;
use libp2p_stream::IncomingStreams;
use std::collections::HashSet;
use std::sync::Weak;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// A stream of it says all that there is to say.
pub(crate) const FAREWELL: StreamProtocol = StreamProtocol::new("/karman/farewell/1");
/// How long the others may take to hear it.
const HEARD: Duration = Duration::from_millis(200);
/// How long leaving takes.
const GOODBYE: Duration = Duration::from_millis(500);

impl Mesh {
    /// Leaves: ends every connection, and waits until the others have been told, for half a second at most. Nothing can be asked of
    /// the mesh any more.
    pub async fn leave(&self) {
        if let Some(plane) = &self.0.plane {
            plane.close();
        }
        let (tell, gone) = oneshot::channel();
        let leaves = async {
            self.take_back(HEARD).await;
            let _ = self.0.orders.send(Order::Leave(tell)).await;
            gone.await
        };
        let _ = timeout(GOODBYE, leaves).await;
        // The process may end before the last handle to the mesh is dropped.
        let standing = self.standing().clone();
        let _ = spawn_blocking(move || standing.acquaintances().write_down()).await;
    }

    /// Announces nothing any more, and has those forget what it has announced that it is connected with, if they hear it in this time.
    async fn take_back(&self, heard: Duration) {
        let _ = self.0.orders.send(Order::Announce(HashSet::new())).await;
        let there = self.0.peers.there().into_iter();
        join_all(there.map(|peer| self.stream_within(peer, FAREWELL, heard))).await;
    }
}

/// Forgets what those have announced who leave. Each takes back its own: the connection proves who it is.
pub(crate) async fn hear_farewells(mesh: Weak<Inner>, mut leaving: IncomingStreams) {
    while let Some((peer, _)) = leaving.next().await {
        let Some(inner) = mesh.upgrade() else { return };
        let _ = inner.orders.send(Order::Forget(peer)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::RootKey;
    use crate::offer::{TIERS, task_key};
    use crate::support::{addresses, invite, start};
    use std::time::Instant;

    const SOON: Duration = Duration::from_secs(30);

    #[tokio::test(flavor = "multi_thread")]
    async fn what_a_node_has_announced_is_forgotten_when_it_leaves() {
        let root = RootKey::generate().unwrap();
        let first = start(None, Some(&root));
        let leaves = start(Some(invite(&root, &addresses(&first).await)), None);
        leaves.mesh.admitted(SOON).await.unwrap();
        leaves.mesh.announce().await;
        let peer = leaves.mesh.me();
        let (started, keys) = (Instant::now(), || TIERS.map(|tier| task_key("vision/echo", tier)));
        while !first.mesh.find(keys()).await.contains(&peer) {
            assert!(started.elapsed() < SOON, "nobody knows what it offers");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // What is on its way still comes after the first farewell.
        while first.mesh.find(keys()).await.contains(&peer) {
            assert!(started.elapsed() < 2 * SOON, "it is named though it has gone");
            leaves.mesh.take_back(SOON).await;
        }
        leaves.mesh.leave().await;
    }
}
