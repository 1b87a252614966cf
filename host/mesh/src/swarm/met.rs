//! Where this node has met others, to come back to after a restart.

use libp2p::{Multiaddr, PeerId};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Nodes whose addresses are remembered.
const MOST: usize = 32;
/// How often they are written down once there are so many: in a large mesh others come all the time.
const WRITTEN: Duration = Duration::from_secs(600);

/// Pure: time is an argument.
#[derive(Default)]
pub(super) struct Met {
    /// The one that was met first in front.
    places: VecDeque<(PeerId, Multiaddr)>,
    has_news: bool,
    written: Option<Instant>,
}

impl Met {
    /// A node was met there. It takes the place of the one that was met first, where there is no other.
    pub(super) fn meets(&mut self, peer: PeerId, address: Multiaddr) {
        match self.places.iter_mut().find(|(met, _)| *met == peer) {
            Some((_, known)) if *known == address => return,
            Some((_, known)) => *known = address,
            None => {
                if self.places.len() >= MOST {
                    self.places.pop_front();
                }
                self.places.push_back((peer, address));
            }
        }
        self.has_news = true;
    }

    /// Where the node was met.
    pub(super) fn place(&self, peer: &PeerId) -> Option<&Multiaddr> {
        let (_, address) = self.places.iter().find(|(met, _)| met == peer)?;
        Some(address)
    }

    /// All the places, where it is time to write them down.
    pub(super) fn due(&mut self, now: Instant) -> Option<Vec<String>> {
        let rested = self
            .written
            .is_none_or(|written| now.duration_since(written) >= WRITTEN);
        if !self.has_news || (self.places.len() >= MOST && !rested) {
            return None;
        }
        (self.has_news, self.written) = (false, Some(now));
        let places = self.places.iter().map(|(_, address)| address.to_string());
        Some(places.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: usize) -> Multiaddr {
        format!("/ip4/192.0.2.1/udp/{port}/quic-v1").parse().unwrap()
    }

    #[test]
    fn those_that_were_met_first_make_room_for_others() {
        let (mut met, now) = (Met::default(), Instant::now());
        let peers: Vec<PeerId> = (0..MOST + 2).map(|_| PeerId::random()).collect();
        for (port, peer) in peers.iter().enumerate() {
            met.meets(*peer, at(port));
        }
        assert_eq!((met.place(&peers[1]), met.place(&peers[2])), (None, Some(&at(2))));
        let written = met.due(now).unwrap();
        assert_eq!(written.len(), MOST);
        assert_eq!(written.last(), Some(&at(MOST + 1).to_string()));
    }

    #[test]
    fn few_are_written_down_at_once_and_many_once_in_a_while() {
        let (mut met, now) = (Met::default(), Instant::now());
        let peer = PeerId::random();
        assert_eq!(met.due(now), None);
        met.meets(peer, at(1));
        assert_eq!(met.due(now), Some(vec![at(1).to_string()]));
        met.meets(peer, at(1));
        assert_eq!(met.due(now), None, "nothing is new");
        met.meets(peer, at(2));
        assert_eq!(met.due(now), Some(vec![at(2).to_string()]));
        for port in 0..MOST {
            met.meets(PeerId::random(), at(port));
        }
        assert_eq!(met.due(now), None);
        assert_eq!(met.due(now + WRITTEN).unwrap().len(), MOST);
    }
}
