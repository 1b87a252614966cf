//! QUIC first, TCP with Noise and Yamux where UDP does not pass, over a relay where nothing else does; the gate in front of
//! all of them. A relayed connection is encrypted from end to end: the relay carries what it cannot read.

use super::refused::Heedful;
use super::relays::relay_in;
use super::traffic::{Meter, Metered};
use crate::emulate::{Emulated, Lines, SharedLine};
use crate::gate::{GateError, admit};
use crate::membership::Member;
use crate::standing::Standing;
use libp2p::core::ConnectedPoint;
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::{Boxed, timeout::TransportTimeout};
use libp2p::core::upgrade::Version;
use libp2p::identity::Keypair;
use libp2p::{PeerId, Transport, dns, noise, quic, relay, tcp, yamux};
use std::sync::Arc;
use std::time::Duration;

/// How long a TCP dial waits for an answer: what swallows packets would otherwise hold it for two minutes.
const DIAL_PATIENCE: Duration = Duration::from_secs(5);
/// How long a TCP connection that comes in may take for its handshake, on a slow link: whoever says nothing has its place no longer. QUIC has
/// 5 s.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may take to come up, the first exchange and its 20 s among it: one that says nothing would otherwise keep its place
/// among those on their way in for ever.
pub(super) const PATIENCE: Duration = Duration::from_secs(25);

/// A connection that nobody uses costs a packet each way in this time: more seldom, and routers forget it.
const KEEP_ALIVE: Duration = Duration::from_secs(12);
/// A node that is gone is noticed after this time where nobody calls it.
const SILENCE: Duration = Duration::from_secs(30);

pub(crate) type Gated = Boxed<(PeerId, StreamMuxerBox)>;

/// What every connection goes through besides the gate.
#[derive(Clone, Default)]
pub(crate) struct Wires {
    /// Counts its bytes.
    pub(crate) meter: Arc<Meter>,
    /// How it behaves, where links are emulated.
    pub(crate) lines: Option<Arc<Lines>>,
}

pub(crate) fn gated(
    keypair: &Keypair,
    standing: Arc<Standing>,
    relayed: relay::client::Transport,
    Wires { meter, lines }: Wires,
    patience: Duration,
) -> Result<Gated, GateError> {
    let broken = |error: &dyn std::fmt::Display| GateError::Broken(error.to_string());
    let noise = noise::Config::new(keypair).map_err(|error| broken(&error))?;
    let tcp = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true));
    let tcp = TransportTimeout::with_outgoing_timeout(tcp, DIAL_PATIENCE)
        .upgrade(Version::V1Lazy)
        .authenticate(noise.clone())
        .multiplex(yamux::Config::default())
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let tcp = TransportTimeout::with_ingoing_timeout(tcp, HANDSHAKE_PATIENCE);
    let mut quic = quic::Config::new(keypair);
    quic.keep_alive_interval = KEEP_ALIVE;
    quic.max_idle_timeout = SILENCE.as_millis() as u32;
    let quic = Heedful(quic::tokio::Transport::new(quic));
    let quic = quic.map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let direct = quic.or_transport(tcp).map(|either, _| either.into_inner());
    let named = dns::tokio::Transport::system(direct).map_err(|error| broken(&error))?;
    let relayed = relayed
        .upgrade(Version::V1Lazy)
        .authenticate(noise)
        .multiplex(yamux::Config::default())
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    // The relay comes first: the others would take its address for a part of their own.
    let gated = relayed
        .or_transport(named)
        .map(|either, _| either.into_inner())
        .map({
            let meter = meter.clone();
            move |(peer, muxer), endpoint| {
                let metered = Metered::new(muxer, meter, peer, relay_of(&endpoint));
                (peer, StreamMuxerBox::new(metered))
            }
        })
        .and_then({
            let (standing, lines) = (standing.clone(), lines.clone());
            move |(peer, muxer), endpoint| {
                let is_cut = line_to(lines.as_deref(), &standing, &peer, &endpoint)
                    .is_some_and(|line| line.outage().is_some());
                let lines = lines.filter(|_| !endpoint.is_relayed());
                // Of handshake and gate two messages each way come one after the other.
                let way = move |member: &Member| {
                    let line = lines.as_ref().and_then(|lines| lines.to(member));
                    line.map_or(Duration::ZERO, |line| 2 * line.delay())
                };
                async move {
                    match is_cut {
                        true => Err(in_outage()),
                        false => admit(standing, peer, muxer, endpoint, &way).await,
                    }
                }
            }
        })
        .and_then(move |(peer, muxer), endpoint| {
            meter.lets_in(&peer);
            emulate(lines, standing, peer, muxer, endpoint)
        });
    Ok(TransportTimeout::new(gated, patience).boxed())
}

