//! All nodes, those of a tier, and the node of an id: where they are, the [tree] of keys or a key of their own says.

use super::Provider;
use super::tree::{self, Branch};
use crate::calling::node_of;
use crate::gate::peer_of;
use crate::mesh::{Inner, Mesh};
use crate::offer::{TIERS, branch_key, node_key};
use crate::swarm::{Aim, MANY, Order, Seen};
use futures::future::join_all;
use karman_types::{Backoff, NodeId, NodeSelector, Offer, TaskError};
use libp2p::kad::RecordKey;
use libp2p::{Multiaddr, PeerId};
use std::collections::{HashMap, HashSet};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// How long a node waits before it looks again how many others are on its branches: they are many at once where a mesh is started, and change
/// little later on. Half of it is luck, so that nodes that are started together do not look together.
const LOOKS: Backoff = Backoff {
    first: Duration::from_secs(10),
    longest: Duration::from_secs(3600),
};
/// Nodes that are asked at once what they offer.
const ASKED: usize = 256;
/// How often it is looked whether there is room for more connections, and for how long a list waits for it at most: a node that very many
/// are connected with never has less company.
const ROOM: Duration = Duration::from_millis(250);
const ROOM_WITHIN: Duration = Duration::from_secs(5);

/// The room that one list needs for its connections.
#[derive(Default)]
struct Room {
    /// It was waited for in vain: so many have come to this node that there never is any.
    never: AtomicBool,
}

impl Mesh {
    /// Every node that announced itself, this one left out. That is a search under many keys, and all that are found are asked: in a mesh of
    /// thousands it takes minutes.
    pub async fn nodes(&self) -> Vec<Provider> {
        self.listed(|_| true, |_| true).await
    }

    /// The same of those that are named; no other is searched for or asked.
    pub async fn nodes_named(&self, by: &NodeSelector) -> Vec<Provider> {
        let leads = |branch: &Branch| by.may_match(branch.tier(), &branch.begins());
        let may_be = |node: NodeId| TIERS.into_iter().any(|tier| by.matches(node, tier));
        let mut nodes = self.listed(leads, may_be).await;
        nodes.retain(|node| by.matches(node.offer.node, node.offer.tier));
        nodes
    }

    async fn listed(
        &self,
        leads: impl Fn(&Branch) -> bool + Send,
        may_be: impl Fn(NodeId) -> bool + Send,
    ) -> Vec<Provider> {
        let room = Room::default();
        let search = async |branch: Branch| {
            self.wait_for(&room).await;
            self.seen(branch_key(&branch), Aim::List).await
        };
        let mut found = tree::list(TIERS.map(Branch::root), leads, search).await;
        found.extend(self.connected().into_iter().map(|there| (there, Vec::new())));
        found.remove(&self.0.me);
        found.retain(|peer, _| may_be(node_of(peer)));
        self.ask_some_at_a_time(found, &room).await
    }

    /// What these nodes offer, which may be thousands.
    async fn ask_some_at_a_time(
        &self,
        mut nodes: HashMap<PeerId, Vec<Multiaddr>>,
        room: &Room,
    ) -> Vec<Provider> {
        let mut said = Vec::new();
        let all: Vec<PeerId> = nodes.keys().copied().collect();
        for some in all.chunks(ASKED) {
            self.wait_for(room).await;
            let away = some.iter().filter(|node| !self.is_connected(node));
            let at: Vec<Multiaddr> = away.filter_map(|node| nodes.remove(node)).flatten().collect();
            self.come_to(at).await;
            let some = some.iter().copied().collect();
            said.extend(self.heard(some, |_: &Offer| true, false).await);
        }
        said
    }

    /// Dials these addresses. That is under way when this is done: who asked the nodes before would be told that nobody knows where they are.
    async fn come_to(&self, addresses: Vec<Multiaddr>) {
        if !addresses.is_empty() {
            let _ = self.0.orders.send(Order::Dial(addresses)).await;
            self.addresses().await;
        }
    }

    /// Waits until there are not so many connections that new ones are refused: those that nobody uses end.
    async fn wait_for(&self, room: &Room) {
        let waits = async {
            while self.0.peers.there().len() >= MANY {
                sleep(ROOM).await;
            }
        };
        if !room.never.load(Ordering::Relaxed) && timeout(ROOM_WITHIN, waits).await.is_err() {
            room.never.store(true, Ordering::Relaxed);
        }
    }

