//! Which nodes come into the routing table: those that find room, or take the place of one that could not be reached any more.
//!
//! libp2p finds out who has gone by dialling, whenever somebody else connects, the node that a full bucket has not seen for longest.
//! Here connections end when nobody uses them, so that most of a table is not connected, and such a dial is a new connection at its
//! other end, too: among a hundred nodes they would never end. So a node has gone when somebody wanted it and could not have it.

use super::behaviour::NEXT_TO_A_KEY;
use super::records::Records;
use libp2p::kad::{self, K_VALUE, KBucketKey, RecordKey};
use libp2p::{Multiaddr, PeerId};
use std::collections::HashSet;

type Kademlia = kad::Behaviour<Records>;

/// The nodes of the table that could not be reached when they were dialled last.
#[derive(Default)]
pub(super) struct Table {
    gone: HashSet<PeerId>,
}

impl Table {
    /// A node that serves the DHT is connected, and is at these addresses.
    pub(super) fn met(&mut self, kad: &mut Kademlia, peer: PeerId, addresses: Vec<Multiaddr>) {
        self.gone.remove(&peer);
        if self.has_room(kad, peer) {
            for address in addresses {
                kad.add_address(&peer, address);
            }
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
        gone.is_some_and(|gone| kad.remove_peer(gone).is_some())
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
        for peer in &there {
            table.met(&mut kad, *peer, vec![address.clone()]);
        }
        let before: HashSet<PeerId> = there.iter().copied().collect();
        assert_eq!(known(&mut kad), before);

        let late = others.next().unwrap();
        table.met(&mut kad, late, vec![address.clone()]);
        assert_eq!(known(&mut kad), before, "nobody has gone");
        table.missed(&mut kad, late);
        assert!(table.gone.is_empty(), "it is not in the table");

        table.missed(&mut kad, there[3]);
        table.missed(&mut kad, there[7]);
        table.met(&mut kad, there[7], vec![address.clone()]);
        table.met(&mut kad, late, vec![address]);
        let mut after = before;
        after.remove(&there[3]);
        after.insert(late);
        assert_eq!(known(&mut kad), after);
        assert!(table.gone.is_empty());
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
