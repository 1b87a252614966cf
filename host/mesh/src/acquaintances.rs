use crate::membership::Member;
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

const RECORD: &str = "acquaintances";
/// Members that are remembered; the ones that come later are not.
const MOST: usize = 4096;
/// Addresses of one.
pub(crate) const MOST_ADDRESSES: usize = 6;
/// Moves of one that are written in an hour: a member that says all the time that it has moved keeps no disk busy.
const MOST_MOVES: u32 = 10;
const HOUR: Duration = Duration::from_secs(3600);

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
    pub(crate) fn met(&self, member: &Member) {
        let mut known = self.known.lock();
        if known.len() >= MOST || known.contains_key(&member.node) {
            return;
        }
        let new = Known {
            key: ByteBuf::from(member.key),
            addresses: Vec::new(),
            moves: None,
        };
        known.insert(member.node, new);
        self.has_changed();
    }

    /// A member says where it is.
    pub(crate) fn is_at(&self, node: NodeId, addresses: Vec<String>) {
        self.moves(node, |_| addresses);
    }

    /// A member that was started again comes from this address: it may be there, until it says where it is. Where it was before it may be again.
    pub(crate) fn comes_from(&self, node: NodeId, address: String) {
        self.moves(node, |mut addresses| {
            addresses.retain(|known| *known != address);
            addresses.insert(0, address);
            addresses
        });
    }

    fn moves(&self, node: NodeId, to: impl FnOnce(Vec<String>) -> Vec<String>) {
        let mut all = self.known.lock();
        let Some(known) = all.get_mut(&node) else { return };
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

    /// Writes down what has changed; waits for the disk.
    pub(crate) fn write_down(&self) {
        let _alone = self.writes.lock();
        if !self.unwritten.swap(false, Ordering::AcqRel) {
            return;
        }
        let all: Vec<Known> = self.known.lock().values().cloned().collect();
        if let Err(error) = self.store.mesh().put(RECORD, &all) {
            tracing::warn!(%error, "a member is not remembered");
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

/// Writes down what changes, away from the threads that must not wait for a disk; all at once that has changed while it was busy.
pub(crate) async fn write_changes(of: Weak<Standing>) {
    let changed = of
        .upgrade()
        .map(|standing| standing.acquaintances().changed.clone());
    let Some(changed) = changed else { return };
    loop {
        changed.notified().await;
        let Some(standing) = of.upgrade() else { return };
        let _ = spawn_blocking(move || standing.acquaintances().write_down()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_started_again_may_be_where_it_comes_from_and_is_where_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let (acquaintances, key) = (Acquaintances::new(store.clone()), [7u8; 32]);
        let node = NodeId::of_key(&key);
        let [was, is, says] = [1, 2, 3].map(|port| format!("/ip4/192.0.2.1/udp/{port}/quic-v1"));
        acquaintances.comes_from(node, is.clone());
        assert!(acquaintances.addresses(node).is_empty(), "it was never let in");

        let known = Known {
            key: ByteBuf::from(key),
            addresses: vec![was.clone()],
            moves: None,
        };
        acquaintances.known.lock().insert(node, known);
        for _ in 0..2 {
            acquaintances.comes_from(node, is.clone());
            assert_eq!(acquaintances.addresses(node), [was.clone(), is.clone()]);
        }
        let after_a_restart = || Acquaintances::new(store.clone()).addresses(node);
        assert!(after_a_restart().is_empty(), "nobody waits for the disk");
        acquaintances.write_down();
        assert_eq!(after_a_restart(), [was, is]);
        acquaintances.is_at(node, vec![says.clone()]);
        assert_eq!(acquaintances.addresses(node), [says]);

        for port in 0..2 * MOST_ADDRESSES {
            let address = format!("/ip4/192.0.2.2/udp/{port}/quic-v1");
            acquaintances.comes_from(node, address.clone());
            let addresses = acquaintances.addresses(node);
            assert!(addresses.contains(&address) && addresses.len() <= MOST_ADDRESSES);
        }
        let last = acquaintances.addresses(node);
        drop(acquaintances);
        assert_eq!(after_a_restart(), last, "who stops has written it down");
    }
}