    /// Some nodes of each tier, as many as one search names, and all that are connected; of a mesh of a few that is everybody.
    pub async fn some_nodes(&self) -> Vec<Provider> {
        let searches = TIERS.map(|tier| self.seen(branch_key(&Branch::root(tier)), Aim::List));
        let seen = join_all(searches).await.into_iter().flat_map(|seen| seen.nodes);
        let mut nodes: HashMap<PeerId, Vec<Multiaddr>> = seen.collect();
        nodes.extend(self.connected().into_iter().map(|there| (there, Vec::new())));
        nodes.remove(&self.0.me);
        self.ask_some_at_a_time(nodes, &Room::default()).await
    }

    /// Whether there is a connection with the node of this id.
    pub fn is_there(&self, id: NodeId) -> bool {
        let met = self.0.peers.of_node(id);
        met.is_some_and(|peer| self.is_connected(&peer))
    }

    /// The node of this id, if this one has ever met it, or it is in reach. Whether it is where it was, and where it is if not, is
    /// found out when it is called.
    pub async fn node(&self, id: NodeId) -> Option<PeerId> {
        let here = self.0.peers.of_node(id);
        if let Some(met) = here.or_else(|| peer_of(&self.key_of(id)?)) {
            return Some(met);
        }
        // Anybody may announce itself under that key: no other node is dialled.
        let announced = self.seen(node_key(id), Aim::List).await.nodes;
        let (peer, at) = announced.into_iter().find(|(peer, _)| node_of(peer) == id)?;
        self.come_to(at).await;
        self.known(peer).await.map(|_| peer)
    }

    /// The same, where it has to be there.
    ///
    /// # Errors
    /// `unavailable` (field `node`) where this node has never met it, and it is not in reach.
    pub async fn peer(&self, id: NodeId) -> Result<PeerId, TaskError> {
        self.node(id).await.ok_or_else(|| {
            TaskError::unavailable(format!("node {} is not in reach", id.short()))
                .with_field("node")
                .with_hint("`karman mesh peers` lists whom this node has met, and when")
        })
    }

    /// Who announced one of these keys; all of them are met.
    pub(crate) async fn find(&self, keys: impl IntoIterator<Item = RecordKey>) -> HashSet<PeerId> {
        let searches = keys.into_iter().map(|key| self.seen(key, Aim::All));
        let seen = join_all(searches).await;
        seen.into_iter().flat_map(|seen| seen.nodes.into_keys()).collect()
    }

    /// What a search of the DHT sees under this key.
    pub(crate) async fn seen(&self, key: RecordKey, aim: Aim) -> Seen {
        let (tell, told) = oneshot::channel();
        let _ = self.0.orders.send(Order::Find(key, aim, tell)).await;
        told.await.unwrap_or_default()
    }

    /// Looks how many others are on the branches of this node, and announces it on as many as there have to be.
    pub(crate) async fn find_depth(&self) {
        let Some(offer) = self.0.service.offer() else {
            return;
        };
        if self.connected().is_empty() {
            // What it remembers itself would answer for others: that nobody else is there.
            return;
        }
        let (me, before) = (node_of(&self.0.me), self.0.depth.load(Ordering::Relaxed));
        let others = |depth| {
            let key = branch_key(&Branch::of(offer.tier, me, depth));
            async move {
                let seen = self.seen(key, Aim::List).await;
                (seen.answers > 0).then_some(seen.nodes.len())
            }
        };
        let depth = tree::depth(before, others).await;
        if self.0.depth.swap(depth, Ordering::Relaxed) != depth {
            tracing::debug!(before, depth, "this node announces itself on other branches");
            self.announce().await;
        }
    }
}

/// Keeps this node on as many branches as there have to be.
pub(crate) async fn keep_depth(mesh: Weak<Inner>) {
    for looks in 1u32.. {
        sleep(LOOKS.pause(looks, fastrand::f64())).await;
        let Some(inner) = mesh.upgrade() else { return };
        Mesh(inner).find_depth().await;
    }
}

#[cfg(test)]
mod tests;
