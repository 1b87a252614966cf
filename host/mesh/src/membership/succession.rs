use super::statement::Statement;
use super::wire::{self, Fixed};
use super::{MembershipError, MeshKey, RootKey, UnixTime};

const FIELD: &str = "succession";
/// Two keys, a time, a signature and their framing.
const MAX_BYTES: usize = 256;

/// The statement that a mesh has a new root key, signed by the old one.
///
/// Members take the new key and keep the old beside it until their membership is renewed under the new one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Succession {
    /// The mesh as it was.
    pub old: MeshKey,
    /// The mesh from now on.
    pub new: MeshKey,
    /// When it was signed.
    pub at: UnixTime,
    /// By the old key.
    pub signature: [u8; 64],
}

type Wire = (Fixed<32>, Fixed<32>, UnixTime, Fixed<64>);

impl RootKey {
    /// A new root key, and the old one's word for it.
    ///
    /// # Errors
    /// [`MembershipError::NoRandomness`] when the system has none yet.
    pub fn rotate(&self, at: UnixTime) -> Result<(Self, Succession), MembershipError> {
        let new = Self::generate()?;
        let mut succession = Succession {
            old: self.public(),
            new: new.public(),
            at,
            signature: [0; 64],
        };
        succession.signature = Statement::Succession.sign(self.seed(), &succession.body());
        Ok((new, succession))
    }
}

impl Succession {
    /// The new key, for a member of the mesh `mesh`.
    ///
    /// # Errors
    /// [`MembershipError::Foreign`] when another mesh's key is replaced, [`MembershipError::Malformed`] when the signature
    /// does not fit.
    pub fn verify(&self, mesh: &MeshKey) -> Result<MeshKey, MembershipError> {
        if self.old != *mesh {
            return Err(MembershipError::Foreign { mesh: mesh.short() });
        }
        Statement::Succession.verify(mesh.as_bytes(), &self.body(), &self.signature)?;
        Ok(self.new)
    }

    /// The CBOR form.
    pub fn encode(&self) -> Vec<u8> {
        let wire: Wire = (
            Fixed(*self.old.as_bytes()),
            Fixed(*self.new.as_bytes()),
            self.at,
            Fixed(self.signature),
        );
        wire::encode(&wire)
    }

    /// Reads the CBOR form. The signature is not verified yet.
    ///
    /// # Errors
    /// [`MembershipError::Malformed`] or [`MembershipError::TooLong`] (256 bytes).
    pub fn decode(bytes: &[u8]) -> Result<Self, MembershipError> {
        let (old, new, at, signature): Wire = wire::decode(FIELD, bytes, MAX_BYTES)?;
        Ok(Self {
            old: MeshKey::from_bytes(old.0),
            new: MeshKey::from_bytes(new.0),
            at,
            signature: signature.0,
        })
    }

    fn body(&self) -> Vec<u8> {
        wire::encode(&(Fixed(*self.old.as_bytes()), Fixed(*self.new.as_bytes()), self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_take_the_new_key_on_the_old_ones_word_only() {
        let root = RootKey::from_seed(&[1; 32]);
        let (new, succession) = root.rotate(UnixTime::from_seconds(5)).unwrap();
        let succession = Succession::decode(&succession.encode()).unwrap();
        assert_eq!(succession.verify(&root.public()), Ok(new.public()));

        let mesh = RootKey::from_seed(&[2; 32]).public();
        assert_eq!(
            succession.verify(&mesh),
            Err(MembershipError::Foreign { mesh: mesh.short() })
        );
        let forged = Succession {
            new: mesh,
            ..succession
        };
        assert!(matches!(
            forged.verify(&root.public()),
            Err(MembershipError::Malformed {
                field: "succession",
                ..
            })
        ));
        assert!(Succession::decode(&[0; 300]).is_err());
    }
}
