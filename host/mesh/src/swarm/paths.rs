//! How others reach this node and how it reaches them: what the loop does when connections come and go.

use super::behaviour::KADEMLIA;
use super::drive::Driver;
use super::reach::{ip_of, is_private};
use super::relays::is_circuit;
use crate::calling::node_of;
use crate::company::ENOUGH;
use crate::gate::peer_of;
use crate::peers::Path;
use libp2p::core::ConnectedPoint;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::behaviour::{FromSwarm, NewExternalAddrCandidate};
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{ConnectionId, DialError, NetworkBehaviour};
use libp2p::{Multiaddr, PeerId, identify, kad, relay};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How long a node that is new in the mesh waits to be dialled, or for a place at a relay, before it announces itself.
const SETTLES_WITHIN: Duration = Duration::from_secs(2);
/// How many members a node that is alone looks for at a time, where they were.
const LOOKED_UP: usize = 8;
/// Neighbours that a node with little company dials at a time: there may be hundreds on one network.
const NEIGHBOURS: usize = 8;
/// Addresses of one node that are remembered: its own, and over relays.
const MOST_DIRECT: usize = 4;
const MOST_CIRCUITS: usize = 2;

impl Driver {
    /// Others may reach this node here, or at a relay's address for it.
    pub(super) fn listening(&mut self, address: Multiaddr) {
        if !is_circuit(&address) {
            let ip = ip_of(&address);
            if self.everywhere && ip.is_some_and(|ip| ip.is_loopback()) {
                return;
            }
            self.reach.listens(&address);
            let candidate =
                || FromSwarm::NewExternalAddrCandidate(NewExternalAddrCandidate { addr: &address });
            let behaviour = self.swarm.behaviour_mut();
            // The swarm takes what is announced for confirmed and does not tell these of it.
            behaviour.punch.on_swarm_event(candidate());
            if !ip.is_none_or(is_private) {
                behaviour.reachable.on_swarm_event(candidate());
            }
        }
        tracing::info!(%address, "the mesh can reach this node at");
        // Without it, records of what this node provides would not say where it is.
        self.swarm.add_external_address(address);
        self.telling.changed(Instant::now(), Duration::ZERO);
    }

    pub(super) fn not_listening(&mut self, address: &Multiaddr) {
        self.swarm.remove_external_address(address);
        if !is_circuit(address) {
            self.reach.left(address);
        }
        self.telling.changed(Instant::now(), Duration::ZERO);
    }

    pub(super) fn connected(
        &mut self,
        peer: PeerId,
        connection: ConnectionId,
        endpoint: &ConnectedPoint,
        first: bool,
    ) {
        let path = Path::of(endpoint);
        self.failures.succeeded(endpoint.get_remote_address());
        self.reach
            .connected((peer, connection), endpoint, first, Instant::now());
        if endpoint.is_dialer() {
            self.crowd.begun(connection, peer, Instant::now());
        }
        self.met_first.get_or_insert_with(Instant::now);
        self.has_come(peer);
        if let ConnectedPoint::Dialer { address, .. } = endpoint
            && let Ok(address) = address.clone().with_p2p(peer)
        {
            match path {
                Path::Relayed => self.punching.relayed(peer, address, Instant::now()),
                Path::Tcp => {
                    self.over_tcp.insert(peer, address.clone());
                    self.met.meets(peer, address);
                }
                Path::Direct => self.met.meets(peer, address),
            }
        }
        let member = self.standing.member(&peer);
        let run = self.standing.run_of(&peer);
        let runs = self.peers.run(&peer).zip(run);
        if runs.is_some_and(|(before, now)| before != now) {
            self.restarted.began(peer, Instant::now());
            self.comes_back(peer, endpoint);
        }
        for dead in self.peers.connected(peer, (connection, path), member, run) {
            self.swarm.close_connection(dead);
        }
        self.settle();
    }

