//! Which clients of a run are there, and what they have said of themselves.

use super::in_view::Stretch;
use karman_fed::ClientId;
use karman_types::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// What a run knows of the nodes that take part in it.
#[derive(Default)]
pub(super) struct Known {
    /// Client 0 first. A node keeps its number.
    pub(super) nodes: Vec<NodeId>,
    /// Those that answer.
    pub(super) here: BTreeSet<ClientId>,
    /// Of those, the ones that have said how full their batteries are, or when they are in view.
    pub(super) changing: BTreeSet<ClientId>,
    /// When they are, in their words.
    pub(super) said: BTreeMap<ClientId, Vec<Stretch>>,
    /// With whom contacts are planned, or were.
    pub(super) planned: BTreeSet<ClientId>,
    /// When clients are in view, as the run was told last.
    pub(super) told: InView,
}

/// Of those with whom contacts are planned.
pub(super) type InView = BTreeMap<ClientId, Vec<Stretch>>;

/// What is known of a run that was driven before.
pub(super) struct Before {
    /// The nodes of its clients, client 0 first.
    pub(super) nodes: Vec<NodeId>,
    /// Who was there.
    pub(super) present: BTreeSet<ClientId>,
    /// With whom contacts were planned.
    pub(super) planned: BTreeSet<ClientId>,
}

impl Known {
    /// Those that were there are taken to be there still: who is not shows when it is asked. The others are announced when they come. Those
    /// with whom contacts were planned are asked anew when they are in view: until they have answered they are not, unless there is a
    /// connection, or this node knows better.
    pub(super) fn since(before: Before) -> Self {
        Self {
            nodes: before.nodes,
            here: before.present,
            changing: before.planned.clone(),
            planned: before.planned,
            ..Self::default()
        }
    }

    /// Those on these nodes that are not there yet. A node that is new gets the next number.
    pub(super) fn absent(&mut self, nodes: Vec<NodeId>) -> Vec<ClientId> {
        let mut absent = Vec::new();
        for at in nodes {
            let number = match self.nodes.iter().position(|known| *known == at) {
                Some(number) => number,
                None => {
                    self.nodes.push(at);
                    self.nodes.len() - 1
                }
            };
            let client = ClientId(number as u64);
            if !self.here.contains(&client) {
                absent.push(client);
            }
        }
        absent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_away_when_a_driver_went_is_announced_when_it_comes_back() {
        let [one, two, three] = [b"1", b"2", b"3"].map(|key| NodeId::of_key(key));
        let before = Before {
            nodes: vec![one, two],
            present: BTreeSet::from([ClientId(0)]),
            planned: BTreeSet::new(),
        };
        let mut known = Known::since(before);
        assert_eq!(known.absent(vec![one]), []);
        assert_eq!(known.absent(vec![one, two, three]), [ClientId(1), ClientId(2)]);
        assert_eq!(known.nodes, [one, two, three]);
    }
}
