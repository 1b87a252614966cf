//! Connections on their way in: of strangers, until the gate has spoken. Whoever opens many and says nothing would keep all others out, so no
//! place has more of them than half of what it leaves to others. QUIC, TCP and relays are counted apart: in a packet that begins QUIC anybody
//! may write another's address, and who is crowded out there still comes in by TCP.

use super::reach::ip_of;
use super::relays::relay_in;
use crate::refusals::Refusals;
use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::behaviour::ListenFailure;
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent, THandlerOutEvent,
    ToSwarm, dummy,
};
use libp2p::{Multiaddr, PeerId};
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::mem::discriminant;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Connections whose first exchange is under way, of each kind. One place alone has 86 of them at most.
const MOST: usize = 256;
/// How often the log tells of those that were turned away.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Where a connection comes from: an address, one network of IPv6 (any address of which a single machine may take), or a relay.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Source {
    Quic(Option<IpAddr>),
    Tcp(Option<IpAddr>),
    Relay(PeerId),
}

impl Source {
    fn of(local: &Multiaddr, remote: &Multiaddr) -> Self {
        if let Some(relay) = relay_in(local) {
            return Self::Relay(relay);
        }
        let network = ip_of(remote).map(network);
        match remote.iter().any(|part| matches!(part, Protocol::Udp(_))) {
            true => Self::Quic(network),
            false => Self::Tcp(network),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quic(Some(ip)) | Self::Tcp(Some(ip)) => ip.fmt(f),
            Self::Quic(None) | Self::Tcp(None) => f.write_str("no address"),
            Self::Relay(relay) => relay.fmt(f),
        }
    }
}

/// An address of IPv6 without its last 64 bits.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        ip => ip,
    }
}

/// Lets connections begin, or not.
pub(crate) struct Arriving {
    under_way: HashMap<ConnectionId, Source>,
    refusals: Arc<Refusals>,
    /// Those that were turned away since the log told of it, and when that was.
    turned_away: u64,
    told: Option<Instant>,
}

impl Arriving {
    pub(super) fn new(refusals: Arc<Refusals>) -> Self {
        Self {
            under_way: HashMap::new(),
            refusals,
            turned_away: 0,
            told: None,
        }
    }

    fn has_room(&self, source: Source) -> bool {
        let is_of_kind = |other: &&Source| discriminant(*other) == discriminant(&source);
        let of_kind = self.under_way.values().filter(is_of_kind).count();
        let own = self.under_way.values().filter(|other| **other == source).count();
        own < MOST.saturating_sub(of_kind).div_ceil(2)
    }

    fn turn_away(&mut self, source: Source, now: Instant) {
        self.refusals.count("crowd");
        self.turned_away += 1;
        if self
            .told
            .is_none_or(|told| now.duration_since(told) >= TOLD_EVERY)
        {
            let turned_away = std::mem::take(&mut self.turned_away);
            tracing::warn!(from = %source, turned_away, "too many connections are on their way in");
            self.told = Some(now);
        }
    }
}

impl NetworkBehaviour for Arriving {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_pending_inbound_connection(
        &mut self,
        connection: ConnectionId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        let source = Source::of(local, remote);
        if !self.has_room(source) {
            self.turn_away(source, Instant::now());
            return Err(ConnectionDenied::new("too many connections are on their way in"));
        }
        self.under_way.insert(connection, source);
        Ok(())
    }

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.under_way.remove(&connection);
        Ok(dummy::ConnectionHandler)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(dummy::ConnectionHandler)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        if let FromSwarm::ListenFailure(ListenFailure { connection_id, .. }) = event {
            self.under_way.remove(&connection_id);
        }
    }

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libp2p::swarm::ListenError;

    fn address(text: &str) -> Multiaddr {
        text.parse().unwrap()
    }

    /// How many of so many connections from there may begin.
    fn begin(arriving: &mut Arriving, from: &str, count: usize, first: usize) -> usize {
        let local = address("/ip4/192.0.2.1/tcp/7117");
        let begins = |at: &usize| {
            let id = ConnectionId::new_unchecked(first + at);
            arriving
                .handle_pending_inbound_connection(id, &local, &address(from))
                .is_ok()
        };
        (0..count).filter(begins).count()
    }

    #[test]
    fn no_place_has_more_than_half_of_what_it_leaves_to_others() {
        let refusals = Arc::new(Refusals::default());
        let mut arriving = Arriving::new(refusals.clone());
        assert_eq!(begin(&mut arriving, "/ip4/192.0.2.7/tcp/5000", 300, 0), 86);
        assert_eq!(refusals.read(), [("crowd", 214)]);
        // Another network of its own, whichever address it takes there.
        assert_eq!(begin(&mut arriving, "/ip6/2001:db8::1/tcp/1", 100, 1000), 57);
        assert_eq!(begin(&mut arriving, "/ip6/2001:db8::2/tcp/1", 1, 2000), 0);
        // Those of others, one after the other, and the same place by another way.
        let others = (1..=50).map(|at| format!("/ip4/198.51.100.{at}/tcp/1"));
        let let_in = others
            .enumerate()
            .map(|(at, from)| begin(&mut arriving, &from, 1, 3000 + at));
        assert_eq!(let_in.sum::<usize>(), 50);
        assert_eq!(begin(&mut arriving, "/ip4/192.0.2.7/udp/1/quic-v1", 1, 4000), 1);
    }

    #[test]
    fn whoever_came_in_or_gave_up_leaves_its_place() {
        let mut arriving = Arriving::new(Arc::default());
        let (local, from) = (address("/ip4/192.0.2.1/tcp/7117"), "/ip4/192.0.2.7/tcp/5000");
        assert_eq!(begin(&mut arriving, from, 90, 0), 86);
        let remote = address(from);
        for at in 0..2 {
            let id = ConnectionId::new_unchecked(at);
            let came_in =
                arriving.handle_established_inbound_connection(id, PeerId::random(), &local, &remote);
            assert!(came_in.is_ok());
        }
        for at in 2..4 {
            arriving.on_swarm_event(FromSwarm::ListenFailure(ListenFailure {
                local_addr: &local,
                send_back_addr: &remote,
                error: &ListenError::Aborted,
                connection_id: ConnectionId::new_unchecked(at),
                peer_id: None,
            }));
        }
        assert_eq!(begin(&mut arriving, from, 10, 100), 4);
    }

    #[test]
    fn those_who_come_over_one_relay_are_of_one_place() {
        let (relay, other) = (PeerId::random(), PeerId::random());
        let local = |relay: PeerId| address(&format!("/ip4/192.0.2.9/tcp/1/p2p/{relay}/p2p-circuit"));
        let remote = address(&format!("/p2p/{other}"));
        assert_eq!(Source::of(&local(relay), &remote), Source::Relay(relay));
        assert_ne!(Source::of(&local(other), &remote), Source::Relay(relay));
    }
}
