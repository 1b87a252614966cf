//! Holes that were not punched at once are tried again.
//!
//! libp2p tries when two nodes meet at a relay, three times within seconds, with the addresses known at that moment; a busy
//! router, a board under load or an address learnt too late leaves the two at the relay for good. Meeting there once more, on a
//! circuit of its own, makes libp2p try again with what is known by then.

use libp2p::swarm::ConnectionId;
use libp2p::{Multiaddr, PeerId};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// When the next try comes after the first; each one after that waits twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(15);
/// The longest that two nodes stay at a relay without another try.
const LONGEST_PAUSE: Duration = Duration::from_secs(900);

/// The nodes that this one came to over a relay.
#[derive(Default)]
pub(super) struct Punching {
    behind: HashMap<PeerId, Behind>,
}

struct Behind {
    circuit: Multiaddr,
    due: Instant,
    pause: Duration,
    /// The circuit of the last try; no stream goes over it.
    last_try: Option<ConnectionId>,
}

/// One try that is due.
pub(super) struct Try {
    pub(super) peer: PeerId,
    pub(super) circuit: Multiaddr,
    /// The circuit of the try before, which has done its service.
    pub(super) over: Option<ConnectionId>,
}

impl Punching {
    /// This node has come to that one by this circuit.
    pub(super) fn relayed(&mut self, peer: PeerId, circuit: Multiaddr, now: Instant) {
        self.behind.entry(peer).or_insert(Behind {
            circuit,
            due: now + FIRST_PAUSE,
            pause: FIRST_PAUSE,
            last_try: None,
        });
    }

    pub(super) fn gone(&mut self, peer: &PeerId) {
        self.behind.remove(peer);
    }

    /// What to try now. Where there is a better path nothing is tried, and the pauses begin anew.
    pub(super) fn due(&mut self, now: Instant, is_relayed: impl Fn(&PeerId) -> bool) -> Vec<Try> {
        let mut tries = Vec::new();
        for (peer, behind) in &mut self.behind {
            if !is_relayed(peer) {
                (behind.due, behind.pause) = (now + FIRST_PAUSE, FIRST_PAUSE);
            } else if behind.due <= now {
                behind.pause = (behind.pause * 2).min(LONGEST_PAUSE);
                behind.due = now + behind.pause;
                tries.push(Try {
                    peer: *peer,
                    circuit: behind.circuit.clone(),
                    over: behind.last_try.take(),
                });
            }
        }
        tries
    }

    pub(super) fn tries(&mut self, peer: &PeerId, connection: ConnectionId) {
        if let Some(behind) = self.behind.get_mut(peer) {
            behind.last_try = Some(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried_after(punching: &mut Punching, start: Instant, seconds: std::ops::Range<u64>) -> Vec<u64> {
        seconds
            .filter(|second| {
                let now = start + Duration::from_secs(*second);
                !punching.due(now, |_| true).is_empty()
            })
            .collect()
    }

    #[test]
    fn pauses_grow_up_to_a_bound_and_begin_anew_after_a_better_path() {
        let (peer, start) = (PeerId::random(), Instant::now());
        let mut punching = Punching::default();
        punching.relayed(peer, Multiaddr::empty(), start);
        assert_eq!(tried_after(&mut punching, start, 0..500), [15, 45, 105, 225, 465]);
        let later = tried_after(&mut punching, start, 500..6000);
        assert!(later.windows(2).all(|two| two[1] - two[0] <= 900), "{later:?}");

        let now = start + Duration::from_secs(7000);
        assert!(punching.due(now, |_| false).is_empty());
        assert_eq!(tried_after(&mut punching, now, 0..40), [15]);
        punching.gone(&peer);
        assert!(tried_after(&mut punching, now, 40..4000).is_empty());
    }

    #[test]
    fn the_circuit_of_a_try_is_given_back_with_the_next() {
        let (peer, start) = (PeerId::random(), Instant::now());
        let mut punching = Punching::default();
        punching.relayed(peer, Multiaddr::empty(), start);
        let first = punching.due(start + FIRST_PAUSE, |_| true);
        assert!(first[0].over.is_none());
        let connection = ConnectionId::new_unchecked(7);
        punching.tries(&peer, connection);
        let second = punching.due(start + FIRST_PAUSE * 4, |_| true);
        assert_eq!(second[0].over, Some(connection));
    }
}
