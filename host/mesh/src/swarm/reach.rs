//! Whether others can reach this node: judged by who has done so, and from where.

use super::relays::is_circuit;
use libp2p::core::ConnectedPoint;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::ConnectionId;
use libp2p::{Multiaddr, PeerId};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long it counts that a node from outside has dialled this one, once none of those is connected that have.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// What is known of the ways to this node.
///
/// That a neighbour has dialled it says nothing about those beyond the router, so neighbours count only while nobody else
/// is there.
#[derive(Default)]
pub(super) struct Reach {
    /// Where this node listens.
    own: HashSet<IpAddr>,
    /// Somebody sees it under an address that is not its own: a router translates.
    translated: bool,
    /// Connections with nodes beyond this network.
    outside: HashSet<ConnectionId>,
    /// Of these those by which a node has shown that it can dial this one, and what it has put in their place.
    dialled: HashMap<ConnectionId, PeerId>,
    reached: Option<Reached>,
    dialled_by_neighbour: bool,
}

/// That nodes beyond this network reach this one.
struct Reached {
    /// Where one has done so.
    at: Multiaddr,
    /// When that was last known.
    when: Instant,
}

impl Reach {
    /// Takes in where this node listens. After a move nothing that was known before holds.
    pub(super) fn listens(&mut self, address: &Multiaddr) {
        self.own.extend(ip_of(address));
    }

    pub(super) fn left(&mut self, address: &Multiaddr) {
        if let Some(ip) = ip_of(address) {
            self.own.remove(&ip);
            self.dialled.clear();
            (self.translated, self.reached, self.dialled_by_neighbour) = (false, None, false);
        }
    }

    /// Takes in how another node sees this one.
    pub(super) fn seen_as(&mut self, address: &Multiaddr) {
        self.translated |= ip_of(address).is_some_and(|ip| !self.own.contains(&ip));
    }

    /// Takes in a connection; `first` where there is no other one with its node. A node that this one has sent packets to gets
    /// in through a router that takes its packets for answers: that proves nothing.
    pub(super) fn connected(
        &mut self,
        (peer, connection): (PeerId, ConnectionId),
        endpoint: &ConnectedPoint,
        first: bool,
        now: Instant,
    ) {
        if endpoint.is_relayed() {
            return;
        }
        let Some(ip) = ip_of(endpoint.get_remote_address()) else {
            return;
        };
        let neighbour = self.is_neighbour(ip);
        if !neighbour {
            self.outside.insert(connection);
        }
        let ConnectedPoint::Listener { local_addr, .. } = endpoint else {
            return;
        };
        if neighbour {
            self.dialled_by_neighbour = true;
        } else if first || self.dialled.values().any(|dialled| *dialled == peer) {
            self.dialled.insert(connection, peer);
            self.is_reached(local_addr, now);
        }
    }

    fn is_reached(&mut self, at: &Multiaddr, when: Instant) {
        if self.reached.is_none() {
            tracing::info!(%at, "this node is reached from outside");
        }
        let at = at.clone();
        self.reached = Some(Reached { at, when });
    }

    /// A node has dialled back to this address, from a port that no router has seen before.
    pub(super) fn confirmed(&mut self, address: &Multiaddr, now: Instant) {
        // At a relay's address the relay was reached.
        let own = ip_of(address).is_some_and(|ip| !is_private(ip)) && !is_circuit(address);
        if own {
            self.is_reached(address, now);
        }
    }

    /// A node could not dial back to this address. One that has dialled it and is connected knows better.
    pub(super) fn refuted(&mut self, address: &Multiaddr) {
        let is_there = |reached: &Reached| reached.at == *address;
        if self.dialled.is_empty() && self.reached.as_ref().is_some_and(is_there) {
            self.is_not_reached();
        }
    }

    pub(super) fn closed(&mut self, connection: &ConnectionId, now: Instant) {
        self.outside.remove(connection);
        if self.dialled.remove(connection).is_some()
            && let Some(reached) = &mut self.reached
        {
            reached.when = now;
        }
    }

    /// Forgets what was long ago: a router forgets, too, through which port it lets others in, and this node's address stays.
    pub(super) fn forget(&mut self, now: Instant) {
        let is_old = |reached: &Reached| now.saturating_duration_since(reached.when) >= REMEMBERED;
        if self.dialled.is_empty() && self.reached.as_ref().is_some_and(is_old) {
            self.is_not_reached();
        }
    }

    fn is_not_reached(&mut self) {
        tracing::info!("nothing shows any more that this node is reached from outside");
        self.reached = None;
    }

    /// Whether nodes beyond this network are known to reach it.
    pub(super) const fn known_outside(&self) -> bool {
        self.reached.is_some()
    }

    /// Whether others see it under an address that is not its own.
    pub(super) const fn translated(&self) -> bool {
        self.translated
    }

    /// Whether it is reached by everybody there is.
    pub(super) fn known_to_all(&self) -> bool {
        self.known_outside() || (self.dialled_by_neighbour && self.outside.is_empty())
    }

    /// Whether a node at this address shares this one's way to the world.
    pub(super) fn is_neighbour(&self, ip: IpAddr) -> bool {
        ip.is_loopback()
            || self.own.iter().any(|own| same_network(*own, ip))
            || (self.translated && is_private(ip))
    }
}

/// The IP address in front.
pub(super) fn ip_of(address: &Multiaddr) -> Option<IpAddr> {
    match address.iter().next()? {
        Protocol::Ip4(ip) => Some(ip.into()),
        Protocol::Ip6(ip) => Some(ip.into()),
        _ => None,
    }
}

