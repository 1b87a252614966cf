//! Nodes that could not take a bundle when they were told of it, for want of room say. They are told again: for good, what is for them
//! would be lost.

use karman_types::{Digest, NodeId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long before a node is told again of a bundle.
const LATER: Duration = Duration::from_secs(60);

/// Which nodes could not take which bundles, and when that was.
#[derive(Default)]
pub(super) struct NotNow(Mutex<HashMap<(Digest, NodeId), Instant>>);

impl NotNow {
    /// The node cannot take the bundle for now.
    pub(super) fn note(&self, bundle: Digest, node: NodeId, now: Instant) {
        self.0.lock().insert((bundle, node), now);
    }

    /// The nodes that are not told of a bundle for now.
    pub(super) fn nodes(&self, now: Instant) -> HashMap<Digest, Vec<NodeId>> {
        let mut noted = self.0.lock();
        noted.retain(|_, when| now.saturating_duration_since(*when) < LATER);
        let mut nodes: HashMap<Digest, Vec<NodeId>> = HashMap::new();
        for (bundle, node) in noted.keys() {
            nodes.entry(*bundle).or_default().push(*node);
        }
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_room_for_a_bundle_is_told_again_later() {
        let not_now = NotNow::default();
        let [one, other] = ["one", "other"].map(|name| NodeId::of_key(name.as_bytes()));
        let [first, second] = ["first", "second"].map(|name| Digest::of(name.as_bytes()));
        let now = Instant::now();
        not_now.note(first, one, now);
        not_now.note(second, other, now + LATER / 2);
        let nodes = not_now.nodes(now + LATER / 2);
        assert_eq!(
            (&nodes[&first][..], &nodes[&second][..]),
            (&[one][..], &[other][..])
        );
        let nodes = not_now.nodes(now + LATER);
        assert_eq!((nodes.len(), &nodes[&second][..]), (1, &[other][..]));
        assert_eq!(not_now.0.lock().len(), 1);
    }
}
