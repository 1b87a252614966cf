//! All nodes as they were found a while ago, for whoever looks again and again: a page that an operator has open asks every two seconds.

use super::{IN_VAIN, Provider};
use crate::mesh::Mesh;
use crate::under_way::UnderWay;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_types::Offer;
use libp2p::PeerId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long all nodes are as they were found, at least.
const RECENT: Duration = Duration::from_secs(30);
/// How many times as long as it took to find all nodes that holds: a page that is open does not keep a mesh of thousands busy.
const TIMES: u32 = 10;
/// But no longer than this.
const LONGEST: Duration = Duration::from_secs(600);

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
    /// The nodes, and whether it is time to look for them again: while that is done, they may be answered with for as long again.
    fn lately(&self) -> Option<(Vec<Provider>, bool)> {
        let lately = self.lately.lock();
        let Nodes { nodes, found, took } = lately.as_ref()?;
        let age = found.elapsed();
        let (holds, most) = match nodes.is_empty() {
            true => (IN_VAIN, IN_VAIN),
            false => {
                let holds = took.saturating_mul(TIMES).clamp(RECENT, LONGEST);
                (holds, 2 * holds)
            }
        };
        (age < most).then(|| (nodes.clone(), age >= holds))
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
    /// [Every node](Mesh::nodes) as it was found within the last minute, or twenty times as long as that took, and what those that are
    /// connected have said since. One search is for all who look meanwhile, and goes on where they have gone.
    pub async fn nodes_lately(&self) -> Vec<Provider> {
        let all = &self.0.found.all;
        let search = || {
            let search = all.under_way.share(&(), || self.search_for_all());
            tokio::spawn(search.clone());
            search
        };
        let found = match all.lately() {
            Some((found, false)) => found,
            Some((found, true)) => {
                drop(search());
                found
            }
            None => search().await,
        };
        let nodes = found.into_iter().chain(self.connected_offers(|_| true));
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

    /// Those that are connected and offer what is wanted, by what they have said last: nobody is asked.
    pub fn connected_offers(&self, wanted: impl Fn(&Offer) -> bool) -> Vec<Provider> {
        let there = self.0.peers.offers(wanted).into_iter();
        there.map(|(id, known)| Provider::of(id, known)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::{NodeId, Tier};
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
        let found = || all.lately().map(|(nodes, is_old)| (nodes.len(), is_old));
        let ago = |age| all.lately.lock().as_mut().unwrap().found = Instant::now().checked_sub(age).unwrap();
        assert_eq!(found(), None);
        all.remember(&[], Duration::ZERO);
        ago(IN_VAIN);
        assert_eq!(found(), None);
        let node = Provider::of(PeerId::random(), (Arc::new(offer), 0));
        all.remember(std::slice::from_ref(&node), Duration::ZERO);
        ago(IN_VAIN);
        assert_eq!(found(), Some((1, false)));
        ago(RECENT);
        assert_eq!(found(), Some((1, true)));
        ago(2 * RECENT);
        assert_eq!(found(), None);
        all.remember(std::slice::from_ref(&node), RECENT);
        ago(RECENT);
        assert_eq!(found(), Some((1, false)));
        ago(TIMES * RECENT);
        assert_eq!(found(), Some((1, true)));
        all.remember(&[node], LONGEST);
        ago(LONGEST);
        assert_eq!(found(), Some((1, true)));
    }
}
