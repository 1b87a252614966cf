//! Nodes that were started again. What those next to a key know of it is in their memory alone: one that was started again has forgotten
//! it, and would hear it hours later. Where all of them were, nobody would find what it leads to meanwhile.

use libp2p::PeerId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often one node is told again: one that starts all the time keeps nobody busy.
const AGAIN: Duration = Duration::from_secs(600);
/// How long a node waits to be told: many never serve the DHT, and would take the places of those that will.
const WAITS: Duration = Duration::from_secs(3600);
/// Nodes that wait to be told, and that were told in that time.
const MOST: usize = 1024;

/// Pure: time is an argument.
#[derive(Default)]
pub(super) struct Restarted {
    /// Since when. They serve the DHT only when they have found out that others reach them.
    waiting: HashMap<PeerId, Instant>,
    told: HashMap<PeerId, Instant>,
}

impl Restarted {
    /// A node is there that was started again since it was there before.
    pub(super) fn began(&mut self, peer: PeerId, now: Instant) {
        self.waiting.retain(|_, since| now.duration_since(*since) < WAITS);
        if self.waiting.len() < MOST || self.waiting.contains_key(&peer) {
            self.waiting.insert(peer, now);
        }
    }

    /// A node is there that serves the DHT: whether it is told again now.
    pub(super) fn is_told(&mut self, peer: PeerId, now: Instant) -> bool {
        let since = self.waiting.get(&peer);
        if since.is_none_or(|since| now.duration_since(*since) >= WAITS) {
            return false;
        }
        self.told.retain(|_, when| now.duration_since(*when) < AGAIN);
        if self.told.len() >= MOST || self.told.contains_key(&peer) {
            return false;
        }
        self.told.insert(peer, now);
        self.waiting.remove(&peer).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_started_again_is_told_once_and_not_all_the_time() {
        let (mut restarted, peer, start) = (Restarted::default(), PeerId::random(), Instant::now());
        assert!(!restarted.is_told(peer, start));
        restarted.began(peer, start);
        assert!(restarted.is_told(peer, start));
        assert!(!restarted.is_told(peer, start + AGAIN));
        restarted.began(peer, start + AGAIN);
        assert!(restarted.is_told(peer, start + AGAIN));
        restarted.began(peer, start + AGAIN);
        assert!(!restarted.is_told(peer, start + AGAIN + AGAIN / 2));
        assert!(restarted.is_told(peer, start + 2 * AGAIN), "it was forgotten");
    }

    #[test]
    fn only_so_many_wait_and_are_told() {
        let (mut restarted, start) = (Restarted::default(), Instant::now());
        let peers: Vec<PeerId> = std::iter::repeat_with(PeerId::random).take(2 * MOST).collect();
        peers.iter().for_each(|peer| restarted.began(*peer, start));
        assert_eq!(restarted.waiting.len(), MOST);
        let told = peers
            .iter()
            .filter(|peer| restarted.is_told(**peer, start))
            .count();
        assert_eq!(told, MOST);
        peers.iter().for_each(|peer| restarted.began(*peer, start));
        assert!(!peers.iter().any(|peer| restarted.is_told(*peer, start)));
    }

    #[test]
    fn those_that_are_never_told_leave_their_places_to_others() {
        let (mut restarted, start) = (Restarted::default(), Instant::now());
        for _ in 0..MOST {
            restarted.began(PeerId::random(), start);
        }
        let peer = PeerId::random();
        restarted.began(peer, start);
        assert!(!restarted.is_told(peer, start), "there was no place");
        let later = start + WAITS;
        restarted.began(peer, later);
        assert_eq!(restarted.waiting.len(), 1);
        assert!(!restarted.is_told(peer, later + WAITS), "it was heard by then");
        restarted.began(peer, later + WAITS);
        assert!(restarted.is_told(peer, later + WAITS));
    }
}
