//! Which node a key is, and where one is that is connected.

use crate::peers::Path;
use libp2p::PeerId;
use libp2p::core::ConnectedPoint;
use libp2p::multiaddr::Protocol;

/// The peer that holds this Ed25519 public key; nothing when it is no key.
pub fn peer_of(key: &[u8; 32]) -> Option<PeerId> {
    let key = libp2p::identity::ed25519::PublicKey::try_from_bytes(key).ok()?;
    Some(libp2p::identity::PublicKey::from(key).to_peer_id())
}

/// Where the other side is, if UDP passes between the two.
pub(super) fn host_of(endpoint: &ConnectedPoint) -> Option<String> {
    let mut address = endpoint.get_remote_address().iter();
    let host = match address.next()? {
        Protocol::Ip4(ip) => ip.to_string(),
        Protocol::Ip6(ip) => ip.to_string(),
        Protocol::Dns(name) | Protocol::Dns4(name) | Protocol::Dns6(name) => name.into_owned(),
        _ => return None,
    };
    let direct = Path::of(endpoint) == Path::Direct;
    direct.then_some(host)
}

/// The Ed25519 public key that a peer id carries.
pub(crate) fn key_of(peer: &PeerId) -> Option<[u8; 32]> {
    let bytes = peer.as_ref().digest();
    let key = libp2p::identity::PublicKey::try_decode_protobuf(bytes).ok()?;
    Some(key.try_into_ed25519().ok()?.to_bytes())
}
