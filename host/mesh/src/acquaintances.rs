use crate::membership::{Member, UnixTime};
use crate::standing::Standing;
use karman_store::{Store, StoreError};
use karman_types::NodeId;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

const RECORD: &str = "acquaintances";
/// Members that are remembered; one more takes the place of the one that was there longest ago.
const MOST: usize = 4096;
/// Addresses of one.
pub(crate) const MOST_ADDRESSES: usize = 6;
/// Moves of one that are written in an hour: a member that says all the time that it has moved keeps no disk busy.
const MOST_MOVES: u32 = 10;
const HOUR: Duration = Duration::from_secs(3600);
const DAY: u64 = 86_400;
/// How long nothing is written after a write, for each member that is remembered: all are written at once, some 20 KB a second at most, and
/// what changes in a mesh of a few is on the disk at once.
const REST: Duration = Duration::from_millis(15);
/// When it is tried again to write what the disk did not take.
const AGAIN: Duration = Duration::from_secs(60);

/// The members that were ever let in: by which key, and where they were. What waits for one of them is sealed to its key, which
/// a node's id does not tell; and when its contact comes, nobody else is there to ask where it is. Survives a restart.
pub(crate) struct Acquaintances {
    store: Store,
    known: Mutex<BTreeMap<NodeId, Known>>,
    /// Whether something is not on the disk yet.
    unwritten: AtomicBool,
    changed: Arc<Notify>,
    /// Held by who writes: nothing older comes after it.
    writes: Mutex<()>,
}

#[derive(Clone, Deserialize, Serialize)]
struct Known {
    key: ByteBuf,
    addresses: Vec<String>,
    /// When it was last there, in seconds since 1970; the day is written down.
    seen: u64,
    /// Since when moves are counted, and how many were written since. What was not, the next write takes along.
    #[serde(skip)]
    moves: Option<(Instant, u32)>,
}

impl Known {
    fn may_be_written(&mut self) -> bool {
        let counted = self.moves.filter(|(since, _)| since.elapsed() < HOUR);
        let (since, moves) = counted.unwrap_or_else(|| (Instant::now(), 0));
        self.moves = Some((since, moves.saturating_add(1)));
        moves < MOST_MOVES
    }

    /// It is there; whether it was last there on another day.
    const fn is_seen(&mut self, now: u64) -> bool {
        let another = self.seen / DAY != now / DAY;
        self.seen = now;
        another
    }
}

impl Acquaintances {
    /// Forgets them all.
    pub(crate) fn forget(store: &Store) -> Result<(), StoreError> {
        store.mesh().remove(&[RECORD])
    }

    pub(crate) fn new(store: Store) -> Self {
        let known: Vec<Known> = store.mesh().get(RECORD).ok().flatten().unwrap_or_default();
        let known = known.into_iter().map(|known| (NodeId::of_key(&known.key), known));
        Self {
            known: Mutex::new(known.collect()),
            unwritten: AtomicBool::new(false),
            changed: Arc::default(),
            writes: Mutex::default(),
            store,
        }
    }

    /// A member was let in.
    pub(crate) fn met(&self, member: &Member, now: UnixTime) {
        let mut all = self.known.lock();
        if all.len() >= MOST && !all.contains_key(&member.node) {
            let oldest = all.iter().min_by_key(|(_, known)| known.seen);
            let oldest = oldest.map(|(node, _)| *node);
            oldest.and_then(|node| all.remove(&node));
        }
        let known = all.entry(member.node).or_insert_with(|| Known {
            key: ByteBuf::from(member.key),
            addresses: Vec::new(),
            seen: 0,
            moves: None,
        });
        if known.is_seen(now.seconds()) {
            self.has_changed();
        }
    }

    /// A member says where it is.
    pub(crate) fn is_at(&self, node: NodeId, addresses: Vec<String>, now: UnixTime) {
        self.moves(node, now, |_| addresses);
    }

    /// A member that was started again comes from this address: it may be there, until it says where it is. Where it was before it may be again.
    pub(crate) fn comes_from(&self, node: NodeId, address: String, now: UnixTime) {
        self.moves(node, now, |mut addresses| {
            addresses.retain(|known| *known != address);
            addresses.insert(0, address);
            addresses
        });
    }

    fn moves(&self, node: NodeId, now: UnixTime, to: impl FnOnce(Vec<String>) -> Vec<String>) {
        let mut all = self.known.lock();
        let Some(known) = all.get_mut(&node) else { return };
        if known.is_seen(now.seconds()) {
            self.has_changed();
        }
        let mut addresses = to(known.addresses.clone());
        addresses.truncate(MOST_ADDRESSES);
        // In another order they are the same.
        addresses.sort_unstable();
        if addresses.is_empty() || addresses == known.addresses {
            return;
        }
        known.addresses = addresses;
        if known.may_be_written() {
            self.has_changed();
        }
    }

