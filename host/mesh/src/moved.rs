//! Nodes that are not where they were. One that moves while nothing connects it with this one tells only those of it whom it meets
//! then; and it announces itself anew, so the DHT knows where it is. Whoever is called and does not answer is searched for there,
//! while it goes on being dialled where it was.

use crate::calling::PATIENCE;
use crate::gate::key_of;
use crate::mesh::Mesh;
use crate::offer::{self, TIERS};
use karman_types::TaskError;
use libp2p::{PeerId, Stream, StreamProtocol};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long a node may take to answer where it was before it is searched for. Keepers give up on one another after a second.
const HEAD_START: Duration = Duration::from_millis(500);
/// Round trips that it may take, where they are known and longer: handshake, gate and stream take most of them.
const ROUND_TRIPS: u32 = 6;
/// Before this time is over a node is not searched for again.
const AGAIN: Duration = Duration::from_secs(30);
/// Searches that begin within that time: each goes through the DHT, though it meets nobody else that is found.
const MOST: usize = 16;

/// When nodes were searched for.
#[derive(Default)]
pub(crate) struct Searches(Mutex<HashMap<PeerId, Instant>>);

impl Searches {
    /// Whether to search for the node now.
    fn begins(&self, id: PeerId, now: Instant) -> bool {
        let mut begun = self.0.lock();
        begun.retain(|_, when| now.duration_since(*when) < AGAIN);
        if begun.len() >= MOST || begun.contains_key(&id) {
            return false;
        }
        begun.insert(id, now);
        true
    }
}

impl Mesh {
    /// A stream to a node, which is searched for where it does not answer: once in a while, and within the time that it may take to
    /// answer. A search that nobody waits for any more goes on, so that the next call finds the node there.
    pub(crate) async fn stream_anywhere(
        &self,
        id: PeerId,
        protocol: StreamProtocol,
    ) -> Result<Stream, TaskError> {
        if self.is_connected(&id) {
            return self.stream(id, protocol).await;
        }
        let begun = Instant::now();
        let answers = timeout(self.head_start(&id), self.stream(id, protocol.clone()));
        let failed = match answers.await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        if self.0.searches.begins(id, Instant::now()) {
            let _ = timeout(PATIENCE.saturating_sub(begun.elapsed()), self.search(id)).await;
        }
        if self.is_connected(&id) {
            return self.stream(id, protocol).await;
        }
        match failed {
            Some(error) => Err(error),
            // It is still dialled where it was.
            None => {
                let left = PATIENCE.saturating_sub(begun.elapsed());
                self.stream_within(id, protocol, left).await
            }
        }
    }

    fn head_start(&self, id: &PeerId) -> Duration {
        let trips = self.0.peers.round_trip(id).map(|trip| ROUND_TRIPS * trip);
        HEAD_START.max(trips.unwrap_or_default()).min(PATIENCE / 2)
    }

    /// Meets a node wherever it ever was, and where the DHT says that it is now; over when it is in reach, or nobody knows of it.
    async fn search(&self, id: PeerId) {
        let Some(key) = key_of(&id) else { return };
        let tier = self.0.peers.tier(&id);
        let tiers = TIERS
            .into_iter()
            .filter(|one| tier.is_none_or(|tier| tier == *one));
        let keys: Vec<_> = tiers.map(|tier| offer::key_of_node(tier, &key)).collect();
        tracing::debug!(peer = %id, "a node does not answer where it was, and is searched for");
        self.meet(id).await;
        let mut comes = pin!(self.comes(&id));
        let found = tokio::select! {
            () = &mut comes => return,
            found = self.find_one(keys, Some(id)) => found.contains(&id),
        };
        match found {
            true => comes.await,
            // Perhaps it is where it was long ago.
            false => drop(timeout(HEAD_START, comes).await),
        }
    }

    /// Waits until a node is in reach.
    async fn comes(&self, id: &PeerId) {
        let mut arrivals = self.0.peers.arrivals();
        while !self.is_connected(id) && arrivals.changed().await.is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::RootKey;
    use crate::support::{Node, addresses, head, invite, start};
    use karman_types::Tier;

    const SOON: Duration = Duration::from_secs(30);

    #[test]
    fn a_node_is_searched_for_once_in_a_while_and_few_at_a_time() {
        let (searches, start, id) = (Searches::default(), Instant::now(), PeerId::random());
        assert!(searches.begins(id, start));
        assert!(!searches.begins(id, start + AGAIN - Duration::from_millis(1)));
        assert!(searches.begins(id, start + AGAIN));
        let others = (0..2 * MOST).filter(|_| searches.begins(PeerId::random(), start + AGAIN));
        assert_eq!(others.count(), MOST - 1);
    }

    async fn until(what: &str, holds: impl Fn() -> bool) {
        let started = Instant::now();
        while !holds() {
            assert!(started.elapsed() < SOON, "{what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn all_connected(nodes: &[&Node]) -> bool {
        nodes.iter().all(|one| {
            let mut others = nodes.iter().filter(|other| other.id != one.id);
            others.all(|other| one.mesh.is_connected(&other.mesh.me()))
        })
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_that_has_moved_unseen_is_called_where_it_is_now() {
        let root = RootKey::generate().unwrap();
        let first = start(None, Some(&root));
        let mut at = vec![addresses(&first).await.swap_remove(0)];
        // These have enough company in one another: they tell nobody of the one that calls, and do not look for it.
        let mut others = Vec::new();
        for _ in 0..2 {
            let other = start(Some(invite(&root, &at)), None);
            other.mesh.admitted(SOON).await.unwrap();
            at.push(addresses(&other).await.swap_remove(0));
            others.push(other);
        }
        let moves = start(Some(invite(&root, &at)), None);
        moves.mesh.admitted(SOON).await.unwrap();
        let peer = moves.mesh.me();
        until("they do not meet", || {
            all_connected(&[&first, &others[0], &others[1], &moves])
        })
        .await;
        let calls = start(Some(invite(&root, &at)), None);
        calls.mesh.admitted(SOON).await.unwrap();
        calls.mesh.dial(addresses(&moves).await.swap_remove(0)).await;
        until("it does not meet the one that will move", || {
            !calls.mesh.place_of(moves.id).is_empty()
        })
        .await;

        let stopped = moves.stop();
        calls.mesh.part(peer).await;
        until("it does not part", || !calls.mesh.is_connected(&peer)).await;
        let moved = stopped.start_among(invite(&root, &at));
        moved.mesh.announce().await;
        let keys = || [offer::key_of_node(Tier::Edge, &key_of(&peer).unwrap())];
        let started = Instant::now();
        while !first.mesh.find(keys()).await.contains(&peer) {
            assert!(started.elapsed() < SOON, "nobody knows where it is");
        }
        let called = calls.mesh.call(peer, head("vision/echo"), "1").await;
        assert_eq!(called.unwrap().0.body, "1");
    }
}
