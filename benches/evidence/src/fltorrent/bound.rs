//! The largest number of chunks that can move in a slot, given who holds what.

use karman_fed::swarm::{Client, Coordinator, Gate, Link, SwarmSettings};
use petgraph::algo::dinics;
use petgraph::graph::{Graph, NodeIndex};
use std::collections::BTreeMap;

/// What everybody could send in a slot.
pub(super) struct Offers {
    clients: Vec<Seat>,
}

struct Seat {
    link: Link,
    /// For each set of neighbours that hold a chunk which this client lacks (by their places among its neighbours), how many such chunks
    /// there are: only through the gate, and in all.
    wanted: [BTreeMap<u64, u32>; 2],
    neighbours: Vec<Client>,
}

impl Offers {
    /// What could move in the slot that comes next.
    pub(super) fn of(coordinator: &Coordinator, settings: &SwarmSettings, links: &[Link]) -> Self {
        let chunks = settings.layout.chunks;
        let own = |client: Client| coordinator.update_of(client).unwrap_or_default();
        let others = |client: Client| coordinator.held(client).map_or(0, |held| held.len() - chunks);
        let opens = |client: Client| match settings.gate {
            Gate::Open | Gate::Throttled => true,
            Gate::Blended => others(client) as usize >= links.len() - 1,
            Gate::Strict | Gate::Fallback => {
                others(client) + settings.on_offer >= settings.cover(links.len())
            }
        };
        let seat = |client: usize| {
            let neighbours = coordinator.overlay().neighbours(client as Client).to_vec();
            let mut holders: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
            for (place, other) in neighbours.iter().enumerate() {
                let (Some(theirs), Some(mine)) =
                    (coordinator.held(*other), coordinator.held(client as Client))
                else {
                    continue;
                };
                for chunk in theirs.missing_in(mine) {
                    let sets = holders.entry(chunk).or_default();
                    sets[1] |= 1 << place;
                    if chunk / chunks != own(*other) || opens(*other) {
                        sets[0] |= 1 << place;
                    }
                }
            }
            // Where nobody has anything else for this client and it has no cover yet, an owner may fall back to its own.
            let falls_back = matches!(settings.gate, Gate::Fallback | Gate::Blended)
                && others(client as Client) + chunks < settings.cover(links.len())
                && holders.values().all(|sets| sets[0] == 0);
            let mut wanted = [BTreeMap::new(), BTreeMap::new()];
            for sets in holders.values() {
                let gated = if falls_back { sets[1] } else { sets[0] };
                for (wanted, set) in wanted.iter_mut().zip([gated, sets[1]]) {
                    *wanted.entry(set).or_default() += u32::from(set != 0);
                }
            }
            Seat {
                link: links[client],
                wanted,
                neighbours,
            }
        };
        Self {
            clients: (0..links.len()).map(seat).collect(),
        }
    }
}

/// The largest flow from senders through chunks to receivers. Chunks that a receiver lacks and the same neighbours hold are one node with
/// their number as its capacity: the flow is the same as with a node for each, and the network a hundred times smaller.
pub(super) fn largest_flow(offers: &Offers, gated: bool) -> f64 {
    let mut graph: Graph<(), u32> = Graph::new();
    let (source, sink) = (graph.add_node(()), graph.add_node(()));
    let senders: Vec<NodeIndex> = offers
        .clients
        .iter()
        .map(|seat| {
            let node = graph.add_node(());
            graph.add_edge(source, node, seat.link.up);
            node
        })
        .collect();
    for seat in &offers.clients {
        let receiver = graph.add_node(());
        graph.add_edge(receiver, sink, seat.link.down);
        for (set, count) in &seat.wanted[usize::from(!gated)] {
            if *count == 0 {
                continue;
            }
            let chunks = graph.add_node(());
            graph.add_edge(chunks, receiver, *count);
            for (place, other) in seat.neighbours.iter().enumerate() {
                if set & (1 << place) != 0 {
                    graph.add_edge(senders[usize::from(*other)], chunks, *count);
                }
            }
        }
    }
    f64::from(dinics(&graph, source, sink).0)
}
