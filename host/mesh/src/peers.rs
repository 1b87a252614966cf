//! The book of peers: who is there, by which path, what they offer.

use crate::membership::Member;
use karman_types::Offer;
use libp2p::PeerId;
use libp2p::core::ConnectedPoint;
use libp2p::multiaddr::Protocol;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How old an offer may be before its node is asked again.
const FRESH: Duration = Duration::from_secs(5);
/// Nodes that are remembered after they have gone.
const MOST_REMEMBERED: usize = 4096;

/// How a node is reached.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// QUIC over UDP.
    Direct,
    /// TCP, where UDP does not pass.
    Tcp,
    /// Over a third node.
    Relayed,
}

impl Path {
    pub(crate) fn of(endpoint: &ConnectedPoint) -> Self {
        if endpoint.is_relayed() {
            return Self::Relayed;
        }
        let address = match endpoint {
            ConnectedPoint::Dialer { address, .. } => address,
            ConnectedPoint::Listener { send_back_addr, .. } => send_back_addr,
        };
        match address.iter().any(|part| matches!(part, Protocol::Tcp(_))) {
            true => Self::Tcp,
            false => Self::Direct,
        }
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Tcp => "tcp",
            Self::Relayed => "relayed",
        })
    }
}

/// What this node knows of another.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its key as libp2p writes it.
    pub id: PeerId,
    /// Its membership, as verified when it came in.
    pub member: Option<Arc<Member>>,
    /// How it is reached; nothing while it is not.
    pub path: Option<Path>,
    /// Whether calls go over a connection of their own now, beside the swarm.
    pub direct_calls: bool,
    /// The last round trip measured.
    pub round_trip: Option<Duration>,
    /// When it was last heard of.
    pub last_seen: Instant,
    /// What it offered when it was last asked, and when that was.
    pub offer: Option<(Arc<Offer>, Instant)>,
}

#[derive(Default)]
pub(crate) struct Peers {
    peers: Mutex<HashMap<PeerId, Peer>>,
    /// How often a node has come into reach.
    arrivals: watch::Sender<u64>,
}

impl Peers {
    pub(crate) fn list(&self) -> Vec<Peer> {
        self.peers.lock().values().cloned().collect()
    }

    pub(crate) fn connected(&self, id: PeerId, path: Path, member: Option<Arc<Member>>) {
        self.change(id, |peer| {
            // A better path does not give way to a worse one that came later.
            let better = |now: Path| match (now, path) {
                (Path::Direct, _) => Path::Direct,
                (now, Path::Relayed) => now,
                _ => path,
            };
            peer.path = Some(peer.path.map_or(path, better));
            peer.member = member;
        });
        self.arrivals.send_modify(|arrivals| *arrivals += 1);
    }

    pub(crate) fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrivals.subscribe()
    }

    pub(crate) fn disconnected(&self, id: &PeerId) {
        self.change(*id, |peer| {
            peer.path = None;
            peer.round_trip = None;
        });
    }

    pub(crate) fn measured(&self, id: &PeerId, round_trip: Duration) {
        self.change(*id, |peer| peer.round_trip = Some(round_trip));
    }

    pub(crate) fn offered(&self, id: PeerId, offer: Offer) -> Arc<Offer> {
        let offer = Arc::new(offer);
        let kept = offer.clone();
        self.change(id, |peer| peer.offer = Some((kept, Instant::now())));
        offer
    }

    /// What the node offered a moment ago.
    pub(crate) fn fresh_offer(&self, id: &PeerId) -> Option<Arc<Offer>> {
        let peers = self.peers.lock();
        let (offer, when) = peers.get(id)?.offer.as_ref()?;
        (when.elapsed() < FRESH).then(|| offer.clone())
    }

    fn change(&self, id: PeerId, change: impl FnOnce(&mut Peer)) {
        let mut peers = self.peers.lock();
        if peers.len() >= MOST_REMEMBERED && !peers.contains_key(&id) {
            let oldest = peers
                .values()
                .filter(|peer| peer.path.is_none())
                .min_by_key(|peer| peer.last_seen)
                .map(|peer| peer.id);
            if let Some(oldest) = oldest {
                peers.remove(&oldest);
            }
        }
        let peer = peers.entry(id).or_insert_with(|| Peer {
            id,
            member: None,
            path: None,
            direct_calls: false,
            round_trip: None,
            last_seen: Instant::now(),
            offer: None,
        });
        peer.last_seen = Instant::now();
        change(peer);
    }
}
