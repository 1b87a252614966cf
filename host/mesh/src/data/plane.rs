use super::outgoing::Outgoing;
use super::uses::Uses;
use super::{silence, tls};
use crate::answers::{Answers, CALLS_PER_PEER};
use crate::emulate::Slowed;
use crate::gate::GateError;
use crate::standing::Standing;
use crate::swarm::Wires;
use libp2p::PeerId;
use libp2p::identity::Keypair;
use parking_lot::Mutex;
use quinn::{
    ClientConfig, Connection, Endpoint, Incoming, RecvStream, SendStream, ServerConfig, TransportConfig,
    VarInt,
};
use socket2::SockRef;
use std::collections::HashMap;
use std::future::pending;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::either::Either;

/// Handshakes of others at once: strangers can begin them.
const HANDSHAKES: usize = 64;
/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long after an attempt the next one is made, where the node cannot be reached directly.
const AGAIN: Duration = Duration::from_secs(30);
/// How often connections are looked through.
const ROUNDS: Duration = Duration::from_secs(2);
/// How long a connection may stay that no call uses.
const UNUSED: Duration = Duration::from_secs(600);
/// How long a connection for calls lasts on which nothing comes: a node that is gone is noticed after this time, and asked whether it is there
/// after a third of it.
pub const SILENCE: Duration = Duration::from_secs(12);
/// Bytes that may be under way on one stream and on one connection: 1 Gbit/s at a round trip of 60 and 120 ms.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Bytes of packets that may wait in the socket for calls, as far as the system allows so many.
pub const SOCKET_BUFFER: usize = 4 << 20;

const NOT_ADMITTED: VarInt = VarInt::from_u32(1);
const REPLACED: VarInt = VarInt::from_u32(2);
const DONE: VarInt = VarInt::from_u32(3);
const SILENT: VarInt = VarInt::from_u32(4);

/// Where a call is written.
pub(crate) type OnLine = Either<Outgoing, Slowed>;

/// The connections that carry calls.
pub(crate) struct Plane {
    endpoint: Endpoint,
    client: ClientConfig,
    standing: Arc<Standing>,
    answers: Arc<Answers>,
    links: Mutex<HashMap<PeerId, Link>>,
    /// There is a link again where there was none, or this is over.
    linked: Arc<Notify>,
    threads: Handle,
    wires: Wires,
}

/// What connects this node with another: at most one connection that it opened itself, and one that the other opened.
#[derive(Default)]
struct Link {
    ours: Option<Connection>,
    theirs: Option<Connection>,
    tried: Option<Instant>,
    uses: Uses,
    /// With which run of the other node.
    run: Option<u64>,
}

impl Plane {
    /// Takes calls at this address, on these threads. Where its port is taken, on another:
    /// members are told at the gate.
    pub(crate) fn start(
        keypair: &Keypair,
        at: SocketAddr,
        standing: Arc<Standing>,
        answers: Arc<Answers>,
        threads: Handle,
        wires: Wires,
    ) -> Result<Arc<Self>, GateError> {
        let broken = |error: std::io::Error| GateError::Broken(error.to_string());
        let (server, client) = tls::configs(keypair)?;
        let transport = Arc::new(transport());
        let mut server = ServerConfig::with_crypto(Arc::new(server));
        server.transport_config(transport.clone());
        let mut client = ClientConfig::new(Arc::new(client));
        client.transport_config(transport);
        let _inside = threads.enter();
        let socket = UdpSocket::bind(at)
            .or_else(|_| UdpSocket::bind((at.ip(), 0)))
            .map_err(broken)?;
        have_room(&socket);
        let endpoint = Endpoint::new(
            quinn::EndpointConfig::default(),
            Some(server),
            socket,
            Arc::new(quinn::TokioRuntime),
        );
        let endpoint = endpoint.map_err(broken)?;
        standing.takes_calls_at(endpoint.local_addr().map_err(broken)?.port());
        let plane = Arc::new(Self {
            endpoint,
            client,
            standing,
            answers,
            links: Mutex::default(),
            linked: Arc::default(),
            threads: threads.clone(),
            wires,
        });
        threads.spawn(plane.clone().accept());
        threads.spawn(look_after(Arc::downgrade(&plane)));
        Ok(plane)
    }

    /// Ends every connection; nothing comes in any more.
    pub(crate) fn close(&self) {
        self.endpoint.close(DONE, b"the node leaves");
    }