/// Whether an address means something on its own network only.
pub(super) fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            // Behind a provider's own translation: RFC 6598.
            let shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
            ip.is_private() || ip.is_loopback() || ip.is_link_local() || shared
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// Whether two addresses lie in one network of the usual size: /24, or /64.
fn same_network(one: IpAddr, other: IpAddr) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => one.octets()[..3] == other.octets()[..3],
        (IpAddr::V6(one), IpAddr::V6(other)) => one.octets()[..8] == other.octets()[..8],
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libp2p::core::Endpoint;
    use libp2p::core::transport::PortUse;

    fn at(ip: &str) -> Multiaddr {
        format!("/ip4/{ip}/udp/7117/quic-v1").parse().unwrap()
    }

    fn by(ip: &str) -> ConnectedPoint {
        ConnectedPoint::Listener {
            local_addr: at("192.168.1.5"),
            send_back_addr: at(ip),
        }
    }

    fn to(ip: &str) -> ConnectedPoint {
        ConnectedPoint::Dialer {
            address: at(ip),
            role_override: Endpoint::Dialer,
            port_use: PortUse::Reuse,
        }
    }

    fn number(number: usize) -> ConnectionId {
        ConnectionId::new_unchecked(number)
    }

    /// A connection with a node.
    fn with(peer: u8, connection: usize) -> (PeerId, ConnectionId) {
        let hash = libp2p::multihash::Multihash::wrap(0, &[peer]);
        (PeerId::from_multihash(hash.unwrap()).unwrap(), number(connection))
    }

    fn now() -> Instant {
        Instant::now()
    }

    fn at_home() -> Reach {
        let mut reach = Reach::default();
        reach.listens(&at("192.168.1.5"));
        reach
    }

    #[test]
    fn a_neighbour_counts_only_where_nobody_else_is() {
        let mut reach = at_home();
        reach.connected(with(1, 1), &by("192.168.1.9"), true, now());
        assert!(reach.known_to_all() && !reach.known_outside());
        reach.connected(with(2, 2), &to("198.18.0.1"), true, now());
        assert!(!reach.known_to_all());
        reach.closed(&number(2), now());
        assert!(reach.known_to_all());
    }

    #[test]
    fn whoever_dials_from_outside_proves_the_way_until_the_node_moves() {
        let mut reach = at_home();
        reach.connected(with(1, 1), &by("198.18.0.1"), true, now());
        assert!(reach.known_to_all() && reach.known_outside());
        reach.left(&at("192.168.1.5"));
        assert!(!reach.known_to_all());
    }

    #[test]
    fn behind_a_router_every_private_address_is_a_neighbour() {
        let mut reach = at_home();
        reach.seen_as(&at("192.168.1.5"));
        reach.connected(with(1, 1), &by("192.168.7.1"), true, now());
        assert!(reach.known_outside(), "a routed network without translation");
        let mut reach = at_home();
        reach.seen_as(&at("198.18.4.4"));
        reach.connected(with(1, 1), &by("192.168.7.1"), true, now());
        assert!(!reach.known_outside());
    }

    #[test]
    fn a_way_that_was_made_by_dialling_out_proves_nothing() {
        let mut reach = at_home();
        reach.seen_as(&at("198.18.4.4"));
        reach.connected(with(1, 1), &to("198.18.0.1"), true, now());
        reach.connected(with(1, 2), &by("198.18.0.1"), false, now());
        assert!(!reach.known_outside());
        reach.confirmed(&at("192.168.1.5"), now());
        assert!(!reach.known_outside(), "confirmed by a neighbour");
        let relay = libp2p::PeerId::random();
        let circuit = format!("/ip4/198.18.4.4/udp/7117/quic-v1/p2p/{relay}/p2p-circuit");
        reach.confirmed(&circuit.parse().unwrap(), now());
        assert!(!reach.known_outside(), "the relay was reached");
        reach.confirmed(&at("198.18.4.4"), now());
        assert!(reach.known_outside());
    }

    #[test]
    fn that_a_node_was_dialled_from_outside_counts_for_an_hour_after_those_have_gone_that_did() {
        let (mut reach, start) = (at_home(), now());
        reach.connected(with(1, 1), &by("198.18.0.1"), true, start);
        let much_later = start + 10 * REMEMBERED;
        reach.forget(much_later);
        assert!(reach.known_outside(), "it is connected");
        // It has found a better path meanwhile.
        reach.connected(with(1, 2), &by("198.18.0.1"), false, start);
        reach.closed(&number(1), start);
        reach.forget(much_later);
        assert!(reach.known_outside(), "it is connected all the same");
        reach.closed(&number(2), much_later);
        reach.forget(much_later + REMEMBERED / 2);
        assert!(reach.known_outside());
        reach.forget(much_later + REMEMBERED);
        assert!(!reach.known_outside() && !reach.known_to_all());

        reach.confirmed(&at("198.18.4.4"), start);
        reach.confirmed(&at("198.18.4.4"), start + REMEMBERED);
        reach.forget(start + REMEMBERED);
        assert!(reach.known_outside());
        reach.forget(start + 2 * REMEMBERED);
        assert!(!reach.known_outside());
    }

    #[test]
    fn an_address_to_which_nobody_can_dial_back_is_not_reached() {
        let mut reach = at_home();
        reach.confirmed(&at("198.18.4.4"), now());
        reach.refuted(&at("198.18.4.5"));
        assert!(reach.known_outside(), "another address");
        reach.refuted(&at("198.18.4.4"));
        assert!(!reach.known_outside());

        reach.connected(with(1, 1), &by("198.18.0.1"), true, now());
        reach.refuted(&at("192.168.1.5"));
        assert!(reach.known_outside(), "one that has dialled it is connected");
        reach.closed(&number(1), now());
        reach.refuted(&at("192.168.1.5"));
        assert!(!reach.known_outside());
    }
}
