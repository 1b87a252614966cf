//! QUIC first, TCP with Noise and Yamux where UDP does not pass; the gate in front of both.

use crate::gate::{GateError, admit};
use crate::standing::Standing;
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::Boxed;
use libp2p::core::upgrade::Version;
use libp2p::identity::Keypair;
use libp2p::{PeerId, Transport, dns, noise, quic, tcp, yamux};
use std::sync::Arc;

pub(crate) type Gated = Boxed<(PeerId, StreamMuxerBox)>;

pub(crate) fn gated(keypair: &Keypair, standing: Arc<Standing>) -> Result<Gated, GateError> {
    let broken = |error: &dyn std::fmt::Display| GateError::Broken(error.to_string());
    let noise = noise::Config::new(keypair).map_err(|error| broken(&error))?;
    let tcp = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true))
        .upgrade(Version::V1Lazy)
        .authenticate(noise)
        .multiplex(yamux::Config::default())
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let quic = quic::tokio::Transport::new(quic::Config::new(keypair))
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let direct = quic.or_transport(tcp).map(|either, _| either.into_inner());
    let named = dns::tokio::Transport::system(direct).map_err(|error| broken(&error))?;
    Ok(named
        .and_then(move |(peer, muxer), endpoint| admit(standing, peer, muxer, endpoint))
        .boxed())
}
