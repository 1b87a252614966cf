//! Two dozen nodes in one process that meet over libp2p.

use super::*;
use crate::membership::RootKey;
use crate::support::{Node, addresses, head, invite, start};
use std::time::Instant;

const SOON: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until it holds.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < SOON, "{what}");
        sleep(PAUSE).await;
    }
}

/// So many nodes of one tier, each of which knows the first one and the one before it.
async fn mesh_of(count: usize, root: &RootKey) -> Vec<Node> {
    let mut nodes = vec![start(None, Some(root))];
    let first = addresses(&nodes[0]).await.swap_remove(0);
    let mut last = first.clone();
    while nodes.len() < count {
        let next = start(Some(invite(root, &[first.clone(), last])), None);
        next.mesh.admitted(SOON).await.unwrap();
        last = addresses(&next).await.swap_remove(0);
        nodes.push(next);
    }
    for node in &nodes {
        node.mesh.announce().await;
    }
    nodes
}

/// Whom this node finds under the key of another.
async fn named(by: &Node, node: NodeId) -> Vec<PeerId> {
    let seen = by.mesh.seen(node_key(node), Aim::List).await;
    seen.nodes.into_keys().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tier_that_no_answer_can_name_is_listed_and_any_of_its_nodes_is_found_also_where_it_has_moved() {
    let root = RootKey::generate().unwrap();
    let mut nodes = mesh_of(24, &root).await;
    let all: HashSet<NodeId> = nodes.iter().map(|node| node.id).collect();
    let asks = start(
        Some(invite(&root, &[addresses(&nodes[0]).await.swap_remove(0)])),
        None,
    );
    asks.mesh.admitted(SOON).await.unwrap();

    until("some have not announced themselves", async || {
        let named = join_all(nodes.iter().map(|node| named(&asks, node.id))).await;
        named
            .iter()
            .zip(&nodes)
            .all(|(named, node)| *named == [node.mesh.me()])
    })
    .await;
    let listed = async |by: &str| -> HashSet<NodeId> {
        let found = asks.mesh.nodes_named(&by.parse().unwrap()).await;
        found.iter().map(|node| node.offer.node).collect()
    };
    until("some are not listed", async || {
        join_all(nodes.iter().map(|node| node.mesh.find_depth())).await;
        listed("tier=edge").await == all
    })
    .await;
    let depths = nodes.iter().map(|node| node.mesh.0.depth.load(Ordering::Relaxed));
    assert!(depths.min() >= Some(1), "all are in one branch");
    let one = nodes[7].id;
    assert_eq!(listed(&one.short()).await, HashSet::from([one]));
    assert_eq!(listed("tier=cloud").await, HashSet::new());
    assert_eq!(asks.mesh.node(one).await, Some(nodes[7].mesh.me()));

    let moves = nodes.remove(7);
    let peer = moves.mesh.me();
    let stopped = moves.stop();
    asks.mesh.disconnect(peer).await;
    until("it does not part", async || !asks.mesh.is_connected(&peer)).await;
    let at = addresses(&nodes[11]).await;
    let moved = stopped.start_among(invite(&root, &at[..1]));
    moved.mesh.announce().await;
    let is_at = addresses(&moved).await;
    until("nobody knows where it is", async || {
        let seen = asks.mesh.seen(node_key(one), Aim::List).await;
        let places = seen.nodes.get(&peer).into_iter().flatten();
        places.into_iter().any(|place| is_at.contains(place))
    })
    .await;
    let called = asks.mesh.call(peer, head("vision/echo"), "1").await;
    assert_eq!(called.unwrap().0.body, "1");
}
