//! What goes to a node by way of another that must not read it.

use crate::membership::{MembershipError, sign_mailbox, verify_mailbox};
use crate::seal::{self, Private};
use crate::standing::Standing;

/// What the key that seals is for.
const PURPOSE: &[u8] = b"karman-mailbox/1";

/// Opens what others have sealed for it. Its key is drawn anew for each one, so it says nothing of whose it is; nor does what is
/// sealed say who sealed it.
pub struct Mailbox {
    private: Private,
    address: [u8; 32],
}

impl Mailbox {
    /// Bytes by which what is sealed is longer than what was.
    pub const OVERHEAD: usize = seal::OVERHEAD;

    /// With a key of its own, by the system's randomness.
    pub fn fresh() -> Self {
        let (private, address) = Private::fresh();
        Self { private, address }
    }

    /// The public key, which others seal to.
    pub const fn address(&self) -> &[u8; 32] {
        &self.address
    }

    /// States in the name of this node that this mailbox is its own, in what it is `about`.
    pub fn sign(&self, standing: &Standing, about: &[u8]) -> [u8; 64] {
        sign_mailbox(standing.seed(), &self.address, about)
    }

    /// That the node with this key has stated so of the mailbox of this address. A node that passes an address on could put its own in its place.
    ///
    /// # Errors
    /// The signature is not that node's, or is of something else.
    pub fn check(
        address: &[u8; 32],
        about: &[u8],
        key: &[u8; 32],
        signature: &[u8; 64],
    ) -> Result<(), MembershipError> {
        verify_mailbox(key, address, about, signature)
    }

    /// Seals to the mailbox of this address; `about` is what both sides know of it, and does not travel. Nothing where that is no
    /// address.
    pub fn seal(address: &[u8; 32], about: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        seal::seal(address, PURPOSE, about, plain)
    }

    /// Opens what was sealed to this one. Nothing where it was not, or was changed on the way.
    pub fn open(&self, about: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        self.private.open(PURPOSE, about, sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_mailbox_opens_what_was_sealed_and_only_unchanged() {
        let (mine, other) = (Mailbox::fresh(), Mailbox::fresh());
        let sealed = Mailbox::seal(mine.address(), b"round", b"chunk").unwrap();
        assert_eq!(sealed.len(), 5 + Mailbox::OVERHEAD);
        assert_eq!(mine.open(b"round", &sealed).as_deref(), Some(&b"chunk"[..]));
        assert_eq!(other.open(b"round", &sealed), None);
        assert_eq!(mine.open(b"another round", &sealed), None);
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(mine.open(b"round", &changed), None, "byte {place}");
            assert_eq!(
                mine.open(b"round", &sealed[..place]),
                None,
                "the first {place} bytes"
            );
        }
        assert_eq!(
            Mailbox::seal(&[0; 32], b"round", b"chunk"),
            None,
            "a key of low order"
        );
    }
}
