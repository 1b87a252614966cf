//! What there is of something for each peer, as long as somebody uses it.

use libp2p::PeerId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) struct PerPeer<T>(Mutex<HashMap<PeerId, Arc<T>>>);

impl<T> Default for PerPeer<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> PerPeer<T> {
    /// That of this peer; a new one where nobody uses it.
    pub(crate) fn of(&self, peer: PeerId, new: impl FnOnce() -> T) -> Arc<T> {
        let mut all = self.0.lock();
        if !all.contains_key(&peer) {
            all.retain(|_, used| Arc::strong_count(used) > 1);
        }
        all.entry(peer).or_insert_with(|| Arc::new(new())).clone()
    }
}
