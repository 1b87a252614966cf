//! Nodes that are not where they were. One that moves while nothing connects it with this one tells only those of it whom it meets
//! then; and it announces itself anew, so the DHT knows where it is. A node that is called and does not answer is searched for there,
//! under a key that [no other node announces](node_key), while it goes on being dialled where it was. One search is for all who call it
//! meanwhile.

use crate::calling::node_of;
use crate::mesh::Mesh;
use crate::offer::node_key;
use crate::swarm::Aim;
use karman_types::TaskError;
use libp2p::{PeerId, Stream, StreamProtocol};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// How long a node may take to answer where it was before it is searched for. Keepers give up on one another after a second.
const HEAD_START: Duration = Duration::from_millis(500);
/// Round trips that it may take, where they are known and longer: handshake, gate and stream take most of them.
const ROUND_TRIPS: u32 = 6;
/// Before this time is over a node is not searched for again.
const AGAIN: Duration = Duration::from_secs(30);
/// Searches that ask the DHT at once; others wait for a place. A node that does not answer holds none while it is dialled.
const AT_ONCE: usize = 8;
/// Nodes that are searched for, or were within that time: each search begins some connections.
const MOST: usize = 1024;

/// Searches for nodes: those that are under way, and when the others were.
pub(crate) struct Searches {
    begun: Mutex<HashMap<PeerId, Begun>>,
    places: Semaphore,
}

struct Begun {
    when: Instant,
    /// Closed when it is over.
    over: watch::Receiver<()>,
}

impl Begun {
    fn is_under_way(&self) -> bool {
        self.over.has_changed().is_ok()
    }
}

/// What one does that wants a node.
enum Turn {
    /// Search for it, and drop the first when that is over.
    Begin(watch::Sender<()>, watch::Receiver<()>),
    /// Wait for the search that somebody else has begun.
    Join(watch::Receiver<()>),
    /// Do without: it was searched for a moment ago.
    Rest,
}

impl Default for Searches {
    fn default() -> Self {
        Self {
            begun: Mutex::default(),
            places: Semaphore::new(AT_ONCE),
        }
    }
}

impl Searches {
    fn turn(&self, id: PeerId, now: Instant) -> Turn {
        let mut begun = self.begun.lock();
        begun.retain(|_, search| search.is_under_way() || now.duration_since(search.when) < AGAIN);
        match begun.get(&id) {
            Some(search) if search.is_under_way() => Turn::Join(search.over.clone()),
            Some(_) => Turn::Rest,
            None if begun.len() >= MOST => Turn::Rest,
            None => {
                let (search, over) = watch::channel(());
                let when = now;
                begun.insert(
                    id,
                    Begun {
                        when,
                        over: over.clone(),
                    },
                );
                Turn::Begin(search, over)
            }
        }
    }
}

/// Waits until a search is over.
async fn over(mut search: watch::Receiver<()>) {
    while search.changed().await.is_ok() {}
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
        let left = || self.patience(&id).saturating_sub(begun.elapsed());
        let search = self.searched(id);
        let failed = failed.filter(|_| search.is_none());
        if let Some(search) = search {
            let _ = timeout(left(), over(search)).await;
        }
        if self.is_connected(&id) {
            return self.stream(id, protocol).await;
        }
        match failed {
            Some(error) => Err(error),
            // It is still dialled where it was, or where the search has found it: the last of these dials that fails is heard of.
            None => self.stream_within(id, protocol, left()).await,
        }
    }

    fn head_start(&self, id: &PeerId) -> Duration {
        let trips = self.0.peers.round_trip(id).map(|trip| ROUND_TRIPS * trip);
        HEAD_START
            .max(trips.unwrap_or_default())
            .min(self.patience(id) / 2)
    }

    /// The search for a node, which begins if none is under way; nothing where it was searched for a moment ago.
    fn searched(&self, id: PeerId) -> Option<watch::Receiver<()>> {
        match self.0.searches.turn(id, Instant::now()) {
            Turn::Rest => None,
            Turn::Join(over) => Some(over),
            Turn::Begin(search, over) => {
                let mesh = self.clone();
                tokio::spawn(async move {
                    let _ = timeout(mesh.patience(&id), mesh.search(id)).await;
                    drop(search);
                });
                Some(over)
            }
        }
    }

    /// Meets a node wherever it ever was, and where the DHT says that it is now; over when it is in reach, or all have been asked that
    /// may know of it. It may be dialled still then.
    async fn search(&self, id: PeerId) {
        tracing::debug!(peer = %id, "a node does not answer where it was, and is searched for");
        self.connect(id).await;
        let asks = async {
            let _place = self.0.searches.places.acquire().await;
            self.seen(node_key(node_of(&id)), Aim::One(id)).await
        };
        tokio::select! {
            () = self.comes(&id) => {}
            _ = asks => {}
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

    const SOON: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn one_search_is_for_all_who_want_a_node_and_the_next_begins_a_while_later() {
        let (searches, start, id) = (Searches::default(), Instant::now(), PeerId::random());
        let Turn::Begin(search, _) = searches.turn(id, start) else {
            panic!("nobody searches for it");
        };
        let Turn::Join(joined) = searches.turn(id, start + Duration::from_secs(1)) else {
            panic!("it is searched for twice");
        };
        let waits = tokio::spawn(over(joined));
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        // It may take as long as over slow links.
        assert!(matches!(searches.turn(id, start + 2 * AGAIN), Turn::Join(_)));
        drop(search);
        timeout(SOON, waits).await.unwrap().unwrap();
        let later = start + AGAIN;
        let just_before = later - Duration::from_millis(1);
        assert!(matches!(searches.turn(id, just_before), Turn::Rest));
        assert!(matches!(searches.turn(id, later), Turn::Begin(..)));
    }

    #[test]
    fn nodes_that_were_searched_for_in_vain_keep_nobody_from_being_searched_for() {
        let (searches, now) = (Searches::default(), Instant::now());
        let begins = |_: &usize| matches!(searches.turn(PeerId::random(), now), Turn::Begin(..));
        assert_eq!((0..2 * MOST).filter(begins).count(), MOST);
        let later = now + AGAIN;
        assert!(matches!(searches.turn(PeerId::random(), later), Turn::Begin(..)));
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
        calls.mesh.disconnect(peer).await;
        until("it does not part", || !calls.mesh.is_connected(&peer)).await;
        let moved = stopped.start_among(invite(&root, &at));
        moved.mesh.announce().await;
        let started = Instant::now();
        while !first.mesh.find([node_key(moved.id)]).await.contains(&peer) {
            assert!(started.elapsed() < SOON, "nobody knows where it is");
        }
        let called = calls.mesh.call(peer, head("vision/echo"), "1").await;
        assert_eq!(called.unwrap().0.body, "1");
    }
}
