//! Which nodes come into the routing table: those that find room, or take the place of one that could not be reached any more.
//!
//! libp2p finds out who has gone by dialling, whenever somebody else connects, the node that a full bucket has not seen for longest.
//! Here connections end when nobody uses them, so that most of a table is not connected, and such a dial is a new connection at its
//! other end, too: among a hundred nodes they would never end. So a node has gone when somebody wanted it and could not have it.

use super::behaviour::NEXT_TO_A_KEY;
use super::paths::places;
use super::records::Records;
use libp2p::kad::{self, K_VALUE, KBucketKey, RecordKey};
use libp2p::{Multiaddr, PeerId};
use std::collections::{HashMap, HashSet};

type Kademlia = kad::Behaviour<Records>;

#[derive(Default)]
pub(super) struct Table {
    /// The nodes of the table that could not be reached when they were dialled last.
    gone: HashSet<PeerId>,
    /// Where those of the table are, as they said last. The table has other addresses, too: those at which they were reached.
    said: HashMap<PeerId, Vec<Multiaddr>>,
}

impl Table {
    /// A node that serves the DHT is connected, and says that it is at these addresses: a few of them are put down, in the place of what it
    /// said before.
    pub(super) fn met(&mut self, kad: &mut Kademlia, peer: PeerId, addresses: &[Multiaddr]) {
        self.gone.remove(&peer);
        if !self.has_room(kad, peer) {
            return;
        }
        let says = places(addresses).filter_map(|address| address.clone().with_p2p(peer).ok());
        let says: Vec<Multiaddr> = says.collect();
        let said = self.said.remove(&peer).unwrap_or_default();
        for address in &says {
            kad.add_address(&peer, address.clone());
        }
        // After that: without any address it would leave the table.
        for address in said.iter().filter(|said| !says.contains(said)) {
            kad.remove_address(&peer, address);
        }
        if bucket(kad, peer).contains(&peer) {
            self.said.insert(peer, says);
        }
    }

    /// A dial of this node has failed.
    pub(super) fn missed(&mut self, kad: &mut Kademlia, peer: PeerId) {
        if bucket(kad, peer).contains(&peer) {
            self.gone.insert(peer);
        }
    }

    /// Whether the node is there already or can be: a node that has gone makes room.
    fn has_room(&mut self, kad: &mut Kademlia, peer: PeerId) -> bool {
        let there = bucket(kad, peer);
        if there.len() < K_VALUE.get() || there.contains(&peer) {
            return true;
        }
        let gone = there.iter().find(|there| self.gone.remove(there));
        gone.is_some_and(|gone| {
            self.said.remove(gone);
            kad.remove_peer(gone).is_some()
        })
    }
}

/// Whether the node is one of those that know who has announced the key, as far as the table tells.
pub(super) fn is_next_to(kad: &mut Kademlia, key: &RecordKey, peer: PeerId) -> bool {
    let key = KBucketKey::new(key.clone());
    let mut next = kad.get_closest_local_peers(&key).take(NEXT_TO_A_KEY.get());
    next.any(|next| *next.preimage() == peer)
}