/// The third node that a connection goes over.
fn relay_of(endpoint: &ConnectedPoint) -> Option<PeerId> {
    match endpoint {
        ConnectedPoint::Dialer { address, .. } => relay_in(address),
        ConnectedPoint::Listener { local_addr, .. } => relay_in(local_addr),
    }
}

/// The line to a member; nothing where none is emulated.
fn line_to(
    lines: Option<&Lines>,
    standing: &Standing,
    peer: &PeerId,
    endpoint: &ConnectedPoint,
) -> Option<Arc<SharedLine>> {
    let member = standing.member(peer).filter(|_| !endpoint.is_relayed());
    lines.zip(member).and_then(|(lines, member)| lines.to(&member))
}

fn in_outage() -> GateError {
    GateError::Broken("the link is in an outage of its profile".into())
}

/// Puts the connection on the line to its node, where links are emulated. One over a relay is on that one's line already.
async fn emulate(
    lines: Option<Arc<Lines>>,
    standing: Arc<Standing>,
    peer: PeerId,
    muxer: StreamMuxerBox,
    endpoint: ConnectedPoint,
) -> Result<(PeerId, StreamMuxerBox), GateError> {
    let Some(line) = line_to(lines.as_deref(), &standing, &peer, &endpoint) else {
        return Ok((peer, muxer));
    };
    // One that was not known before has shown at the gate who it is.
    if line.outage().is_some() {
        return Err(in_outage());
    }
    Ok((peer, StreamMuxerBox::new(Emulated::new(muxer, line))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Issuer, RootKey};
    use futures::future::poll_fn;
    use karman_store::Store;
    use karman_types::Tier;
    use libp2p::core::multiaddr::Protocol;
    use libp2p::core::transport::{ListenerId, TransportEvent};
    use std::net::SocketAddr;
    use std::pin::Pin;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn who_connects_and_says_nothing_keeps_no_place() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let keypair = Keypair::ed25519_from_bytes(*store.node_key().seed()).unwrap();
        let issuer = Issuer::root(&RootKey::generate().unwrap());
        let standing = Arc::new(Standing::open(store, Tier::Edge, None, Some(issuer)).unwrap());
        let (relayed, _behaviour) = relay::client::new(keypair.public().to_peer_id());
        let short = Duration::from_millis(100);
        let mut gated = gated(&keypair, standing, relayed, Wires::default(), short).unwrap();
        let at = "/ip4/127.0.0.1/tcp/0".parse().unwrap();
        gated.listen_on(ListenerId::next(), at).unwrap();
        let mut idle = None;
        let comes_up = loop {
            let event = poll_fn(|context| Pin::new(&mut gated).poll(context));
            match timeout(SOON, event).await.unwrap() {
                TransportEvent::NewAddress { listen_addr, .. } => {
                    let Some(Protocol::Tcp(port)) = listen_addr.iter().nth(1) else {
                        panic!("{listen_addr}")
                    };
                    let at = SocketAddr::from(([127, 0, 0, 1], port));
                    idle = Some(TcpStream::connect(at).await.unwrap());
                }
                TransportEvent::Incoming { upgrade, .. } => break upgrade,
                _ => {}
            }
        };
        assert!(timeout(SOON, comes_up).await.unwrap().is_err());
        // What the node has said first is followed by the end.
        let ends = async { idle.unwrap().read_to_end(&mut Vec::new()).await };
        timeout(SOON, ends).await.unwrap().unwrap();
    }
}
