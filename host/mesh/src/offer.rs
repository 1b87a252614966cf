//! Offers on the network: under which keys they are announced, and how a node is asked for its own.
//!
//! A provider record says no more than "this node has something for you"; what it has, the node itself says, on a
//! connection that proves who it is. So no third node can lie about an offer, and the DHT holds no copies that age.

use crate::discovery::Branch;
use crate::swarm::MOST_ANNOUNCED;
use crate::wire::{Frame, WireError};
use karman_types::{Digest, NodeId, Offer, Tier, capability_levels};
use libp2p::kad::RecordKey;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

const STATUS_REPORT: Frame = Frame::new("offer", 1 << 20);
pub(crate) const TIERS: [Tier; 4] = [Tier::Edge, Tier::Fog, Tier::Cloud, Tier::Space];

/// The key of a task on nodes of a tier. One key for each tier, so that the many providers of one do not push out the few
/// of another.
pub(crate) fn task_key(name: &str, tier: Tier) -> RecordKey {
    key(&format!("task/{tier}/{name}"))
}

/// The key under which this very node is found, wherever it is. Nobody else has cause to announce it, so one search finds the node in any
/// size of mesh: the eight next to the key were told when the node last moved, was started, or had its turn. Where a share `f` of
/// all that serve the DHT were replaced since, none of the eight that are asked knows it with a chance of `f⁸`: 0.4 % at one half.
pub(crate) fn node_key(node: NodeId) -> RecordKey {
    key(&format!("node/{node}"))
}

/// The key of a branch of the tree of all nodes.
pub(crate) fn branch_key(branch: &Branch) -> RecordKey {
    key(&format!("nodes/{branch}"))
}

/// The key of a file, by its digest.
pub(crate) fn blob_key(digest: &Digest) -> RecordKey {
    key(&format!("blob/{digest}"))
}

fn key(text: &str) -> RecordKey {
    RecordKey::new(&Digest::of(text.as_bytes()).as_bytes())
}

/// Every key that an offer is announced under by a node that stands so deep in the tree of all nodes.
pub(crate) fn keys_of(offer: &Offer, node: NodeId, depth: usize) -> HashSet<RecordKey> {
    let branches = (0..=depth).map(|depth| Branch::of(offer.tier, node, depth));
    let mut keys: HashSet<RecordKey> = branches.map(|branch| branch_key(&branch)).collect();
    keys.insert(node_key(node));
    let levels = offer.tasks.iter().flat_map(|task| capability_levels(&task.name));
    let levels = levels.map(|level| task_key(level, offer.tier));
    let files = offer.tasks.iter().map(|task| blob_key(&task.id));
    keys.extend(levels.chain(files).take(MOST_ANNOUNCED - keys.len()));
    keys
}

/// How busy a node is that has this many calls under way. That changes all the time; others are told when this does: in quarters of the
/// cores, and in doublings beyond them.
pub(crate) fn level(busy: u32, cores: u32) -> u32 {
    let cores = cores.max(1);
    match busy / cores {
        0 => busy * 4 / cores,
        times => 4 + times.ilog2(),
    }
}

/// A status report of a node. Those that ask for it get the next ones, too, as long as they hold the stream.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct StatusReport {
    /// Which run of the node says so.
    pub(crate) run: u64,
    /// Counts up with every message, whichever nodes hear it.
    pub(crate) number: u64,
    /// Calls under way.
    pub(crate) busy: u32,
    /// Nothing where it is what it was in the report before.
    pub(crate) offer: Option<Offer>,
}

pub(crate) async fn tell(
    stream: &mut (impl AsyncWrite + Unpin),
    report: &StatusReport,
) -> Result<(), WireError> {
    STATUS_REPORT.write(stream, report).await?;
    stream.flush().await.map_err(|error| STATUS_REPORT.broken(error))
}

pub(crate) async fn hear(stream: &mut (impl AsyncRead + Unpin)) -> Result<StatusReport, WireError> {
    STATUS_REPORT.read(stream).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_fine_where_a_core_is_free_and_coarse_beyond() {
        assert_eq!(
            [0, 1, 3, 4, 7, 8, 15, 16].map(|busy| level(busy, 4)),
            [0, 1, 3, 4, 4, 5, 5, 6]
        );
        assert_eq!(level(u32::MAX, 0), 35);
    }
}
