//! All nodes as they were found a while ago, for whoever looks again and again: a page that an operator has open asks every two seconds.

use super::{IN_VAIN, Provider};
use crate::mesh::Mesh;
use crate::under_way::UnderWay;
use futures::FutureExt;
use futures::future::BoxFuture;
use libp2p::PeerId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long all nodes are as they were found, at least.
const RECENT: Duration = Duration::from_secs(30);
/// How many times as long as it took to find all nodes that holds: a page that is open does not keep a mesh of thousands busy.
const TIMES: u32 = 10;

/// All nodes that were found lately, and the search for them that is under way.
#[derive(Default)]
pub(super) struct All {
    lately: Mutex<Option<Nodes>>,
    under_way: UnderWay<(), Vec<Provider>>,
}

struct Nodes {
    nodes: Vec<Provider>,
    found: Instant,
    /// How long that took.
    took: Duration,
}

impl All {
    fn lately(&self) -> Option<Vec<Provider>> {
        let lately = self.lately.lock();
        let Nodes { nodes, found, took } = lately.as_ref()?;
        let holds = match nodes.is_empty() {
            true => IN_VAIN,
            false => RECENT.max(*took * TIMES),
        };
        (found.elapsed() < holds).then(|| nodes.clone())
    }

    fn remember(&self, nodes: &[Provider], took: Duration) {
        *self.lately.lock() = Some(Nodes {
            nodes: nodes.to_vec(),
            found: Instant::now(),
            took,
        });
    }
}

impl Mesh {
    /// [Every node](Mesh::nodes) as it was found within the last half minute, or ten times as long as that took, and what those that are connected have said since. One search
    /// is for all who look meanwhile.
    pub async fn nodes_lately(&self) -> Vec<Provider> {
        let all = &self.0.found.all;
        let found = match all.lately() {
            Some(found) => found,
            None => all.under_way.share(&(), || self.search_for_all()).await,
        };
        let nodes = found.into_iter().chain(self.connected_offers());
        let by_id: HashMap<PeerId, Provider> = nodes.map(|node| (node.id, node)).collect();
        by_id.into_values().collect()
    }

    fn search_for_all(&self) -> BoxFuture<'static, Vec<Provider>> {
        let mesh = self.clone();
        async move {
            let begun = Instant::now();
            let nodes = mesh.nodes().await;
            mesh.0.found.all.remember(&nodes, begun.elapsed());
            nodes
        }
        .boxed()
    }

    /// Those that are connected, by what they have said last: nobody is asked.
    pub fn connected_offers(&self) -> Vec<Provider> {
        let there = self.0.peers.list().into_iter().filter(|peer| peer.path.is_some());
        let said = there.filter_map(|peer| {
            let busy = peer.under_way();
            let (offer, _) = peer.offer?;
            Some(Provider::of(peer.id, (offer, busy)))
        });
        said.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::{NodeId, Offer, Tier};
    use std::sync::Arc;

    #[test]
    fn that_no_node_was_found_is_remembered_for_a_moment_only() {
        let offer = Offer {
            node: NodeId::of_key(b"a node"),
            tier: Tier::Edge,
            cores: 1,
            memory: 1,
            tasks: Vec::new(),
            models: Vec::new(),
        };
        let all = All::default();
        let found = || all.lately().map(|nodes| nodes.len());
        let ago = |age| all.lately.lock().as_mut().unwrap().found = Instant::now().checked_sub(age).unwrap();
        assert_eq!(found(), None);
        all.remember(&[], Duration::ZERO);
        ago(IN_VAIN);
        assert_eq!(found(), None);
        let node = Provider::of(PeerId::random(), (Arc::new(offer), 0));
        all.remember(std::slice::from_ref(&node), Duration::ZERO);
        ago(IN_VAIN);
        assert_eq!(found(), Some(1));
        ago(RECENT);
        assert_eq!(found(), None);
        all.remember(&[node], RECENT);
        ago(RECENT);
        assert_eq!(found(), Some(1));
        ago(TIMES * RECENT);
        assert_eq!(found(), None);
    }
}
