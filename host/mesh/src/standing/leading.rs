//! By whom this node comes to an issuer, and whom it leads to one.

use super::Standing;
use crate::gate::door::issuer_behind;
use libp2p::PeerId;
use libp2p_stream::Control;
use tokio::sync::Semaphore;

impl Standing {
    /// Whether this node admits others.
    pub(crate) fn is_issuer(&self) -> bool {
        self.issuer.read().is_some()
    }

    /// The issuer that this node was invited to by way of this member; nothing once it is a member itself.
    pub(crate) fn led_to(&self, by: &PeerId) -> Option<PeerId> {
        if self.membership.read().is_some() {
            return None;
        }
        let invitation = self.invitation.read();
        let mut addresses = invitation.as_ref()?.addresses().iter();
        addresses.find_map(|address| issuer_behind(address, by))
    }

    pub(crate) fn opens_ways(&self, ways: Control) {
        let _ = self.ways.set(ways);
    }

    pub(crate) fn ways(&self) -> Option<Control> {
        self.ways.get().cloned()
    }

    pub(crate) const fn doors(&self) -> &Semaphore {
        &self.doors
    }
}
