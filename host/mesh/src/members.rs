//! Members tell each other whom they are connected with, and where these say they are. That is hearsay: a node that is met there
//! shows at the gate who it is, and only then is remembered.

use crate::calling::{PATIENCE, node_of};
use crate::mesh::{Inner, Mesh};
use crate::wire::{Frame, WireError};
use futures::StreamExt;
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId, StreamProtocol};
use libp2p_stream::IncomingStreams;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Weak};
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::compat::FuturesAsyncReadCompatExt;

pub(crate) const MEMBERS: StreamProtocol = StreamProtocol::new("/karman/members/1");
const TOLD: Frame = Frame::new("members", 16 << 10);
/// Members that one is told of at a time.
const MOST_TOLD: usize = 8;
/// Addresses that are taken from one answer, and the characters of one.
const MOST_ADDRESSES: usize = 48;
const LONGEST_ADDRESS: usize = 256;
/// Questions that are answered at once; one more is dropped, and asked again.
const MOST_QUESTIONS: usize = 64;

/// Where members are. Each address ends with the key of the member.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Told {
    addresses: Vec<String>,
}

/// Reads what a member tells of others: addresses that name whom they lead to, at most 48. What is no such address is passed over.
///
/// # Errors
/// When the bytes are no such answer.
pub fn read_members(bytes: &[u8]) -> Result<Vec<Multiaddr>, WireError> {
    Ok(TOLD.decode::<Told>(bytes)?.addresses())
}

impl Told {
    fn addresses(self) -> Vec<Multiaddr> {
        let short = self.addresses.into_iter().take(MOST_ADDRESSES);
        let read = short.filter(|text| text.len() <= LONGEST_ADDRESS);
        let read = read.filter_map(|text| text.parse::<Multiaddr>().ok());
        let leads_to_a_node = |address: &Multiaddr| {
            let mut parts = address.iter();
            let begins = !matches!(parts.next(), Some(Protocol::P2p(_) | Protocol::P2pCircuit));
            begins && matches!(parts.last(), Some(Protocol::P2p(_)))
        };
        read.filter(leads_to_a_node).collect()
    }
}

impl Mesh {
    /// Whom a member is connected with; nothing where it does not say.
    pub(crate) async fn ask_whom_it_knows(&self, member: PeerId) -> Option<Vec<Multiaddr>> {
        let mut stream = self.stream(member, MEMBERS).await.ok()?.compat();
        let told = timeout(self.patience(&member), TOLD.read::<Told>(&mut stream));
        let told = told.await.ok()?;
        let told =
            told.inspect_err(|error| tracing::debug!(%member, %error, "it does not say whom it knows"));
        Some(told.ok()?.addresses())
    }

    /// Where some of those are that this node is connected with, for one of them.
    fn tell_of_others(&self, asks: &PeerId) -> Told {
        let mut others = self.0.peers.there();
        others.retain(|other| other != asks && self.0.standing.member(other).is_some());
        fastrand::shuffle(&mut others);
        let acquaintances = self.0.standing.acquaintances();
        let of = |other: PeerId| {
            let addresses = acquaintances.addresses(node_of(&other)).into_iter();
            addresses.filter_map(move |text| text.parse::<Multiaddr>().ok()?.with_p2p(other).ok())
        };
        let addresses = others.into_iter().take(MOST_TOLD).flat_map(of);
        let addresses = addresses.map(|address| address.to_string());
        Told {
            addresses: addresses
                .filter(|text| text.len() <= LONGEST_ADDRESS)
                .take(MOST_ADDRESSES)
                .collect(),
        }
    }
}

/// Tells those who ask.
pub(crate) async fn tell_members(mesh: Weak<Inner>, mut questions: IncomingStreams) {
    let places = Arc::new(Semaphore::new(MOST_QUESTIONS));
    while let Some((peer, stream)) = questions.next().await {
        let Some(inner) = mesh.upgrade() else { return };
        let Ok(place) = places.clone().try_acquire_owned() else {
            continue;
        };
        if inner.standing.member(&peer).is_none() {
            continue;
        }
        let told = Mesh(inner).tell_of_others(&peer);
        tokio::spawn(async move {
            let _place = place;
            let mut stream = stream.compat();
            let telling = async {
                TOLD.write(&mut stream, &told).await?;
                stream.shutdown().await.map_err(|error| TOLD.broken(error))
            };
            if let Ok(Err(error)) = timeout(PATIENCE, telling).await {
                tracing::trace!(%peer, %error, "a member is not told of others");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(addresses: &[String]) -> Vec<String> {
        let told = Told {
            addresses: addresses.to_vec(),
        };
        let bytes = TOLD.encode(&told).unwrap();
        let read = read_members(&bytes[4..]).unwrap();
        read.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_addresses_that_name_whom_they_lead_to_are_taken_and_not_too_many() {
        let (one, relay) = (PeerId::random(), PeerId::random());
        let good = [
            format!("/ip4/192.0.2.7/udp/7117/quic-v1/p2p/{one}"),
            format!("/ip4/192.0.2.8/tcp/7117/p2p/{relay}/p2p-circuit/p2p/{one}"),
        ];
        let bad = [
            "/ip4/192.0.2.7/udp/7117/quic-v1".to_owned(),
            format!("/p2p/{one}"),
            "nonsense".to_owned(),
            format!("/dns/{}/tcp/1/p2p/{one}", "x".repeat(300)),
        ];
        assert_eq!(read(&[&good[..], &bad].concat()), good);
        let many: Vec<String> = (1..=100)
            .map(|port| format!("/ip4/192.0.2.7/tcp/{port}/p2p/{one}"))
            .collect();
        assert_eq!(read(&many).len(), MOST_ADDRESSES);
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for bytes in [&b""[..], b"\xff", b"\x81\x81\x81"] {
            assert!(matches!(read_members(bytes), Err(WireError::Malformed { .. })));
        }
    }
}