    fn has_changed(&self) {
        self.unwritten.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Writes down what has changed; waits for the disk. How long the next write may wait: what the disk did not take is written then.
    pub(crate) fn write_down(&self) -> Duration {
        let _alone = self.writes.lock();
        if !self.unwritten.swap(false, Ordering::AcqRel) {
            return Duration::ZERO;
        }
        let all: Vec<Known> = self.known.lock().values().cloned().collect();
        match self.store.mesh().put(RECORD, &all) {
            Ok(()) => REST.saturating_mul(all.len() as u32),
            Err(error) => {
                tracing::warn!(%error, "members are not remembered yet");
                self.has_changed();
                AGAIN
            }
        }
    }

    /// The key of a node.
    pub(crate) fn key(&self, node: NodeId) -> Option<[u8; 32]> {
        self.known.lock().get(&node)?.key[..].try_into().ok()
    }

    /// Where a node was.
    pub(crate) fn addresses(&self, node: NodeId) -> Vec<String> {
        let known = self.known.lock();
        known
            .get(&node)
            .map(|known| known.addresses.clone())
            .unwrap_or_default()
    }

    /// How many nodes there are of which it is known where they were.
    pub(crate) fn located(&self) -> usize {
        let known = self.known.lock();
        known.values().filter(|known| !known.addresses.is_empty()).count()
    }

    /// All nodes whose key is known.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.known.lock().keys().copied().collect()
    }
}

impl Drop for Acquaintances {
    fn drop(&mut self) {
        self.write_down();
        self.changed.notify_one();
    }
}

/// Writes down what changes, away from the threads that must not wait for a disk; all at once that has changed meanwhile.
pub(crate) async fn write_changes(of: Weak<Standing>) {
    let changed = of
        .upgrade()
        .map(|standing| standing.acquaintances().changed.clone());
    let Some(changed) = changed else { return };
    loop {
        changed.notified().await;
        let Some(standing) = of.upgrade() else { return };
        let written = spawn_blocking(move || standing.acquaintances().write_down()).await;
        sleep(written.unwrap_or(AGAIN)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Rights;
    use karman_types::Tier;

    const NOW: UnixTime = UnixTime::from_seconds(20_000 * DAY);

    fn member(key: [u8; 32]) -> Member {
        Member {
            key,
            node: NodeId::of_key(&key),
            issuer: None,
            tier: Tier::Edge,
            rights: Rights::all(),
            issued: NOW,
            not_after: NOW,
        }
    }

    #[test]
    fn who_was_started_again_may_be_where_it_comes_from_and_is_where_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let (acquaintances, key) = (Acquaintances::new(store.clone()), [7u8; 32]);
        let node = NodeId::of_key(&key);
        let [was, is, says] = [1, 2, 3].map(|port| format!("/ip4/192.0.2.1/udp/{port}/quic-v1"));
        acquaintances.comes_from(node, is.clone(), NOW);
        assert!(acquaintances.addresses(node).is_empty(), "it was never let in");

        let known = Known {
            key: ByteBuf::from(key),
            addresses: vec![was.clone()],
            seen: 0,
            moves: None,
        };
        acquaintances.known.lock().insert(node, known);
        for _ in 0..2 {
            acquaintances.comes_from(node, is.clone(), NOW);
            assert_eq!(acquaintances.addresses(node), [was.clone(), is.clone()]);
        }
        let after_a_restart = || Acquaintances::new(store.clone()).addresses(node);
        assert!(after_a_restart().is_empty(), "nobody waits for the disk");
        acquaintances.write_down();
        assert_eq!(after_a_restart(), [was, is]);
        acquaintances.is_at(node, vec![says.clone()], NOW);
        assert_eq!(acquaintances.addresses(node), [says]);

        for port in 0..2 * MOST_ADDRESSES {
            let address = format!("/ip4/192.0.2.2/udp/{port}/quic-v1");
            acquaintances.comes_from(node, address.clone(), NOW);
            let addresses = acquaintances.addresses(node);
            assert!(addresses.contains(&address) && addresses.len() <= MOST_ADDRESSES);
        }
        let last = acquaintances.addresses(node);
        drop(acquaintances);
        assert_eq!(after_a_restart(), last, "who stops has written it down");
    }

    #[test]
    fn one_that_comes_takes_the_place_of_the_one_that_was_there_longest_ago() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let acquaintances = Acquaintances::new(store.clone());
        let key = |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&(number as u64).to_le_bytes());
            key
        };
        let node = |number: usize| NodeId::of_key(&key(number));
        let later = |seconds: usize| UnixTime::from_seconds(NOW.seconds() + seconds as u64);
        for number in 0..MOST {
            acquaintances.met(&member(key(number)), later(number));
        }
        // The first is there still, and says where.
        let at = "/ip4/192.0.2.1/udp/1/quic-v1".to_owned();
        acquaintances.is_at(node(0), vec![at], later(MOST));
        for number in [MOST, MOST + 1] {
            acquaintances.met(&member(key(number)), later(number + 1));
        }
        let known = |number| acquaintances.key(node(number)).is_some();
        assert_eq!([0, 1, 2, 3, MOST].map(known), [true, false, false, true, true]);
        acquaintances.write_down();
        assert_eq!(acquaintances.nodes().len(), MOST);
        assert_eq!(Acquaintances::new(store).nodes(), acquaintances.nodes());
    }

    #[test]
    fn the_more_there_are_the_more_seldom_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let acquaintances = Acquaintances::new(Store::open(folder.path()).unwrap());
        assert_eq!(acquaintances.write_down(), Duration::ZERO);
        for (number, key) in [[1; 32], [2; 32]].into_iter().enumerate() {
            acquaintances.met(&member(key), NOW);
            assert_eq!(acquaintances.write_down(), REST * (number as u32 + 1));
        }
        acquaintances.met(&member([1; 32]), NOW.after(HOUR));
        assert_eq!(acquaintances.write_down(), Duration::ZERO, "on the same day");
        acquaintances.met(&member([1; 32]), NOW.after(24 * HOUR));
        assert_eq!(acquaintances.write_down(), REST * 2);
    }
}