    /// Remembers from where a node has come that was started again. Nodes dial from where they listen; and the two would have lost each other
    /// if this one were started again, too, before it has heard where the other is.
    fn comes_back(&self, peer: PeerId, endpoint: &ConnectedPoint) {
        if let ConnectedPoint::Listener { send_back_addr, .. } = endpoint
            && !endpoint.is_relayed()
        {
            let acquaintances = self.standing.acquaintances();
            acquaintances.comes_from(node_of(&peer), send_back_addr.to_string(), self.standing.now());
        }
    }

    /// Dials a node where it was met before. Dials that began while it was out of reach do not count: they wait longer and
    /// longer between their tries.
    pub(super) fn meet_again(&mut self, peer: PeerId) {
        let known = self.standing.acquaintances().addresses(node_of(&peer));
        let known = known.iter().filter_map(|address| address.parse().ok());
        let addresses: Vec<Multiaddr> = self.met.place(&peer).cloned().into_iter().chain(known).collect();
        let dial = DialOpts::peer_id(peer)
            .condition(PeerCondition::Always)
            .addresses(addresses)
            .extend_addresses_through_behaviour()
            .build();
        if let Err(error) = self.swarm.dial(dial) {
            tracing::debug!(%peer, %error, "not dialled");
        }
    }

    /// Meets nodes at once: where they are only some protocol knows, as long as a query runs, or a neighbour is heard.
    pub(super) fn come_to(&mut self, providers: &HashSet<PeerId>) {
        for provider in providers {
            let dial = DialOpts::peer_id(*provider).condition(PeerCondition::DisconnectedAndNotDialing);
            if provider != self.swarm.local_peer_id()
                && let Err(error) = self.swarm.dial(dial.build())
            {
                tracing::trace!(%provider, %error, "not dialled");
            }
        }
    }

    /// Tries to reach members where they were, as many as is said; where nothing is said, at every entrance, too.
    pub(super) fn look(&mut self, most: Option<usize>) {
        let whereabouts = self.whereabouts(most.unwrap_or(LOOKED_UP));
        let places = match most {
            Some(_) => whereabouts,
            None => [self.entrances.clone(), whereabouts].concat(),
        };
        self.dial(places, PeerCondition::DisconnectedAndNotDialing);
        let mut neighbours = self.swarm.behaviour().neighbours();
        neighbours.retain(|neighbour| !self.swarm.is_connected(neighbour));
        let some = fastrand::choose_multiple(neighbours, most.unwrap_or(NEIGHBOURS));
        self.come_to(&some.into_iter().collect());
    }

    /// Meets some of those who were heard on this network, while this node has little company: where all that are heard are met, each meets
    /// all others.
    pub(super) fn heard(&mut self, neighbours: Vec<(PeerId, Multiaddr)>) {
        let network = self.swarm.network_info();
        let under_way = network.connection_counters().num_pending_outgoing() as usize;
        if self.peers.there().len() >= ENOUGH || under_way >= NEIGHBOURS {
            return;
        }
        let heard: HashSet<PeerId> = neighbours.iter().map(|(peer, _)| *peer).collect();
        let some = fastrand::choose_multiple(heard, NEIGHBOURS - under_way);
        let said = neighbours.into_iter().filter(|(peer, _)| some.contains(peer));
        let said = said.filter_map(|(peer, address)| address.with_p2p(peer).ok());
        let said = said.collect();
        self.dial(said, PeerCondition::Disconnected);
    }

    /// Where some of the members were that are not there: a node that everybody joined has no entrance of its own to come
    /// back by.
    fn whereabouts(&self, most: usize) -> Vec<Multiaddr> {
        let acquaintances = self.standing.acquaintances();
        let mut nodes = acquaintances.nodes();
        fastrand::shuffle(&mut nodes);
        // Keys are read only until as many are found as are wanted: there may be thousands.
        let away = nodes.into_iter().filter_map(|node| {
            let addresses = acquaintances.addresses(node);
            let peer = peer_of(&acquaintances.key(node)?)?;
            (!addresses.is_empty() && !self.swarm.is_connected(&peer)).then_some((peer, addresses))
        });
        let places = away.take(most).flat_map(|(peer, addresses)| {
            let places = addresses.into_iter();
            places.filter_map(move |address| address.parse::<Multiaddr>().ok()?.with_p2p(peer).ok())
        });
        places.collect()
    }

