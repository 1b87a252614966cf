//! How this node stands in the network, for those who wonder why two nodes do not meet.

use super::drive::Driver;
use super::paths::innermost;
use super::relays::is_circuit;
use crate::company::Search;
use libp2p::Multiaddr;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::DialError;
use std::collections::BTreeMap;

/// Addresses whose failure is remembered.
const MOST_FAILURES: usize = 32;

/// A node's own place in the network, as far as it knows.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    /// Where it listens.
    pub listens: Vec<Multiaddr>,
    /// Nodes beyond its own network have reached it, or an own network is all there is and a neighbour has.
    pub reached: bool,
    /// Others see it under an address that is not its own: a router translates.
    pub translated: bool,
    /// A relay holds a place for it, so that others reach it there.
    pub relayed: bool,
    /// Addresses that it dialled in vain, and why the last time.
    pub failures: Vec<(Multiaddr, String)>,
    /// How far it is with looking for others; nothing while somebody is there.
    pub search: Option<Search>,
}

impl Situation {
    /// The UDP port where it listens, also where the system has chosen it.
    pub fn port(&self) -> Option<u16> {
        let mut parts = self.listens.iter().flatten();
        parts.find_map(|part| match part {
            Protocol::Udp(port) => Some(port),
            _ => None,
        })
    }
}

/// Dials that failed, by address.
#[derive(Default)]
pub(super) struct Failures(BTreeMap<Multiaddr, String>);

impl Failures {
    pub(super) fn failed(&mut self, error: &DialError) {
        match error {
            DialError::Transport(tried) => {
                for (address, why) in tried {
                    self.remember(address, innermost(why));
                }
            }
            DialError::WrongPeerId { address, .. } => {
                self.remember(address, "another node answers there".into());
            }
            _ => {}
        }
    }

    pub(super) fn succeeded(&mut self, address: &Multiaddr) {
        self.0.remove(&place_of(address));
    }

    fn remember(&mut self, address: &Multiaddr, why: String) {
        let place = place_of(address);
        if self.0.len() < MOST_FAILURES || self.0.contains_key(&place) {
            self.0.insert(place, why);
        }
    }
}

/// The address without the node that is expected there.
fn place_of(address: &Multiaddr) -> Multiaddr {
    let named = |part: &Protocol<'_>| matches!(part, Protocol::P2p(_));
    address.iter().take_while(|part| !named(part)).collect()
}

impl Driver {
    pub(super) fn situation(&self) -> Situation {
        let own = self.swarm.listeners().filter(|address| !is_circuit(address));
        Situation {
            listens: own.cloned().collect(),
            reached: self.reach.known_to_all(),
            translated: self.reach.translated(),
            relayed: self.relays.has_place(),
            failures: self.failures.0.clone().into_iter().collect(),
            search: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libp2p::PeerId;
    use libp2p::core::transport::TransportError;
    use std::io;

    #[test]
    fn a_failure_is_forgotten_when_the_address_answers() {
        let address: Multiaddr = "/ip4/192.0.2.1/udp/7117/quic-v1".parse().unwrap();
        let named = address.clone().with_p2p(PeerId::random()).unwrap();
        let refused = TransportError::Other(io::Error::from(io::ErrorKind::ConnectionRefused));
        let mut failures = Failures::default();
        failures.failed(&DialError::Transport(vec![(named.clone(), refused)]));
        assert_eq!(failures.0.get(&address).unwrap(), "connection refused");
        failures.succeeded(&named);
        assert!(failures.0.is_empty());
    }

    #[test]
    fn failures_are_bounded() {
        let mut failures = Failures::default();
        for port in 1..1000 {
            let address = format!("/ip4/192.0.2.1/tcp/{port}").parse().unwrap();
            failures.failed(&DialError::WrongPeerId {
                obtained: PeerId::random(),
                address,
            });
        }
        assert_eq!(failures.0.len(), MOST_FAILURES);
    }
}
