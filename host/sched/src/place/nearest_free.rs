use karman_types::NodeId;
use std::cmp::Reverse;
use std::time::Duration;

/// A node that could take a call now.
#[derive(Clone, Debug)]
pub struct Taker {
    /// The node.
    pub node: NodeId,
    /// The last round trip to it; nothing while none was measured.
    pub round_trip: Option<Duration>,
    /// The cores that it has.
    pub cores: u32,
    /// Calls under way there, as far as is known.
    pub busy: u32,
}

impl Taker {
    /// Calls on each core, in thousandths; 0 while a core is free. How busy such a node is makes no difference to one call more.
    fn backlog(&self) -> u64 {
        let cores = u64::from(self.cores.max(1));
        match u64::from(self.busy) {
            busy if busy < cores => 0,
            busy => busy * 1000 / cores,
        }
    }
}

/// The order in which nodes are tried for a call, as places in `takers`: the nearest that has a core free; then those that have none,
/// the one with the fewest calls on each core first. Among equals the nearer, and at last their ids decide, so that the same view
/// gives the same order.
pub fn nearest_free(takers: &[Taker]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..takers.len()).collect();
    order.sort_by_key(|at| {
        let taker = &takers[*at];
        let near = Reverse(taker.round_trip.map(Reverse));
        (taker.backlog(), near, taker.node)
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taker(name: &str, millis: Option<u64>, cores: u32, busy: u32) -> Taker {
        Taker {
            node: NodeId::of_key(name.as_bytes()),
            round_trip: millis.map(Duration::from_millis),
            cores,
            busy,
        }
    }

    #[test]
    fn the_nearest_with_a_core_free_comes_first() {
        let takers = [
            taker("far, idle", Some(90), 4, 0),
            taker("near, full", Some(1), 2, 2),
            taker("nearer, one core free", Some(10), 4, 3),
            taker("never measured, idle", None, 8, 0),
            taker("near, twice full", Some(1), 1, 2),
            taker("far, full", Some(50), 2, 2),
        ];
        assert_eq!(nearest_free(&takers), [2, 0, 3, 1, 5, 4]);
        assert!(nearest_free(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn nobody_waits_while_a_core_is_free(
            nodes in prop::collection::vec((prop::option::of(0u64..50), 0u32..5, 0u32..12), 0..12)
        ) {
            let takers: Vec<Taker> = nodes
                .iter()
                .enumerate()
                .map(|(n, (millis, cores, busy))| taker(&n.to_string(), *millis, *cores, *busy))
                .collect();
            let order = nearest_free(&takers);
            let mut all = order.clone();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..takers.len()));
            for pair in order.windows(2) {
                let (first, next) = (&takers[pair[0]], &takers[pair[1]]);
                let free = |taker: &Taker| taker.busy < taker.cores.max(1);
                prop_assert!(free(first) || !free(next));
                if free(first) && free(next) {
                    prop_assert!(next.round_trip.is_none() || first.round_trip <= next.round_trip);
                    prop_assert!(first.round_trip.is_some() || next.round_trip.is_none());
                }
            }
        }
    }
}
