//! What this node announces in the DHT: all of it when that changes or it is elsewhere, one key after the other while nothing changes, and
//! to a node that has forgotten them those that it knew.

use super::drive::Driver;
use super::table::is_next_to;
use libp2p::PeerId;
use libp2p::kad::RecordKey;
use std::collections::HashSet;
use std::time::Instant;

impl Driver {
    /// Announces these keys with the next round, and no others.
    pub(super) fn announce(&mut self, keys: HashSet<RecordKey>) {
        let kad = &mut self.swarm.behaviour_mut().kad;
        for gone in self.announced.difference(&keys) {
            kad.stop_providing(gone);
        }
        if self.announced != keys {
            self.telling.changed(Instant::now());
            self.announced = keys;
        }
    }

    /// Announces what is due.
    pub(super) fn announce_due(&mut self) {
        if !self.knows_its_way() {
            return;
        }
        let now = Instant::now();
        if self.telling.is_due(now) {
            self.tell(|_| true);
            let known = self.known();
            self.telling.told(known);
        } else if let Some(next) = self.turns.next(now, &self.announced) {
            self.tell(|key| *key == next);
        }
    }

    /// Announces once more what this node would know had it not been started again. The others next to these keys hear it, too.
    pub(super) fn tell_again(&mut self, peer: PeerId) {
        if !self.knows_its_way() {
            return;
        }
        let kad = &mut self.swarm.behaviour_mut().kad;
        let mut forgotten = self.announced.clone();
        forgotten.retain(|key| is_next_to(kad, key, peer));
        tracing::debug!(%peer, keys = forgotten.len(), "a node was started again, and is told what this one offers");
        self.tell(|key| forgotten.contains(key));
    }

    fn tell(&mut self, which: impl Fn(&RecordKey) -> bool) {
        let kad = &mut self.swarm.behaviour_mut().kad;
        for key in &self.announced {
            if which(key)
                && let Err(error) = kad.start_providing(key.clone())
            {
                tracing::warn!(%error, "an offer is not announced");
            }
        }
    }

    /// Nodes in the routing table.
    pub(super) fn known(&mut self) -> usize {
        let kad = &mut self.swarm.behaviour_mut().kad;
        kad.kbuckets().map(|bucket| bucket.num_entries()).sum()
    }
}