    /// A stream to the node, if there is a connection.
    pub(crate) async fn open(&self, peer: &PeerId) -> Option<(RecvStream, OnLine)> {
        let connection = self.connection(peer)?;
        let (output, input) = connection.open_bi().await.ok()?;
        Some((input, self.on_line(peer, output)))
    }

    /// Over when nothing is heard of the node any more though it is sent something; its connection has ended then, so that nobody else
    /// waits on it.
    pub(crate) async fn falls_silent(&self, peer: &PeerId) {
        let Some(connection) = self.connection(peer) else {
            return pending().await;
        };
        silence::falls(&connection).await;
        connection.close(SILENT, b"nothing is heard");
    }

    /// The half that writes, by the line to the node where links are emulated.
    fn on_line(&self, peer: &PeerId, output: SendStream) -> OnLine {
        let uses = self.links.lock().get(peer).map(|link| link.uses.begin());
        let output = Outgoing::new(output, self.wires.meter.link(peer), uses);
        let member = self.wires.lines.as_ref().zip(self.standing.member(peer));
        match member.and_then(|(lines, member)| lines.to(&member)) {
            Some(line) => Either::Right(Slowed::new(output, line)),
            None => Either::Left(output),
        }
    }

    /// Whether calls to the node go this way now.
    pub(crate) fn reaches(&self, peer: &PeerId) -> bool {
        self.links
            .lock()
            .get(peer)
            .is_some_and(|link| link.live().is_some())
    }

    /// Ends the connections with the node, and lets new ones be opened at once.
    pub(crate) fn disconnect(&self, peer: &PeerId) {
        if let Some(mut link) = self.links.lock().remove(peer) {
            link.close(DONE, b"the contact is over");
        }
    }

    pub(super) fn connection(&self, peer: &PeerId) -> Option<Connection> {
        let mut links = self.links.lock();
        let link = links.get_mut(peer)?;
        link.leave_earlier(self.standing.run_of(peer));
        link.uses.touch();
        link.live().cloned()
    }

    /// Opens a connection to the node in the background, where it said how it is reached: no call waits for what may never
    /// come. The node must have let this one in before.
    pub(crate) fn want(self: &Arc<Self>, peer: PeerId) {
        let Some(at) = self.standing.calls_at(&peer) else {
            return;
        };
        let mut links = self.links.lock();
        let link = links.entry(peer).or_default();
        self.linked.notify_one();
        link.leave_earlier(self.standing.run_of(&peer));
        if link.live().is_some() || link.tried.is_some_and(|tried| tried.elapsed() < AGAIN) {
            return;
        }
        link.tried = Some(Instant::now());
        let plane = self.clone();
        // Its driver runs on the runtime where it is opened, from whichever one the call comes.
        self.threads.spawn(async move {
            match timeout(PATIENCE, plane.connect(&peer, at)).await {
                Ok(Ok(connection)) => plane.keep(peer, connection, |link| &mut link.ours),
                Ok(Err(error)) => tracing::debug!(%peer, %error, "no direct connection for calls"),
                Err(_) => tracing::debug!(%peer, "no direct connection for calls: no answer"),
            }
        });
    }

    pub(super) async fn connect(
        &self,
        peer: &PeerId,
        (host, port): (String, u16),
    ) -> Result<Connection, GateError> {
        let broken = |error: &dyn std::fmt::Display| GateError::Broken(error.to_string());
        let mut found = tokio::net::lookup_host((host.as_str(), port))
            .await
            .map_err(|error| broken(&error))?;
        let at = found
            .next()
            .ok_or_else(|| broken(&format!("{host} has no address")))?;
        let connecting = self
            .endpoint
            .connect_with(self.client.clone(), at, tls::SERVER)
            .map_err(|error| broken(&error))?;
        let connection = connecting.await.map_err(|error| broken(&error))?;
        match tls::peer_of(&connection) {
            Some(there) if there == *peer => Ok(connection),
            _ => Err(GateError::Broken(format!("another node answers at {at}"))),
        }
    }

    /// Those who ask to come in. Nothing is kept for an address that has not proved to be one while many ask.
    async fn accept(self: Arc<Self>) {
        let places = Arc::new(Semaphore::new(HANDSHAKES));
        while let Some(incoming) = self.endpoint.accept().await {
            let crowded = places.available_permits() < HANDSHAKES / 2;
            if crowded && incoming.may_retry() {
                let _ = incoming.retry();
                continue;
            }
            let Ok(place) = places.clone().try_acquire_owned() else {
                incoming.refuse();
                continue;
            };
            let plane = self.clone();
            self.threads.spawn(async move {
                let admitted = timeout(PATIENCE, plane.admit(incoming)).await;
                drop(place);
                match admitted.unwrap_or(Err(GateError::Slow)) {
                    Ok((peer, connection)) => plane.keep(peer, connection, |link| &mut link.theirs),
                    Err(error) => {
                        plane.standing.turned(&error);
                        tracing::info!(%error, "a connection for calls was not let in");
                    }
                }
            });
        }
    }

