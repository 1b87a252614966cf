use super::statement::Statement;
use super::wire::{self, Fixed};
use super::{MembershipError, MeshKey, RootKey, UnixTime};

const FIELD: &str = "succession";
/// Two keys, two times, a signature and their framing.
const MAX_BYTES: usize = 256;

/// The statement that a mesh has a new root key, signed by the old one.
///
/// Members take the new key, and get their memberships renewed under it. Those under the old key are taken until a day that
/// the statement names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Succession {
    /// The mesh as it was.
    pub old: MeshKey,
    /// The mesh from now on.
    pub new: MeshKey,
    /// When it was signed.
    pub at: UnixTime,
    /// The last second that anything signed by the old key is good for.
    pub until: UnixTime,
    /// By the old key.
    pub signature: [u8; 64],
}

pub(super) type Wire = (Fixed<32>, Fixed<32>, UnixTime, UnixTime, Fixed<64>);

impl RootKey {
    /// This key's word that another takes its place. What it has signed is good `until` then.
    pub fn succession(&self, new: &MeshKey, at: UnixTime, until: UnixTime) -> Succession {
        Succession::sign(self.seed(), self.public(), *new, at, until)
    }
}

impl Succession {
    pub(super) fn sign(seed: &[u8; 32], old: MeshKey, new: MeshKey, at: UnixTime, until: UnixTime) -> Self {
        let mut succession = Self {
            old,
            new,
            at,
            until,
            signature: [0; 64],
        };
        succession.signature = Statement::Succession.sign(seed, &succession.body());
        succession
    }

    /// The new key, for a member of the mesh `mesh`.
    ///
    /// # Errors
    /// [`MembershipError::Foreign`] when another mesh's key is replaced, [`MembershipError::FalseRoot`] when the old key has
    /// not signed it.
    pub fn verify(&self, mesh: &MeshKey) -> Result<MeshKey, MembershipError> {
        if self.old != *mesh {
            return Err(MembershipError::Foreign { mesh: mesh.short() });
        }
        Statement::Succession
            .verify(mesh.as_bytes(), &self.body(), &self.signature)
            .map_err(|_| MembershipError::FalseRoot {
                mesh: mesh.short(),
                claims: self.new.short(),
            })?;
        Ok(self.new)
    }

    /// The CBOR form.
    pub fn encode(&self) -> Vec<u8> {
        wire::encode(&self.wire())
    }

    /// Reads the CBOR form. The signature is not verified yet.
    ///
    /// # Errors
    /// [`MembershipError::Malformed`] or [`MembershipError::TooLong`] (256 bytes).
    pub fn decode(bytes: &[u8]) -> Result<Self, MembershipError> {
        let wire: Wire = wire::decode(FIELD, bytes, MAX_BYTES)?;
        Ok(Self::of(wire))
    }

    pub(super) fn wire(&self) -> Wire {
        (
            Fixed(*self.old.as_bytes()),
            Fixed(*self.new.as_bytes()),
            self.at,
            self.until,
            Fixed(self.signature),
        )
    }

    pub(super) fn of((old, new, at, until, signature): Wire) -> Self {
        Self {
            old: MeshKey::from_bytes(old.0),
            new: MeshKey::from_bytes(new.0),
            at,
            until,
            signature: signature.0,
        }
    }

    fn body(&self) -> Vec<u8> {
        wire::encode(&(
            Fixed(*self.old.as_bytes()),
            Fixed(*self.new.as_bytes()),
            self.at,
            self.until,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_take_the_new_key_on_the_old_ones_word_only() {
        let (root, new) = (
            RootKey::from_seed(&[1; 32]),
            RootKey::from_seed(&[3; 32]).public(),
        );
        let [at, until] = [5, 9].map(UnixTime::from_seconds);
        let succession = root.succession(&new, at, until);
        let succession = Succession::decode(&succession.encode()).unwrap();
        assert_eq!(succession.verify(&root.public()), Ok(new));

        let mesh = RootKey::from_seed(&[2; 32]).public();
        assert_eq!(
            succession.verify(&mesh),
            Err(MembershipError::Foreign { mesh: mesh.short() })
        );
        let later = UnixTime::from_seconds(10);
        for forged in [
            Succession {
                new: mesh,
                ..succession.clone()
            },
            Succession {
                until: later,
                ..succession
            },
        ] {
            let refused = forged.verify(&root.public());
            assert!(
                matches!(refused, Err(MembershipError::FalseRoot { .. })),
                "{refused:?}"
            );
        }
        assert!(Succession::decode(&[0; 300]).is_err());
    }
}
