//! Holes that were not punched at once are tried again.
//!
//! libp2p tries when two nodes meet at a relay, three times within seconds, with the addresses known at that moment; a busy
//! router, a board under load or an address learnt too late leaves the two at the relay for good. Meeting there once more, on a
//! circuit of its own, makes libp2p try again with what is known by then.

use karman_types::Backoff;
use libp2p::swarm::ConnectionId;
use libp2p::{Multiaddr, PeerId};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long two nodes stay at a relay without another try.
const PAUSES: Backoff = Backoff {
    first: Duration::from_secs(15),
    longest: Duration::from_secs(900),
};

/// The nodes that this one came to over a relay.
#[derive(Default)]
pub(super) struct Punching {
    behind: HashMap<PeerId, Behind>,
}

struct Behind {
    circuit: Multiaddr,
    due: Instant,
    /// How many pauses it has been there for, this one included.
    pauses: u32,
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
            due: now + PAUSES.first,
            pauses: 1,
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
                (behind.due, behind.pauses) = (now + PAUSES.first, 1);
            } else if behind.due <= now {
                behind.pauses = behind.pauses.saturating_add(1);
                behind.due = now + PAUSES.whole(behind.pauses);
                tries.push(Try {
                    peer: *peer,
                    circuit: behind.circuit.clone(),
                    over: behind.last_try.take(),
                });
            }
        }
        tries
    }

    /// Whether somebody is to be tried again within this time.
    pub(super) fn is_due_within(&self, now: Instant, within: Duration) -> bool {
        self.behind.values().any(|behind| behind.due <= now + within)
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
        let soon = |punching: &Punching| punching.is_due_within(start, PAUSES.first);
        assert!(soon(&punching) && !punching.is_due_within(start, PAUSES.first / 2));
        assert_eq!(tried_after(&mut punching, start, 0..500), [15, 45, 105, 225, 465]);
        assert!(!soon(&punching));
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
        let first = punching.due(start + PAUSES.first, |_| true);
        assert!(first[0].over.is_none());
        let connection = ConnectionId::new_unchecked(7);
        punching.tries(&peer, connection);
        let second = punching.due(start + PAUSES.first * 4, |_| true);
        assert_eq!(second[0].over, Some(connection));
    }
}
