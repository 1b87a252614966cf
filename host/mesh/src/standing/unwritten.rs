//! What counts though the disk did not take it. Others tell it again should it be lost, so that a full disk neither shuts the node out of
//! its mesh nor keeps those in whom that has put out.

use super::roots::Roots;
use super::{MEMBERSHIP, Standing};
use crate::gate::GateError;
use crate::membership::Membership;
use serde_bytes::ByteBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is to be written once more.
#[derive(Default)]
pub(super) struct Unwritten {
    roots: AtomicBool,
    membership: AtomicBool,
}

impl Standing {
    /// Writes down what others have told of revocations, now or later.
    pub(super) fn keep_what_was_told(&self, roots: &Roots) {
        if let Err(error) = roots.keep(&self.store) {
            tracing::warn!(%error, "revocations that others have told count, and are not remembered yet");
            self.unwritten.roots.store(true, Ordering::Relaxed);
        }
    }

    /// Writes down this node's membership; the next ones now or later. With its first one it is let in, which others do once.
    pub(super) fn keep_own(&self, membership: &Membership) -> Result<(), GateError> {
        match self.write_own(membership) {
            Err(error) if self.was_let_in() => {
                tracing::warn!(%error, "this node's next membership holds, and is not remembered yet");
                self.unwritten.membership.store(true, Ordering::Relaxed);
                Ok(())
            }
            written => written,
        }
    }

    fn write_own(&self, membership: &Membership) -> Result<(), GateError> {
        let bytes = ByteBuf::from(membership.encode());
        Ok(self.store.mesh().put(MEMBERSHIP, &bytes)?)
    }

    /// Writes once more what the disk did not take.
    pub(crate) fn write_again(&self) {
        let Unwritten { roots, membership } = &self.unwritten;
        if roots.swap(false, Ordering::Relaxed)
            && let Err(error) = self.roots.read().keep(&self.store)
        {
            tracing::debug!(%error, "revocations are not remembered yet");
            roots.store(true, Ordering::Relaxed);
        }
        if membership.swap(false, Ordering::Relaxed)
            && let Some(own) = self.membership()
            && let Err(error) = self.write_own(&own)
        {
            tracing::debug!(%error, "this node's membership is not remembered yet");
            membership.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Issuer, RootKey, Terms, UnixTime};
    use karman_store::Store;
    use karman_types::Tier;
    use std::time::Duration;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn what_the_disk_did_not_take_is_written_later() {
        let (root, folder) = (RootKey::generate().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::open(folder.path()).unwrap();
        let (signer, key) = (Issuer::root(&root), store.node_key().public());
        let now = UnixTime::from_seconds(super::super::clock());
        let lasts = |days: u32| Terms::usual(Tier::Edge, now.after(days * DAY));
        let word = signer.invite(&lasts(30), now.after(DAY), Some(&key), Vec::new(), now);
        let standing = Standing::open(store.clone(), None::<Tier>, Some(word.unwrap()), None).unwrap();
        let next = signer.issue(&key, &lasts(60), now).unwrap();
        let is_remembered = || {
            let own: Option<ByteBuf> = store.mesh().get(MEMBERSHIP).unwrap();
            let roots = Roots::read(&store, Some(standing.mesh())).unwrap();
            (
                own.unwrap() == next.encode(),
                roots.unwrap().revoked.number() == 1,
            )
        };

        *standing.membership.write() = Some(next.clone());
        let revocation = signer.revoke(&[7; 32], now).unwrap();
        standing.roots.write().revoked.add(revocation).unwrap();
        standing.write_again();
        assert_eq!(is_remembered(), (false, false), "nothing was refused");
        standing.unwritten.roots.store(true, Ordering::Relaxed);
        standing.write_again();
        assert_eq!(is_remembered(), (false, true));
        standing.unwritten.membership.store(true, Ordering::Relaxed);
        standing.write_again();
        assert_eq!(is_remembered(), (true, true));
        let Unwritten { roots, membership } = &standing.unwritten;
        assert!(!roots.load(Ordering::Relaxed) && !membership.load(Ordering::Relaxed));
    }
}
