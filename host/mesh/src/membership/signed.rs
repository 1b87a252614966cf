use super::statement::{Statement, public_key};
use super::wire::{self, Fixed};
use super::{Member, Membership, MembershipError, MeshKey, Revocations, UnixTime};
use bytes::Bytes;

/// What a member states to those whom it may never meet: the statement, the membership that gives it rights, and its
/// signature over both (Ed25519, RFC 8032). At most [`Signed::MAX_BYTES`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Signed {
    key: [u8; 32],
    membership: Bytes,
    says: Bytes,
    signature: [u8; 64],
}

/// The kind of a signed statement: a signature of one kind is not valid for another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// That a node may read a plugin's file.
    Ticket,
    /// What a node shall do that the signer cannot reach now.
    Envelope,
}

impl Signed {
    /// Longer ones are neither made nor read.
    pub const MAX_BYTES: usize = 32 << 10;

    /// Signs a statement with the key of this seed, which the membership is bound to.
    pub fn sign(kind: Kind, seed: &[u8; 32], membership: &Membership, says: Bytes) -> Self {
        let membership = Bytes::from(membership.encode());
        let signature = kind.statement().sign(seed, &message(&membership, &says));
        Self {
            key: public_key(seed),
            membership,
            says,
            signature,
        }
    }

    /// The member that signed it.
    ///
    /// # Errors
    /// When the signature is not the signer's, else those of [`Membership::verify`].
    pub fn verify(
        &self,
        kind: Kind,
        mesh: &MeshKey,
        now: UnixTime,
        revoked: &Revocations,
    ) -> Result<Member, MembershipError> {
        let message = message(&self.membership, &self.says);
        kind.statement().verify(&self.key, &message, &self.signature)?;
        Membership::decode(&self.membership)?.verify(mesh, &self.key, now, revoked)
    }

    /// What it states. Whether that holds, [`verify`](Self::verify) tells.
    pub const fn says(&self) -> &Bytes {
        &self.says
    }

    /// The CBOR form.
    pub fn encode(&self) -> Vec<u8> {
        wire::encode(&(
            Fixed(self.key),
            &self.membership,
            &self.says,
            Fixed(self.signature),
        ))
    }

    /// Reads the CBOR form. Nothing is verified yet.
    ///
    /// # Errors
    /// [`MembershipError::TooLong`] or [`MembershipError::Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, MembershipError> {
        let (key, membership, says, signature): (Fixed<32>, Bytes, Bytes, Fixed<64>) =
            wire::decode("statement", bytes, Self::MAX_BYTES)?;
        Ok(Self {
            key: key.0,
            membership,
            says,
            signature: signature.0,
        })
    }
}

impl Kind {
    const fn statement(self) -> Statement {
        match self {
            Self::Ticket => Statement::Ticket,
            Self::Envelope => Statement::Envelope,
        }
    }
}

fn message(membership: &Bytes, says: &Bytes) -> Vec<u8> {
    wire::encode(&(membership, says))
}
