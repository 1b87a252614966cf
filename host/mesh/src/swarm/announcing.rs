//! What this node announces in the DHT: all of it when that changes or it is elsewhere, one key after the other while nothing changes, and
//! to a node that has forgotten them those that it knew. Many keys are announced a few at a time.

use super::drive::Driver;
use super::table::is_next_to;
use super::telling::spread;
use crate::calling::node_of;
use crate::offer::node_key;
use libp2p::PeerId;
use libp2p::kad::RecordKey;
use std::collections::HashSet;
use std::time::Instant;

/// Keys that are announced in one round, of a second: each is a search that asks some ten nodes, and tells eight.
const AT_A_TIME: usize = 16;

impl Driver {
    /// Announces these keys soon, and no others.
    pub(super) fn announce(&mut self, keys: HashSet<RecordKey>) {
        let kad = &mut self.swarm.behaviour_mut().kad;
        for gone in self.announced.difference(&keys) {
            kad.stop_providing(gone);
        }
        if self.announced != keys {
            self.fresh.extend(keys.difference(&self.announced).cloned());
            self.announced = keys;
            let wait = spread(self.known(), fastrand::f64());
            self.telling.changed(Instant::now(), wait);
        }
    }

    /// Announces what is due.
    pub(super) fn announce_due(&mut self) {
        if !self.knows_its_way() {
            return;
        }
        let now = Instant::now();
        if self.telling.is_due(now) {
            let mut keys: Vec<RecordKey> = self.announced.iter().cloned().collect();
            fastrand::shuffle(&mut keys);
            // First where this node is, which may have changed, and what nobody has heard of yet.
            let (me, fresh) = (self.own_key(), std::mem::take(&mut self.fresh));
            keys.sort_by_key(|key| *key != me && !fresh.contains(key));
            self.to_tell = keys.into();
            let known = self.known();
            self.telling.told(known);
        } else if let Some(next) = self.turns.next(now, &self.announced) {
            self.to_tell.push_back(next);
        }
        let some = self.to_tell.len().min(AT_A_TIME);
        let some: Vec<RecordKey> = self.to_tell.drain(..some).collect();
        for key in some.into_iter().filter(|key| self.announced.contains(key)) {
            let kad = &mut self.swarm.behaviour_mut().kad;
            if let Err(error) = kad.start_providing(key) {
                tracing::warn!(%error, "an offer is not announced");
            }
        }
    }

    /// Announces once more what this node would know had it not been started again. The others next to these keys hear it, too.
    pub(super) fn tell_again(&mut self, peer: PeerId) {
        let kad = &mut self.swarm.behaviour_mut().kad;
        let waiting: HashSet<&RecordKey> = self.to_tell.iter().collect();
        let mut forgotten = self.announced.clone();
        forgotten.retain(|key| !waiting.contains(key) && is_next_to(kad, key, peer));
        tracing::debug!(%peer, keys = forgotten.len(), "a node was started again, and is told what this one offers");
        self.to_tell.extend(forgotten);
    }

    /// The key under which others look for this very node.
    fn own_key(&self) -> RecordKey {
        node_key(node_of(self.swarm.local_peer_id()))
    }

    /// Nodes in the routing table.
    pub(super) fn known(&mut self) -> usize {
        let kad = &mut self.swarm.behaviour_mut().kad;
        kad.kbuckets().map(|bucket| bucket.num_entries()).sum()
    }
}
