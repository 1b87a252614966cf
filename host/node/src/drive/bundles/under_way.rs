//! What is under way with a bundle or with a node, for as long as it is held.

use super::Bundles;
use karman_types::{Digest, NodeId};
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// How long before a bundle is opened again that the disk did not let go of.
const LATER: Duration = Duration::from_secs(60);

/// A bundle for this node that is being opened, or whose attempt runs, until this is dropped.
pub(in crate::drive) struct Opening {
    bundles: Arc<Bundles>,
    bundle: Digest,
    order: Option<Digest>,
}

impl Opening {
    pub(super) const fn new(bundles: Arc<Bundles>, bundle: Digest) -> Self {
        Self {
            bundles,
            bundle,
            order: None,
        }
    }

    /// Takes the order in it. Where the same is being done out of another bundle it is nothing, and this one is opened when that is over.
    pub(in crate::drive) fn claim(mut self, order: Digest) -> Option<Self> {
        let bundles = self.bundles.clone();
        match bundles.orders.lock().entry(order) {
            Entry::Occupied(same) => {
                same.into_mut().push(self);
                None
            }
            Entry::Vacant(free) => {
                free.insert(Vec::new());
                self.order = Some(order);
                Some(self)
            }
        }
    }

    pub(in crate::drive) const fn bundle(&self) -> Digest {
        self.bundle
    }

    /// Gives back the place of its attempt: another one may begin, even if this one comes again.
    pub(in crate::drive) fn leaves(&self, place: OwnedSemaphorePermit) {
        drop(place);
        self.bundles.changed();
    }

    /// Leaves the bundle alone for a while.
    pub(in crate::drive) fn later(self) {
        tokio::spawn(async move {
            tokio::time::sleep(LATER).await;
            drop(self);
        });
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // Bound, so that those that wait are let go of when the lock is.
        let waited = self
            .order
            .and_then(|order| self.bundles.orders.lock().remove(&order));
        drop(waited);
        self.bundles.running.lock().remove(&self.bundle);
        self.bundles.changed();
    }
}

/// A node that something is being sent to, or this one where something is being opened, until this is dropped.
pub(super) struct Busy {
    pub(super) bundles: Arc<Bundles>,
    pub(super) node: NodeId,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.bundles.offered.lock().retain(|(_, to), _| *to != self.node);
        self.bundles.busy.lock().remove(&self.node);
        self.bundles.changed();
    }
}

/// A bundle that a member brings and that is being fetched, until this is dropped.
pub(in crate::drive) struct Coming {
    bundles: Arc<Bundles>,
    by: NodeId,
    bytes: u64,
    of_member: u64,
}

impl Coming {
    pub(super) fn new(bundles: Arc<Bundles>, by: NodeId, bytes: u64) -> Self {
        let of_member = {
            let mut coming = bundles.coming.lock();
            let of_member = coming.entry(by).or_default();
            *of_member += bytes;
            *of_member
        };
        Self {
            bundles,
            by,
            bytes,
            of_member,
        }
    }

    /// Bytes of all that the member was bringing when this began, this one among them.
    pub(in crate::drive) const fn of_member(&self) -> u64 {
        self.of_member
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if let Entry::Occupied(mut of_member) = self.bundles.coming.lock().entry(self.by) {
            *of_member.get_mut() -= self.bytes;
            if *of_member.get() == 0 {
                of_member.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MeshConfig;
    use crate::contacts::Contacts;

    #[test]
    fn an_order_is_done_out_of_one_bundle_at_a_time() {
        let bundles = Arc::new(Bundles::new(Contacts::new(MeshConfig::default())));
        let opening = |text: &[u8]| {
            let bundle = Digest::of(text);
            bundles.running.lock().insert(bundle);
            Opening::new(bundles.clone(), bundle)
        };
        let running = || bundles.running.lock().len();
        let (order, another) = (Digest::of(b"order"), Digest::of(b"another"));
        let first = opening(b"first").claim(order).unwrap();
        for copy in [&b"copy"[..], b"second copy"] {
            assert!(opening(copy).claim(order).is_none());
        }
        // What has not claimed it does not set it free.
        drop((opening(b"unclaimed"), opening(b"other").claim(another).unwrap()));
        assert!(opening(b"third copy").claim(order).is_none());
        // None of them is opened again before the first one is done.
        assert_eq!(running(), 4);
        drop(first);
        assert_eq!(running(), 0);
        assert!(opening(b"copy").claim(order).is_some());
    }
}
