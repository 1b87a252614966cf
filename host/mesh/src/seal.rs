//! Bytes that only the holder of one key reads: HPKE in base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and ChaCha20-Poly1305
//! (RFC 9180), each seal by a share of its own.

use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, OpModeR, OpModeS, Serializable};

/// The sender's share of the key that seals goes in front.
const SHARE: usize = 32;
/// Bytes by which what is sealed is longer than what was.
pub(crate) const OVERHEAD: usize = SHARE + 16;

/// What opens.
pub(crate) struct Private(<X25519HkdfSha256 as Kem>::PrivateKey);

impl Private {
    /// A new one, by the system's randomness, and the public key that others seal to.
    pub(crate) fn fresh() -> (Self, [u8; 32]) {
        let (private, public) = X25519HkdfSha256::gen_keypair();
        (Self(private), public.to_bytes().into())
    }

    /// The secret scalar of X25519; nothing where these bytes are none.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Deserializable::from_bytes(bytes).ok().map(Self)
    }

    /// Opens what was sealed to it for this purpose, about the same. Nothing where it was not, or was changed on the way.
    pub(crate) fn open(&self, purpose: &[u8], about: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (share, sealed) = sealed.split_at_checked(SHARE)?;
        let share = Deserializable::from_bytes(share).ok()?;
        hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &OpModeR::Base,
            &self.0,
            &share,
            purpose,
            sealed,
            about,
        )
        .ok()
    }
}

/// Seals to this public key: `purpose` is what the key that seals is for, `about` what both sides know of the matter, and neither
/// travels. Nothing where that is no key.
pub(crate) fn seal(key: &[u8; 32], purpose: &[u8], about: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
    let key = Deserializable::from_bytes(&key[..]).ok()?;
    let (share, sealed) = hpke::single_shot_seal::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
        &OpModeS::Base,
        &key,
        purpose,
        plain,
        about,
    )
    .ok()?;
    Some([&share.to_bytes()[..], &sealed].concat())
}