/// Nodes in the bucket of this one; none for this node itself.
fn bucket(kad: &mut Kademlia, peer: PeerId) -> Vec<PeerId> {
    let bucket = kad.kbucket(peer);
    let nodes = bucket.map(|bucket| bucket.iter().map(|entry| *entry.node.key.preimage()).collect());
    nodes.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(kad: &mut Kademlia) -> HashSet<PeerId> {
        let mut known = HashSet::new();
        for bucket in kad.kbuckets() {
            known.extend(bucket.iter().map(|entry| *entry.node.key.preimage()));
        }
        known
    }

    #[test]
    fn a_full_bucket_takes_another_node_where_one_has_gone() {
        let me = PeerId::random();
        let mut kad = Kademlia::new(me, Records::new(me));
        let mut table = Table::default();
        let address: Multiaddr = "/ip4/192.0.2.1/tcp/4001".parse().unwrap();
        // Half of all keys differ in the first bit: the bucket of these is full.
        let first = |peer: PeerId| kad::KBucketKey::from(peer).distance(&kad::KBucketKey::from(me));
        let far = |peer: &PeerId| first(*peer).ilog2() == Some(255);
        let mut others = std::iter::repeat_with(PeerId::random).filter(far);
        let there: Vec<PeerId> = others.by_ref().take(K_VALUE.get()).collect();
        let at = std::slice::from_ref(&address);
        for peer in &there {
            table.met(&mut kad, *peer, at);
        }
        let before: HashSet<PeerId> = there.iter().copied().collect();
        assert_eq!(known(&mut kad), before);

        let late = others.next().unwrap();
        table.met(&mut kad, late, at);
        assert_eq!(known(&mut kad), before, "nobody has gone");
        table.missed(&mut kad, late);
        assert!(table.gone.is_empty(), "it is not in the table");

        table.missed(&mut kad, there[3]);
        table.missed(&mut kad, there[7]);
        table.met(&mut kad, there[7], at);
        table.met(&mut kad, late, at);
        let mut after = before;
        after.remove(&there[3]);
        after.insert(late);
        assert_eq!(known(&mut kad), after);
        assert!(table.gone.is_empty());
        let said: HashSet<PeerId> = table.said.keys().copied().collect();
        assert_eq!(said, after, "of those that are not there nothing is kept");
    }

    #[test]
    fn of_a_node_that_says_ever_more_addresses_a_few_are_known_and_those_at_which_it_was_reached() {
        let (me, peer) = (PeerId::random(), PeerId::random());
        let mut kad = Kademlia::new(me, Records::new(me));
        let mut table = Table::default();
        let at = |number: u32| -> Multiaddr { format!("/ip4/192.0.2.1/tcp/{number}").parse().unwrap() };
        let whole = |number: u32| at(number).with_p2p(peer).unwrap();
        let there = |kad: &mut Kademlia| -> Vec<Multiaddr> {
            let bucket = kad.kbucket(peer).unwrap();
            bucket
                .iter()
                .flat_map(|entry| entry.node.value.iter().cloned().collect::<Vec<_>>())
                .collect()
        };
        for begin in (1..1000).step_by(20) {
            let says: Vec<Multiaddr> = (begin..begin + 20).map(at).collect();
            table.met(&mut kad, peer, &says);
            let first: Vec<Multiaddr> = (begin..begin + 4).map(whole).collect();
            assert_eq!(there(&mut kad), first);
        }
        kad.add_address(&peer, at(7000));
        table.met(&mut kad, peer, &[at(8000)]);
        assert_eq!(there(&mut kad), [whole(7000), whole(8000)]);
        table.met(&mut kad, peer, &[]);
        assert_eq!(there(&mut kad), [whole(7000)]);
    }

    #[test]
    fn those_next_to_a_key_are_as_many_as_are_told_and_no_other_is_nearer() {
        let me = PeerId::random();
        let mut kad = Kademlia::new(me, Records::new(me));
        let peers: Vec<PeerId> = std::iter::repeat_with(PeerId::random)
            .take(K_VALUE.get())
            .collect();
        for peer in &peers {
            kad.add_address(peer, "/ip4/192.0.2.1/tcp/4001".parse().unwrap());
        }
        let key = RecordKey::new(b"task/edge/vision");
        let at = KBucketKey::new(key.clone());
        let (next, others): (Vec<PeerId>, Vec<PeerId>) = peers
            .into_iter()
            .partition(|peer| is_next_to(&mut kad, &key, *peer));
        assert_eq!(next.len(), NEXT_TO_A_KEY.get());
        let distance = |peer: &PeerId| KBucketKey::from(*peer).distance(&at);
        assert!(next.iter().map(distance).max() < others.iter().map(distance).min());
    }
}
