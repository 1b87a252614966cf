//! The places that this node holds at relays, while it is not known to be reachable itself.

use super::reach::{ip_of, is_private};
use libp2p::core::transport::ListenerId;
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId, relay};
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Relays at which one node holds a place: one may go away while another is looked for.
const PLACES: usize = 2;
/// Nodes that hold a place at one relay, and circuits through it at once, in all and of one node.
const MOST_RESERVATIONS: usize = 512;
const MOST_CIRCUITS: usize = 512;
const MOST_CIRCUITS_PER_PEER: usize = 64;
/// How long a place is held before it is renewed.
const RESERVED_FOR: Duration = Duration::from_secs(3600);
/// A place is given up within this time of its last renewal, or after the next: a renewal that is answered when the place
/// is gone makes the relay client panic. It asks for the next one after three quarters of [`RESERVED_FOR`].
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(1800);
/// How long a relay that gave no place, or took it back, is left alone.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How long one circuit may last, and what it may carry both ways: tensors, not greetings.
const CIRCUIT_LASTS: Duration = Duration::from_secs(12 * 3600);
const MOST_CIRCUIT_BYTES: u64 = 64 << 30;
/// Requests of one node within [`RATE_WINDOW`].
const MOST_REQUESTS: NonZeroU32 = NonZeroU32::new(120).expect("not zero");
const RATE_WINDOW: Duration = Duration::from_secs(60);

/// What this node lets others have where it relays. Only members get as far as asking.
pub(super) fn limits() -> relay::Config {
    relay::Config {
        max_reservations: MOST_RESERVATIONS,
        reservation_duration: RESERVED_FOR,
        reservation_rate_limiters: Vec::new(),
        max_circuits: MOST_CIRCUITS,
        max_circuits_per_peer: MOST_CIRCUITS_PER_PEER,
        max_circuit_duration: CIRCUIT_LASTS,
        max_circuit_bytes: MOST_CIRCUIT_BYTES,
        circuit_src_rate_limiters: Vec::new(),
        ..relay::Config::default()
    }
    .reservation_rate_per_peer(MOST_REQUESTS, RATE_WINDOW)
    .circuit_src_per_peer(MOST_REQUESTS, RATE_WINDOW)
}

/// Who relays, and where this node holds a place.
#[derive(Default)]
pub(super) struct Relays {
    offering: HashMap<PeerId, Multiaddr>,
    held: HashMap<ListenerId, PeerId>,
    /// When each was last asked.
    asked: HashMap<PeerId, Instant>,
    /// When the relay last agreed.
    agreed: HashMap<PeerId, Instant>,
}

impl Relays {
    /// The node relays, and is found at one of these addresses.
    pub(super) fn offers(&mut self, relay: PeerId, addresses: &[Multiaddr]) {
        let direct = addresses.iter().filter(|address| !is_circuit(address));
        if let Some(best) = direct.min_by_key(|address| ip_of(address).is_none_or(is_private)) {
            self.offering.insert(relay, best.clone());
        }
    }

    /// The node does not relay, or is gone.
    pub(super) fn lost(&mut self, relay: &PeerId) {
        self.offering.remove(relay);
        self.asked.remove(relay);
    }

    /// The next relay to ask for a place, the nearest first; nothing when there are enough.
    pub(super) fn wanted<T: Ord>(
        &self,
        now: Instant,
        distance: impl Fn(&PeerId) -> T,
    ) -> Option<(PeerId, Multiaddr)> {
        let held: HashSet<&PeerId> = self.held.values().collect();
        if held.len() >= PLACES {
            return None;
        }
        let resting = |relay: &PeerId| {
            let asked = self.asked.get(relay);
            asked.is_some_and(|asked| now.duration_since(*asked) < ASKED_AGAIN_AFTER)
        };
        let others = self.offering.iter().filter(|(relay, _)| !held.contains(relay));
        let free = others.filter(|(relay, _)| !resting(relay));
        let (relay, address) = free.min_by_key(|(relay, _)| distance(relay))?;
        let named = address.clone().with_p2p(*relay).ok()?;
        Some((*relay, named.with(Protocol::P2pCircuit)))
    }

