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
    pub(super) bundles: Arc<Bundles>,
    pub(super) bundle: Digest,
}

impl Opening {
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
