//! Signed statements besides memberships: Ed25519 (RFC 8032) over a label and a CBOR body. The label keeps a signature
//! from being taken for one of another kind, by a key that also signs tokens and handshakes.

use super::MembershipError;
use ed25519_compact::{KeyPair, Noise, PublicKey, Seed, Signature};

#[derive(Clone, Copy)]
pub(super) enum Statement {
    Envelope,
    Invitation,
    Revocation,
    Succession,
    Ticket,
    Charter,
    Mailbox,
}

impl Statement {
    pub(super) fn sign(self, seed: &[u8; 32], body: &[u8]) -> [u8; 64] {
        let pair = KeyPair::from_seed(Seed::new(*seed));
        *pair.sk.sign(self.message(body), None::<Noise>)
    }

    pub(super) fn verify(
        self,
        key: &[u8; 32],
        body: &[u8],
        signature: &[u8; 64],
    ) -> Result<(), MembershipError> {
        PublicKey::new(*key)
            .verify(self.message(body), &Signature::new(*signature))
            .map_err(|_| {
                MembershipError::malformed(self.name(), "its signature is not its signer's; fetch it again")
            })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Envelope => "envelope",
            Self::Invitation => "invitation",
            Self::Revocation => "revocation",
            Self::Succession => "succession",
            Self::Ticket => "ticket",
            Self::Charter => "charter",
            Self::Mailbox => "mailbox",
        }
    }

    fn message(self, body: &[u8]) -> Vec<u8> {
        [b"karman-mesh/1/", self.name().as_bytes(), b"\0", body].concat()
    }
}

pub(super) fn public_key(seed: &[u8; 32]) -> [u8; 32] {
    *KeyPair::from_seed(Seed::new(*seed)).pk
}
