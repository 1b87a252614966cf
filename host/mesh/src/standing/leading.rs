//! By whom this node comes to an issuer, and whom it leads to one.

use super::Standing;
use crate::gate::door::issuer_behind;
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};
use libp2p_stream::Control;
use tokio::sync::Semaphore;

impl Standing {
    /// Whether this node admits others.
    pub(crate) fn is_issuer(&self) -> bool {
        self.issuer.read().as_ref().is_some_and(|issuer| issuer.admits())
    }

    /// An issuer that this node was invited to by way of this member; nothing where the invitation leads to the member itself, and
    /// once this node is a member.
    pub(crate) fn led_to(&self, by: &PeerId) -> Option<PeerId> {
        if self.membership.read().is_some() {
            return None;
        }
        let invitation = self.invitation.read();
        let addresses = invitation.as_ref()?.addresses();
        if addresses.iter().any(|address| leads_to(address, by)) {
            return None;
        }
        // One of several may be out of reach: the next try asks another, sooner or later.
        let behind: Vec<PeerId> = addresses
            .iter()
            .filter_map(|address| issuer_behind(address, by))
            .collect();
        fastrand::choice(behind)
    }

    /// Where this node looks for an issuer by its invitation, each place once and without keys; nowhere once it was let in.
    pub(crate) fn looked_for_at(&self) -> Vec<String> {
        let invitation = self.invitation.read();
        let mut places: Vec<String> = Vec::new();
        for address in invitation.iter().flat_map(|invitation| invitation.addresses()) {
            let place = place_of(address);
            if !place.is_empty() && !places.iter().any(|known| known == place) {
                places.push(place.to_owned());
            }
        }
        places
    }

    /// Whether what this peer says of letting this node in counts: a neighbour of another mesh has no say in it.
    pub(super) fn is_asked_at(&self, peer: &PeerId) -> bool {
        let invitation = self.invitation.read();
        invitation.as_ref().is_none_or(|invitation| {
            let mut addresses = invitation.addresses().iter();
            addresses.any(|address| names(address, peer))
        })
    }

    pub(crate) fn opens_ways(&self, ways: Control) {
        let _ = self.ways.set(ways);
    }

    pub(crate) fn ways(&self) -> Option<Control> {
        self.ways.get().cloned()
    }

    pub(crate) const fn doors(&self) -> &Semaphore {
        &self.doors
    }
}

/// The part of an address that this node dials itself: that of the member in between, where it leads over one.
fn place_of(address: &str) -> &str {
    address.split_once("/p2p/").map_or(address, |(place, _)| place)
}

/// Whether the way of this address ends at this peer.
fn leads_to(address: &str, peer: &PeerId) -> bool {
    let address = address.parse::<Multiaddr>();
    address.is_ok_and(|address| address.iter().last() == Some(Protocol::P2p(*peer)))
}

/// Whether this address leads over this peer, or to it; one that names nobody leads to any node that is there.
fn names(address: &str, peer: &PeerId) -> bool {
    let Ok(address) = address.parse::<Multiaddr>() else {
        return false;
    };
    let mut peers = address
        .iter()
        .filter(|part| matches!(part, Protocol::P2p(_)))
        .peekable();
    peers.peek().is_none() || peers.any(|part| part == Protocol::P2p(*peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_those_on_its_way_and_leads_to_the_last() {
        let [member, issuer, other] = [0, 1, 2].map(|_| PeerId::random());
        let direct = format!("/ip4/192.0.2.7/udp/7117/quic-v1/p2p/{member}");
        let behind = format!("{direct}/p2p-circuit/p2p/{issuer}");
        assert!(leads_to(&direct, &member) && leads_to(&behind, &issuer));
        assert!(!leads_to(&behind, &member));
        assert!(names(&behind, &member) && names(&behind, &issuer) && !names(&behind, &other));
        assert!(names("/dns/board.local/tcp/7117", &other) && !names("nonsense", &other));
        let place = "/ip4/192.0.2.7/udp/7117/quic-v1";
        assert_eq!([&direct, &behind].map(|address| place_of(address)), [place; 2]);
        assert_eq!(place_of("/dns/board.local/tcp/7117"), "/dns/board.local/tcp/7117");
    }
}