    async fn admit(&self, incoming: Incoming) -> Result<(PeerId, Connection), GateError> {
        let connection = incoming
            .await
            .map_err(|error| GateError::Broken(error.to_string()))?;
        let peer = tls::peer_of(&connection);
        match peer.filter(|peer| self.standing.member(peer).is_some()) {
            Some(peer) => Ok((peer, connection)),
            None => {
                connection.close(NOT_ADMITTED, GateError::NotAdmitted.to_string().as_bytes());
                Err(GateError::NotAdmitted)
            }
        }
    }

    /// Keeps a connection, and answers the calls that come on it. A newer one takes the place of an older.
    fn keep(
        self: &Arc<Self>,
        peer: PeerId,
        connection: Connection,
        slot: fn(&mut Link) -> &mut Option<Connection>,
    ) {
        let mut links = self.links.lock();
        let link = links.entry(peer).or_default();
        self.linked.notify_one();
        link.leave_earlier(self.standing.run_of(&peer));
        link.uses.touch();
        if let Some(older) = slot(link).replace(connection.clone()) {
            older.close(REPLACED, b"a newer connection took its place");
        }
        self.threads.spawn(self.clone().serve(peer, connection));
    }

    async fn serve(self: Arc<Self>, peer: PeerId, connection: Connection) {
        while let Ok((output, input)) = connection.accept_bi().await {
            let line = connection.clone();
            let gone = async move { drop(line.closed().await) };
            self.answers
                .take(peer, (input, self.on_line(&peer, output)), gone);
        }
    }

    /// Ends the connections of those who are members no longer, and those that nobody uses.
    fn look_through(&self) {
        self.links.lock().retain(|peer, link| {
            link.leave_earlier(self.standing.run_of(peer));
            if self.standing.member(peer).is_none() {
                link.close(NOT_ADMITTED, GateError::NotAdmitted.to_string().as_bytes());
            } else if link.uses.are_over(UNUSED, Instant::now()) {
                link.close(DONE, b"not used");
            }
            link.live().is_some() || link.tried.is_some_and(|tried| tried.elapsed() < AGAIN)
        });
    }
}

/// Looks after the links as long as there are any.
async fn look_after(plane: Weak<Plane>) {
    loop {
        let Some(plane_now) = plane.upgrade() else { return };
        plane_now.look_through();
        let linked = plane_now
            .links
            .lock()
            .is_empty()
            .then(|| plane_now.linked.clone());
        drop(plane_now);
        match linked {
            Some(linked) => linked.notified().await,
            None => sleep(ROUNDS).await,
        }
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.linked.notify_one();
    }
}

impl Link {
    fn live(&self) -> Option<&Connection> {
        let both = [&self.ours, &self.theirs];
        both.into_iter()
            .flatten()
            .find(|connection| connection.close_reason().is_none())
    }

    /// Ends connections with a run of the other node before this one: it does not answer on them any more.
    fn leave_earlier(&mut self, run: Option<u64>) {
        if run.is_some() && self.run != run {
            self.close(REPLACED, b"the node was started again");
            (self.run, self.tried) = (run, None);
        }
    }

    fn close(&mut self, code: VarInt, why: &[u8]) {
        for connection in [self.ours.take(), self.theirs.take()].into_iter().flatten() {
            connection.close(code, why);
        }
    }
}

/// What comes while the thread that reads is elsewhere waits here. What does not fit is lost, and the other end takes that for a link that
/// is full; what a system gives by itself is used up by a tensor. It gives as much of this as it allows (`net.core.rmem_max`).
fn have_room(socket: &UdpSocket) {
    let socket = SockRef::from(socket);
    for given in [
        socket.set_recv_buffer_size(SOCKET_BUFFER),
        socket.set_send_buffer_size(SOCKET_BUFFER),
    ] {
        if let Err(error) = given {
            tracing::debug!(%error, "the socket for calls keeps the buffers that it has");
        }
    }
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(CALLS_PER_PEER as u32))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .send_window(u64::from(CONNECTION_WINDOW))
        .keep_alive_interval(Some(SILENCE / 3))
        .max_idle_timeout(SILENCE.try_into().ok());
    transport
}
