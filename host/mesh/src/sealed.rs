//! What goes to a node by way of another that must not read it.

use crate::membership::{MembershipError, sign_mailbox, verify_mailbox};
use crate::standing::Standing;
use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, OpModeR, OpModeS, Serializable};

/// What the key that seals is for.
const INFO: &[u8] = b"karman-mailbox/1";
/// The sender's share of that key goes in front.
const SHARE: usize = 32;

type Public = <X25519HkdfSha256 as Kem>::PublicKey;
type Private = <X25519HkdfSha256 as Kem>::PrivateKey;
type Share = <X25519HkdfSha256 as Kem>::EncappedKey;

/// Opens what others have sealed for it: HPKE in base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and ChaCha20-Poly1305 (RFC
/// 9180). Its key is drawn anew for each one, so it says nothing of whose it is; nor does what is sealed say who sealed it.
pub struct Mailbox {
    private: Private,
    address: [u8; 32],
}

impl Mailbox {
    /// Bytes by which what is sealed is longer than what was.
    pub const OVERHEAD: usize = SHARE + 16;

    /// With a key of its own, by the system's randomness.
    pub fn fresh() -> Self {
        let (private, public) = X25519HkdfSha256::gen_keypair();
        let mut address = [0; 32];
        address.copy_from_slice(&public.to_bytes()[..]);
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
        let key = Public::from_bytes(&address[..]).ok()?;
        let (share, sealed) = hpke::single_shot_seal::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &OpModeS::Base,
            &key,
            INFO,
            plain,
            about,
        )
        .ok()?;
        Some([&share.to_bytes()[..], &sealed].concat())
    }

    /// Opens what was sealed to this one. Nothing where it was not, or was changed on the way.
    pub fn open(&self, about: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (share, sealed) = sealed.split_at_checked(SHARE)?;
        let share = Share::from_bytes(share).ok()?;
        hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &OpModeR::Base,
            &self.private,
            &share,
            INFO,
            sealed,
            about,
        )
        .ok()
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
