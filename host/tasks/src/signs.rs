use crate::Instant;
use karman_types::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

/// The signs of life that a keeper has had of the owners of kept tasks, and by them which are lost. Whether a node is lost nobody
/// can know: should it be there after all, its epoch is over, and it has no effect any more.
#[derive(Clone, Debug)]
pub struct Signs {
    patience: Duration,
    last: BTreeMap<NodeId, Instant>,
}

impl Signs {
    /// A keeper that takes a node for lost when it has not heard of it for this long.
    pub const fn new(patience: Duration) -> Self {
        let last = BTreeMap::new();
        Self { patience, last }
    }

    /// A sign of this node.
    pub fn heard(&mut self, node: NodeId, now: Instant) {
        self.last.insert(node, now);
    }

    /// Those of the owners that are lost. The time of one that was not heard of before begins now. Silent nodes that own nothing
    /// are forgotten.
    pub fn lost(&mut self, owners: impl IntoIterator<Item = NodeId>, now: Instant) -> Vec<NodeId> {
        let mut before = std::mem::take(&mut self.last);
        let silent = |last: Instant| now.since(last) >= self.patience;
        let mut lost = Vec::new();
        for owner in owners {
            let last = before.remove(&owner).unwrap_or(now);
            self.last.insert(owner, last);
            if silent(last) {
                lost.push(owner);
            }
        }
        self.last
            .extend(before.into_iter().filter(|(_, last)| !silent(*last)));
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_silent_for_too_long_is_lost() {
        let [a, b, c] = ["a", "b", "c"].map(|name| NodeId::of_key(name.as_bytes()));
        let mut signs = Signs::new(Duration::from_millis(10));
        assert_eq!(signs.lost([a, b], Instant(100)), []);
        signs.heard(a, Instant(109));
        signs.heard(c, Instant(109));
        assert_eq!(signs.lost([a, b], Instant(110)), [b]);
        // What `c` owns now, it owns since it was heard of.
        assert_eq!(signs.lost([a, b, c], Instant(119)), [a, b, c]);
        signs.heard(b, Instant(120));
        assert_eq!(signs.lost([a, b], Instant(121)), [a]);
    }
}