    /// The relay is asked for this place.
    pub(super) fn asks(&mut self, place: ListenerId, relay: PeerId, now: Instant) {
        self.asked.insert(relay, now);
        self.held.insert(place, relay);
    }

    /// The relay holds the place for this node.
    pub(super) fn agrees(&mut self, relay: PeerId, now: Instant) {
        self.agreed.insert(relay, now);
    }

    /// Whether a relay holds a place for this node.
    pub(super) fn has_place(&self) -> bool {
        !self.agreed.is_empty()
    }

    /// Whether this node holds a place at this one, or asks for one.
    pub(super) fn is_place(&self, relay: &PeerId) -> bool {
        self.held.values().any(|held| held == relay)
    }

    /// The place is gone; at which relay, if it was one.
    pub(super) fn closed(&mut self, place: &ListenerId) -> Option<PeerId> {
        let relay = self.held.remove(place)?;
        self.agreed.remove(&relay);
        Some(relay)
    }

    /// The places that can be given up now.
    pub(super) fn settled(&self, now: Instant) -> Vec<ListenerId> {
        let settled = |relay: &PeerId| {
            let agreed = self.agreed.get(relay);
            agreed.is_some_and(|agreed| now.duration_since(*agreed) < GIVEN_UP_WITHIN)
        };
        let places = self.held.iter().filter(|(_, relay)| settled(relay));
        places.map(|(place, _)| *place).collect()
    }
}

/// Whether an address leads over a third node.
pub(super) fn is_circuit(address: &Multiaddr) -> bool {
    address.iter().any(|part| part == Protocol::P2pCircuit)
}

/// The third node over which an address leads.
pub(super) fn relay_in(address: &Multiaddr) -> Option<PeerId> {
    let mut named = None;
    for part in address {
        match part {
            Protocol::P2p(peer) => named = Some(peer),
            Protocol::P2pCircuit => return named,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_over_a_third_node_names_it() {
        let [relay, peer] = [(); 2].map(|()| PeerId::random());
        let over = |text: &str| relay_in(&text.parse().unwrap());
        let at = "/ip4/198.18.0.1/tcp/1";
        let circuit = format!("{at}/p2p/{relay}/p2p-circuit");
        assert_eq!(over(&circuit), Some(relay));
        assert_eq!(over(&format!("{circuit}/p2p/{peer}")), Some(relay));
        assert_eq!(over(&format!("{at}/p2p/{peer}")), None);
        assert_eq!(over(&format!("{at}/p2p-circuit")), None);
    }

    #[test]
    fn places_are_taken_at_the_nearest_relays_under_their_public_addresses() {
        let mut relays = Relays::default();
        let ids: Vec<PeerId> = (0..3).map(|_| PeerId::random()).collect();
        for (number, id) in ids.iter().enumerate() {
            let addresses = [
                "/ip4/10.0.0.1/tcp/1".parse().unwrap(),
                format!("/ip4/198.18.0.{number}/tcp/1").parse().unwrap(),
            ];
            relays.offers(*id, &addresses);
        }
        let now = Instant::now();
        let distance = |id: &PeerId| ids.iter().rev().position(|other| other == id);
        for id in [ids[2], ids[1]] {
            let (relay, address) = relays.wanted(now, distance).unwrap();
            assert_eq!(relay, id);
            assert!(address.to_string().starts_with("/ip4/198.18."), "{address}");
            assert!(is_circuit(&address));
            relays.asks(ListenerId::next(), relay, now);
        }
        assert_eq!(relays.wanted(now, distance), None);
        assert_eq!(relays.settled(now), []);
        relays.agrees(ids[1], now);
        let place = relays.settled(now)[0];
        assert_eq!(relays.settled(now + GIVEN_UP_WITHIN), []);
        assert_eq!(relays.closed(&place), Some(ids[1]));
        let asked = |at| relays.wanted(at, distance).map(|(relay, _)| relay);
        assert_eq!(asked(now), Some(ids[0]), "the one that has just gone rests");
        assert_eq!(asked(now + ASKED_AGAIN_AFTER), Some(ids[1]));
    }
}
