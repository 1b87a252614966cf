//! Streams take the best path to a node.
//!
//! `libp2p-stream` opens each stream on any connection with the node. This behaviour lets it see the best ones only: a
//! relayed connection drains once there is a direct one, and is there again when that breaks. Of circuits it sees the oldest:
//! later ones are there to punch a hole, and go.
//!
//! Who asks for a stream in the moment in which a connection comes up, finds none yet, and `libp2p-stream` has it wait for the
//! next one, which may never come: it is told to ask again. And it tells all who wait for a node when any dial to it has failed; a
//! node may be dialled where it was and where it is, so it hears of the last one only.

use crate::peers::Path;
use libp2p::core::transport::PortUse;
use libp2p::core::{ConnectedPoint, Endpoint};
use libp2p::swarm::behaviour::{ConnectionClosed, ConnectionEstablished, DialFailure};
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, DialError, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
    THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId};
use std::collections::HashMap;
use std::task::{Context, Poll};

pub(crate) struct Streams {
    inner: libp2p_stream::Behaviour,
    connections: HashMap<PeerId, Vec<Connection>>,
    /// Dials that are under way, and to whom.
    dials: HashMap<ConnectionId, PeerId>,
}

struct Connection {
    id: ConnectionId,
    endpoint: ConnectedPoint,
    /// Whether `inner` sees it.
    shown: bool,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self {
            inner: libp2p_stream::Behaviour::new(),
            connections: HashMap::new(),
            dials: HashMap::new(),
        }
    }

    pub(super) fn new_control(&self) -> libp2p_stream::Control {
        self.inner.new_control()
    }

    fn not_dialled(&mut self, event: DialFailure<'_>) {
        self.dials.remove(&event.connection_id);
        let is_dialled = |peer: PeerId| self.dials.values().any(|dialled| *dialled == peer);
        if !event.peer_id.is_some_and(is_dialled) {
            self.inner.on_swarm_event(FromSwarm::DialFailure(event));
        }
    }

    fn established(&mut self, event: ConnectionEstablished<'_>) {
        self.dials.remove(&event.connection_id);
        self.inner.on_swarm_event(FromSwarm::ConnectionEstablished(event));
        // Those who waited when this connection began have been given to it. Those that wait now came too late for that.
        self.inner.on_swarm_event(FromSwarm::DialFailure(DialFailure {
            peer_id: Some(event.peer_id),
            connection_id: event.connection_id,
            error: &DialError::NoAddresses,
        }));
        let connections = self.connections.entry(event.peer_id).or_default();
        connections.push(Connection {
            id: event.connection_id,
            endpoint: event.endpoint.clone(),
            shown: true,
        });
        self.show_best(event.peer_id);
    }

    fn closed(&mut self, event: ConnectionClosed<'_>) {
        if let Some(connections) = self.connections.get_mut(&event.peer_id) {
            connections.retain(|connection| connection.id != event.connection_id);
            if connections.is_empty() {
                self.connections.remove(&event.peer_id);
            }
        }
        // The next best is seen before this one is not any more: who asks meanwhile would find none, and wait for another.
        self.show_best(event.peer_id);
        self.inner.on_swarm_event(FromSwarm::ConnectionClosed(event));
    }

    fn show_best(&mut self, peer_id: PeerId) {
        let Some(connections) = self.connections.get_mut(&peer_id) else {
            return;
        };
        let paths = connections
            .iter()
            .map(|connection| Path::of(&connection.endpoint));
        let best = paths.min();
        let mut circuits = 0;
        for Connection { id, endpoint, shown } in connections {
            circuits += usize::from(endpoint.is_relayed());
            let show = Some(Path::of(endpoint)) == best && !(endpoint.is_relayed() && circuits > 1);
            let event = match (*shown, show) {
                (false, true) => FromSwarm::ConnectionEstablished(ConnectionEstablished {
                    peer_id,
                    connection_id: *id,
                    endpoint,
                    failed_addresses: &[],
                    other_established: 0,
                }),
                (true, false) => FromSwarm::ConnectionClosed(ConnectionClosed {
                    peer_id,
                    connection_id: *id,
                    endpoint,
                    cause: None,
                    remaining_established: 0,
                }),
                _ => continue,
            };
            self.inner.on_swarm_event(event);
            *shown = show;
        }
    }
}

