//! QUIC first, TCP with Noise and Yamux where UDP does not pass, over a relay where nothing else does; the gate in front of
//! all of them. A relayed connection is encrypted from end to end: the relay carries what it cannot read.

use super::traffic::{Meter, Metered};
use crate::gate::{GateError, admit};
use crate::standing::Standing;
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::{Boxed, timeout::TransportTimeout};
use libp2p::core::upgrade::Version;
use libp2p::identity::Keypair;
use libp2p::{PeerId, Transport, dns, noise, quic, relay, tcp, yamux};
use std::sync::Arc;
use std::time::Duration;

/// How long a TCP dial waits for an answer: what swallows packets would otherwise hold it for two minutes.
const DIAL_PATIENCE: Duration = Duration::from_secs(5);

/// A connection that nobody uses costs a packet each way in this time: more seldom, and routers forget it.
const KEEP_ALIVE: Duration = Duration::from_secs(12);
/// A node that is gone is noticed after this time where nobody calls it.
const SILENCE: Duration = Duration::from_secs(30);

pub(crate) type Gated = Boxed<(PeerId, StreamMuxerBox)>;

pub(crate) fn gated(
    keypair: &Keypair,
    standing: Arc<Standing>,
    relayed: relay::client::Transport,
    meter: Arc<Meter>,
) -> Result<Gated, GateError> {
    let broken = |error: &dyn std::fmt::Display| GateError::Broken(error.to_string());
    let noise = noise::Config::new(keypair).map_err(|error| broken(&error))?;
    let tcp = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true));
    let tcp = TransportTimeout::with_outgoing_timeout(tcp, DIAL_PATIENCE)
        .upgrade(Version::V1Lazy)
        .authenticate(noise.clone())
        .multiplex(yamux::Config::default())
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let mut quic = quic::Config::new(keypair);
    quic.keep_alive_interval = KEEP_ALIVE;
    quic.max_idle_timeout = SILENCE.as_millis() as u32;
    let quic = quic::tokio::Transport::new(quic).map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let direct = quic.or_transport(tcp).map(|either, _| either.into_inner());
    let named = dns::tokio::Transport::system(direct).map_err(|error| broken(&error))?;
    let relayed = relayed
        .upgrade(Version::V1Lazy)
        .authenticate(noise)
        .multiplex(yamux::Config::default())
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    // The relay comes first: the others would take its address for a part of their own.
    Ok(relayed
        .or_transport(named)
        .map(|either, _| either.into_inner())
        .map(move |(peer, muxer), _| (peer, StreamMuxerBox::new(Metered::new(muxer, meter.clone()))))
        .and_then(move |(peer, muxer), endpoint| admit(standing, peer, muxer, endpoint))
        .boxed())
}