    pub(super) fn closed(&mut self, peer: PeerId, connection: ConnectionId) {
        self.reach.closed(&connection, Instant::now());
        self.crowd.closed(connection);
        self.tries.remove(&connection);
        if !self.swarm.is_connected(&peer) {
            self.relays.lost(&peer);
            self.over_tcp.remove(&peer);
            self.punching.gone(&peer);
        }
        self.peers.disconnected(&peer, connection);
        self.settle();
    }

    /// A dial failed; where it was for a better path to a node that is there, that is why there is none.
    pub(super) fn not_connected(
        &mut self,
        peer: Option<PeerId>,
        connection: ConnectionId,
        error: &DialError,
    ) {
        tracing::debug!(?peer, %error, "a node cannot be reached");
        self.failures.failed(error);
        if let Some(peer) = peer
            && is_out_of_reach(error)
            && !self.swarm.is_connected(&peer)
        {
            self.table.missed(&mut self.swarm.behaviour_mut().kad, peer);
        }
        let tried = self.tries.remove(&connection);
        if let Some(peer) = peer
            && let DialError::Transport(failed) = error
            && (tried || self.peers.path(&peer) == Some(Path::Relayed))
        {
            // What UDP says tells the most, for that is what is wanted.
            let told = failed.iter().filter(|(address, _)| ip_of(address).is_some());
            if let Some((address, why)) = told.max_by_key(|(address, _)| is_quic(address)) {
                let address: Multiaddr = address
                    .iter()
                    .take_while(|part| !matches!(part, Protocol::P2p(_)))
                    .collect();
                self.peers
                    .obstructed(&peer, &format!("{address}: {}", innermost(why)));
            }
        }
    }

    /// A node has said who it is, where it is and what it speaks.
    pub(super) fn introduced(&mut self, peer: PeerId, connection: ConnectionId, info: identify::Info) {
        let serves = info.protocols.contains(&KADEMLIA);
        let is_at = places(&info.listen_addrs).map(ToString::to_string).collect();
        let now = self.standing.now();
        self.standing.acquaintances().is_at(node_of(&peer), is_at, now);
        if !self.peers.is_relayed(&peer, connection) {
            self.reach.seen_as(&info.observed_addr);
            let relays = serves && info.protocols.contains(&relay::HOP_PROTOCOL_NAME);
            let beyond = |address: &Multiaddr| ip_of(address).is_none_or(|ip| !self.reach.is_neighbour(ip));
            match relays && info.listen_addrs.iter().any(beyond) {
                true => self.relays.offers(peer, &info.listen_addrs),
                false => self.relays.lost(&peer),
            }
        }
        self.try_better(peer, &info.listen_addrs, serves);
        if serves {
            let direct = info.listen_addrs.iter().find(|address| !is_circuit(address));
            if self.met.place(&peer).is_none()
                && let Some(address) = direct
                && let Ok(address) = address.clone().with_p2p(peer)
            {
                self.met.meets(peer, address);
            }
            let kad = &mut self.swarm.behaviour_mut().kad;
            self.table.met(kad, peer, &info.listen_addrs);
            if self.restarted.is_told(peer, Instant::now()) {
                self.tell_again(peer);
            }
        }
        self.settle();
    }

    /// Tries what may be better than the path there is: QUIC where TCP has won, perhaps by chance; the direct way to a node
    /// that is known to be reachable but came over a relay.
    fn try_better(&mut self, peer: PeerId, addresses: &[Multiaddr], reachable: bool) {
        let over_tcp = self.over_tcp.remove(&peer);
        let relayed = reachable && self.peers.path(&peer) == Some(Path::Relayed);
        let direct = addresses.iter().filter(|address| !is_circuit(address));
        let better = direct.filter(|address| match &over_tcp {
            Some(tcp) => is_quic(address) && ip_of(address) == ip_of(tcp),
            None => relayed,
        });
        let better: Vec<Multiaddr> = better.cloned().collect();
        if better.is_empty() {
            return;
        }
        let dial = DialOpts::peer_id(peer)
            .condition(PeerCondition::Always)
            .addresses(better)
            .build();
        let connection = dial.connection_id();
        if self.swarm.dial(dial).is_ok() {
            self.tries.insert(connection);
        }
    }

