use super::{MembershipError, statement};
use karman_types::ParseIdError;
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// A mesh: the public half of its root key (Ed25519). Written as 64 hexadecimal characters.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MeshKey([u8; 32]);

impl MeshKey {
    /// The key of these bytes. Whether they are a point on the curve shows when a signature is verified.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 4 characters, as people tell meshes apart.
    pub fn short(&self) -> String {
        hex::encode(&self.0[..2])
    }
}

impl fmt::Display for MeshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for MeshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MeshKey({})", self.short())
    }
}

impl FromStr for MeshKey {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        // The same text as a digest's, with the same error.
        let digest: karman_types::Digest = text.parse()?;
        Ok(Self(*digest.as_bytes()))
    }
}

karman_types::serde_as_text!(MeshKey);

/// The secret half of a mesh's root key. Its holder can admit any node; it is best kept off the nodes, with a
/// [`backup`](Self::backup). The memory is wiped when it is dropped.
pub struct RootKey {
    seed: Zeroizing<[u8; 32]>,
    public: MeshKey,
}

impl RootKey {
    /// A new key, from the system's randomness.
    ///
    /// # Errors
    /// [`MembershipError::NoRandomness`] when the system has none yet.
    pub fn generate() -> Result<Self, MembershipError> {
        Ok(Self::from_seed(&Zeroizing::new(random()?)))
    }

    /// The key that follows from these 32 bytes (RFC 8032).
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self {
            seed: Zeroizing::new(*seed),
            public: MeshKey(statement::public_key(seed)),
        }
    }

    /// The bytes it follows from. Never to be logged.
    pub fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    /// The mesh.
    pub const fn public(&self) -> MeshKey {
        self.public
    }
}

impl fmt::Debug for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RootKey").field(&self.public).finish()
    }
}

pub(super) fn random<const N: usize>() -> Result<[u8; N], MembershipError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| MembershipError::NoRandomness)?;
    Ok(bytes)
}
