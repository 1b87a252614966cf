//! What is under way with a bundle or with a node, for as long as it is held.

use super::Bundles;
use karman_types::{Digest, NodeId};
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

    /// Takes the order in it, if nobody does the same out of another bundle.
    pub(in crate::drive) fn claims(&mut self, order: Digest) -> bool {
        let is_free = self.bundles.orders.lock().insert(order);
        if is_free {
            self.order = Some(order);
        }
        is_free
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
        if let Some(order) = self.order {
            self.bundles.orders.lock().remove(&order);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MeshConfig;
    use crate::contacts::Contacts;

    #[test]
    fn an_order_is_done_out_of_one_bundle_at_a_time() {
        let bundles = Arc::new(Bundles::new(Contacts::new(MeshConfig::default())));
        let opening = |text: &[u8]| Opening::new(bundles.clone(), Digest::of(text));
        let order = Digest::of(b"order");
        let (mut first, mut copy) = (opening(b"first"), opening(b"copy"));
        assert!(first.claims(order) && !copy.claims(order));
        assert!(copy.claims(Digest::of(b"another")));
        // What has not claimed it does not set it free.
        drop(copy);
        assert!(!opening(b"second copy").claims(order));
        drop(first);
        assert!(opening(b"third copy").claims(order));
    }
}
