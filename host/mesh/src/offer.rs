//! Offers on the network: under which keys they are announced, and how a node is asked for its own.
//!
//! A provider record says no more than "this node has something for you"; what it has, the node itself says, on a
//! connection that proves who it is. So no third node can lie about an offer, and the DHT holds no copies that age.

use crate::swarm::MOST_ANNOUNCED;
use crate::wire::{Frame, WireError};
use karman_types::{Digest, Offer, Tier, capability_levels};
use libp2p::kad::RecordKey;
use std::collections::HashSet;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

const OFFER: Frame = Frame::new("offer", 1 << 20);
pub(crate) const TIERS: [Tier; 4] = [Tier::Edge, Tier::Fog, Tier::Cloud, Tier::Space];
/// Nodes of one tier are announced under this many keys: a key keeps only so many providers.
const NODE_SHARDS: u8 = 16;

/// The key of a task on nodes of a tier. One key for each tier, so that the many providers of one do not push out the few
/// of another.
pub(crate) fn task_key(name: &str, tier: Tier) -> RecordKey {
    key(&format!("task/{tier}/{name}"))
}

/// The keys under which all nodes of a tier are found.
pub(crate) fn node_keys(tier: Tier) -> impl Iterator<Item = RecordKey> {
    (0..NODE_SHARDS).map(move |shard| node_key(tier, shard))
}

fn node_key(tier: Tier, shard: u8) -> RecordKey {
    key(&format!("node/{tier}/{shard}"))
}

/// The key of a file, by its digest.
pub(crate) fn blob_key(digest: &Digest) -> RecordKey {
    key(&format!("blob/{digest}"))
}

fn key(text: &str) -> RecordKey {
    RecordKey::new(&Digest::of(text.as_bytes()).as_bytes())
}

/// Every key that an offer is announced under.
pub(crate) fn keys_of(offer: &Offer, public_key: &[u8; 32]) -> HashSet<RecordKey> {
    let mut keys = HashSet::from([node_key(offer.tier, public_key[0] % NODE_SHARDS)]);
    let levels = offer.tasks.iter().flat_map(|task| capability_levels(&task.name));
    let levels = levels.map(|level| task_key(level, offer.tier));
    let files = offer.tasks.iter().map(|task| blob_key(&task.id));
    keys.extend(levels.chain(files).take(MOST_ANNOUNCED - 1));
    keys
}

pub(crate) async fn tell(mut stream: impl AsyncWrite + Unpin, offer: &Offer) -> Result<(), WireError> {
    OFFER.write(&mut stream, offer).await?;
    stream.shutdown().await.map_err(|error| OFFER.broken(error))
}

pub(crate) async fn ask(mut stream: impl AsyncRead + Unpin) -> Result<Offer, WireError> {
    OFFER.read(&mut stream).await
}