impl NetworkBehaviour for Streams {
    type ConnectionHandler = <libp2p_stream::Behaviour as NetworkBehaviour>::ConnectionHandler;
    type ToSwarm = ();

    fn handle_pending_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: Option<PeerId>,
        addresses: &[Multiaddr],
        role: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        if let Some(peer) = peer {
            self.dials.insert(connection, peer);
        }
        self.inner
            .handle_pending_outbound_connection(connection, peer, addresses, role)
    }

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.inner
            .handle_established_inbound_connection(connection, peer, local, remote)
    }

    fn handle_established_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        address: &Multiaddr,
        role: Endpoint,
        port: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.inner
            .handle_established_outbound_connection(connection, peer, address, role, port)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(event) => self.established(event),
            FromSwarm::ConnectionClosed(event) => self.closed(event),
            FromSwarm::DialFailure(event) => self.not_dialled(event),
            event => self.inner.on_swarm_event(event),
        }
    }

    fn on_connection_handler_event(
        &mut self,
        peer: PeerId,
        connection: ConnectionId,
        event: THandlerOutEvent<Self>,
    ) {
        self.inner.on_connection_handler_event(peer, connection, event);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        self.inner.poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calling::CALL;
    use libp2p_stream::OpenStreamError;
    use std::time::Duration;

    #[tokio::test]
    async fn who_asks_while_a_connection_comes_up_is_told_to_ask_again() {
        let (mut streams, peer_id) = (Streams::new(), PeerId::random());
        let mut control = streams.new_control();
        let (connection_id, port_use) = (ConnectionId::new_unchecked(1), PortUse::Reuse);
        let address: Multiaddr = "/ip4/127.0.0.1/tcp/1".parse().unwrap();
        let role_override = Endpoint::Dialer;
        let _handler = streams
            .handle_established_outbound_connection(connection_id, peer_id, &address, role_override, port_use)
            .unwrap();
        let asks = tokio::spawn(async move { control.open_stream(peer_id, CALL).await });
        tokio::task::yield_now().await;
        streams.on_swarm_event(FromSwarm::ConnectionEstablished(ConnectionEstablished {
            peer_id,
            connection_id,
            endpoint: &ConnectedPoint::Dialer {
                address,
                role_override,
                port_use,
            },
            failed_addresses: &[],
            other_established: 0,
        }));
        let told = tokio::time::timeout(Duration::from_secs(10), asks).await;
        assert!(matches!(told.unwrap().unwrap(), Err(OpenStreamError::Io(_))));
    }

    #[tokio::test]
    async fn who_waits_is_not_told_of_a_dial_that_failed_while_another_is_under_way() {
        let (mut streams, peer) = (Streams::new(), PeerId::random());
        let mut control = streams.new_control();
        let [first, second] = [1, 2].map(ConnectionId::new_unchecked);
        for dial in [first, second] {
            let dialled = streams.handle_pending_outbound_connection(dial, Some(peer), &[], Endpoint::Dialer);
            assert!(dialled.unwrap().is_empty());
        }
        let asks = tokio::spawn(async move { control.open_stream(peer, CALL).await });
        tokio::task::yield_now().await;
        let mut fails = |connection_id| {
            streams.on_swarm_event(FromSwarm::DialFailure(DialFailure {
                peer_id: Some(peer),
                connection_id,
                error: &DialError::NoAddresses,
            }));
        };
        fails(first);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!asks.is_finished());
        fails(second);
        let told = tokio::time::timeout(Duration::from_secs(10), asks).await;
        assert!(matches!(told.unwrap().unwrap(), Err(OpenStreamError::Io(_))));
    }
}