    /// Meets those once more at the relay to whom no hole was punched.
    pub(super) fn punch_again(&mut self) {
        let peers = self.peers.clone();
        let is_relayed = |peer: &PeerId| peers.path(peer) == Some(Path::Relayed);
        for again in self.punching.due(Instant::now(), is_relayed) {
            if let Some(over) = again.over
                && peers.is_spare(&again.peer, over)
            {
                self.swarm.close_connection(over);
            }
            let dial = DialOpts::peer_id(again.peer)
                .condition(PeerCondition::Always)
                .addresses(vec![again.circuit])
                .build();
            let connection = dial.connection_id();
            match self.swarm.dial(dial) {
                Ok(()) => self.punching.tries(&again.peer, connection),
                Err(error) => tracing::debug!(peer = %again.peer, %error, "not met at the relay again"),
            }
        }
    }

    /// Whether it is known how others find this node: by itself, at a relay, or not soon. What is announced earlier leads
    /// them to addresses that answer nobody.
    pub(super) fn knows_its_way(&self) -> bool {
        let waited = |since: &Instant| since.elapsed() > SETTLES_WITHIN;
        self.reach.known_to_all() || self.relays.has_place() || self.met_first.as_ref().is_some_and(waited)
    }

    /// Does what follows from who can reach this node: whom it serves, and whether it needs a relay.
    pub(super) fn settle(&mut self) {
        let mode = match self.reach.known_to_all() {
            true => kad::Mode::Server,
            false => kad::Mode::Client,
        };
        let kad = &mut self.swarm.behaviour_mut().kad;
        if kad.mode() != mode {
            tracing::info!(?mode, "this node in the DHT");
            kad.set_mode(Some(mode));
        }
        if self.reach.known_outside() {
            for place in self.relays.settled(Instant::now()) {
                self.swarm.remove_listener(place);
            }
            return;
        }
        let peers = self.peers.clone();
        let distance = |relay: &PeerId| {
            peers
                .round_trip(relay)
                .map_or((true, None), |time| (false, Some(time)))
        };
        let now = Instant::now();
        while let Some((relay, address)) = self.relays.wanted(now, distance) {
            match self.swarm.listen_on(address) {
                Ok(place) => self.relays.asks(place, relay, now),
                Err(error) => {
                    tracing::debug!(%relay, %error, "no place at a relay");
                    self.relays.lost(&relay);
                }
            }
        }
    }
}

/// Where a node is to be remembered: where it listens, and at the relays that hold a place for it.
pub(super) fn places(addresses: &[Multiaddr]) -> impl Iterator<Item = &Multiaddr> {
    let (circuits, direct): (Vec<_>, Vec<_>) = addresses.iter().partition(|address| is_circuit(address));
    let direct = direct.into_iter().take(MOST_DIRECT);
    direct.chain(circuits.into_iter().take(MOST_CIRCUITS))
}

/// Whether nobody answers where a node was, or somebody else does, who has got its address since.
const fn is_out_of_reach(error: &DialError) -> bool {
    matches!(
        error,
        DialError::Transport(_) | DialError::NoAddresses | DialError::WrongPeerId { .. }
    )
}

fn is_quic(address: &Multiaddr) -> bool {
    address.iter().any(|part| part == Protocol::QuicV1)
}

/// The error at the bottom: those above it repeat it.
pub(super) fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_gone_where_another_has_its_address_and_not_where_this_one_did_not_dial() {
        let wrong = DialError::WrongPeerId {
            obtained: PeerId::random(),
            address: "/ip4/192.0.2.1/tcp/4001".parse().unwrap(),
        };
        let condition = DialError::DialPeerConditionFalse(PeerCondition::Disconnected);
        let seen = [wrong, DialError::NoAddresses, condition, DialError::Aborted];
        assert_eq!(seen.each_ref().map(is_out_of_reach), [true, true, false, false]);
    }
}
