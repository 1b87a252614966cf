//! Nodes that were started again. What those next to a key know of it is in their memory alone: one that was started again has forgotten
//! it, and would hear it hours later. Where all of them were, nobody would find what it leads to meanwhile.

use libp2p::PeerId;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How often one node is told again: one that starts all the time keeps nobody busy.
const AGAIN: Duration = Duration::from_secs(600);
/// Nodes that wait to be told, and that were told in that time.
const MOST: usize = 1024;

/// Pure: time is an argument.
#[derive(Default)]
pub(super) struct Restarted {
    /// They serve the DHT only when they have found out that others reach them.
    waiting: HashSet<PeerId>,
    told: HashMap<PeerId, Instant>,
}

impl Restarted {
    /// A node is there that was started again since it was there before.
    pub(super) fn began(&mut self, peer: PeerId) {
        if self.waiting.len() < MOST {
            self.waiting.insert(peer);
        }
    }

    /// A node is there that serves the DHT: whether it is told again now.
    pub(super) fn is_told(&mut self, peer: PeerId, now: Instant) -> bool {
        if !self.waiting.contains(&peer) {
            return false;
        }
        self.told.retain(|_, when| now.duration_since(*when) < AGAIN);
        if self.told.len() >= MOST || self.told.contains_key(&peer) {
            return false;
        }
        self.told.insert(peer, now);
        self.waiting.remove(&peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_started_again_is_told_once_and_not_all_the_time() {
        let (mut restarted, peer, start) = (Restarted::default(), PeerId::random(), Instant::now());
        assert!(!restarted.is_told(peer, start));
        restarted.began(peer);
        assert!(restarted.is_told(peer, start));
        assert!(!restarted.is_told(peer, start + AGAIN));
        restarted.began(peer);
        assert!(restarted.is_told(peer, start + AGAIN));
        restarted.began(peer);
        assert!(!restarted.is_told(peer, start + AGAIN + AGAIN / 2));
        assert!(restarted.is_told(peer, start + 2 * AGAIN), "it was forgotten");
    }

    #[test]
    fn only_so_many_wait_and_are_told() {
        let (mut restarted, start) = (Restarted::default(), Instant::now());
        let peers: Vec<PeerId> = std::iter::repeat_with(PeerId::random).take(2 * MOST).collect();
        peers.iter().for_each(|peer| restarted.began(*peer));
        assert_eq!(restarted.waiting.len(), MOST);
        let told = peers
            .iter()
            .filter(|peer| restarted.is_told(**peer, start))
            .count();
        assert_eq!(told, MOST);
        peers.iter().for_each(|peer| restarted.began(*peer));
        assert!(!peers.iter().any(|peer| restarted.is_told(*peer, start)));
    }
}
