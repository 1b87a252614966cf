use super::signer::{Signer, check_key, check_time};
use super::statement::Statement;
use super::wire::{self, Fixed};
use super::{Membership, MembershipError, MeshKey, Rights, Terms, UnixTime, word};
use bytes::Bytes;
use karman_types::Tier;
use std::fmt;
use std::str::FromStr;

const PREFIX: &str = "kmn1";
const FIELD: &str = "invitation";
const MAX_ADDRESSES: usize = 8;
const MAX_ADDRESS: usize = 256;

/// A text that lets one node into a mesh, once: `kmn1` and base32 in which case does not matter, at most 4,096 characters,
/// so that it fits a QR code. A value of this type has a valid signature; whether it is still good is for
/// [`accept`](Self::accept) and [`Issuer::redeem`](super::Issuer::redeem) to say.
///
/// It is a secret until it is redeemed, unless it is for one node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Invitation {
    pub(super) mesh: MeshKey,
    pub(super) id: InvitationId,
    pub(super) terms: Terms,
    pub(super) expires: UnixTime,
    pub(super) addresses: Vec<String>,
    pub(super) issuer: Option<Bytes>,
    /// Its public key, and the token of its membership.
    pub(super) for_node: Option<([u8; 32], Bytes)>,
    pub(super) signature: [u8; 64],
}

/// 128 random bits that tell invitations apart.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct InvitationId(pub(super) [u8; 16]);

impl InvitationId {
    /// The 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The same as a number, by which stores know it.
    pub(crate) const fn number(&self) -> u128 {
        u128::from_le_bytes(self.0)
    }

    /// What [`Display`](fmt::Display) writes.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

impl fmt::Display for InvitationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// Mesh, id, tier, rights, not after, expires, addresses, token of the issuer, token of the node.
type Body = (
    Fixed<32>,
    Fixed<16>,
    Tier,
    Rights,
    UnixTime,
    UnixTime,
    Vec<String>,
    Option<Bytes>,
    Option<Bytes>,
);

impl Invitation {
    /// The mesh it leads into. A joining node that knows no mesh yet takes it from here.
    pub const fn mesh(&self) -> &MeshKey {
        &self.mesh
    }

    /// What tells it from others.
    pub const fn id(&self) -> InvitationId {
        self.id
    }

    /// What the node is to get.
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The last second it can be redeemed.
    pub const fn expires(&self) -> UnixTime {
        self.expires
    }

    /// Where issuers listen, as its maker wrote it.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The public key of the node it is for, when it is for one.
    pub fn for_node(&self) -> Option<&[u8; 32]> {
        self.for_node.as_ref().map(|(key, _)| key)
    }

    /// What the joining node with this public key does first: `Some` membership means that it has joined, `None` that it
    /// shows the invitation to an issuer.
    ///
    /// # Errors
    /// [`MembershipError::Expired`] and [`MembershipError::WrongKey`] (it is for another node).
    pub fn accept(&self, key: &[u8; 32], now: UnixTime) -> Result<Option<Membership>, MembershipError> {
        self.check(key, now)?;
        Ok(self.membership())
    }

    pub(super) fn check(&self, key: &[u8; 32], now: UnixTime) -> Result<(), MembershipError> {
        if let Some(node) = self.for_node() {
            check_key(node, key)?;
        }
        check_time(self.expires, now)
    }

    pub(super) fn sign(mut self, seed: &[u8; 32]) -> Result<Self, MembershipError> {
        self.check_addresses()?;
        self.signature = Statement::Invitation.sign(seed, &self.body());
        if self.to_string().len() > word::MAX_CHARACTERS {
            return Err(word::too_long(FIELD));
        }
        Ok(self)
    }

    fn membership(&self) -> Option<Membership> {
        self.for_node.as_ref().map(|(_, token)| Membership {
            issuer: self.issuer.clone(),
            token: token.clone(),
        })
    }

    fn body(&self) -> Vec<u8> {
        let body: Body = (
            Fixed(*self.mesh.as_bytes()),
            Fixed(self.id.0),
            self.terms.tier,
            self.terms.rights.clone(),
            self.terms.not_after,
            self.expires,
            self.addresses.clone(),
            self.issuer.clone(),
            self.for_node.as_ref().map(|(_, token)| token.clone()),
        );
        wire::encode(&body)
    }

    fn check_addresses(&self) -> Result<(), MembershipError> {
        let too_long = |limit| MembershipError::TooLong {
            field: "addresses",
            limit,
        };
        if self.addresses.len() > MAX_ADDRESSES {
            return Err(too_long(MAX_ADDRESSES));
        }
        if self.addresses.iter().any(|address| address.len() > MAX_ADDRESS) {
            return Err(too_long(MAX_ADDRESS));
        }
        Ok(())
    }
}

impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = wire::encode(&(Bytes::from(self.body()), Fixed(self.signature)));
        f.write_str(&word::write(PREFIX, &bytes))
    }
}

impl FromStr for Invitation {
    type Err = MembershipError;

    fn from_str(text: &str) -> Result<Self, MembershipError> {
        let bytes = word::read(FIELD, PREFIX, text)?;
        let (body, signature): (Bytes, Fixed<64>) = wire::decode(FIELD, &bytes, word::MAX_CHARACTERS)?;
        let (mesh, id, tier, rights, not_after, expires, addresses, issuer, token): Body =
            wire::decode(FIELD, &body, word::MAX_CHARACTERS)?;
        let mesh = MeshKey::from_bytes(mesh.0);
        let mut invitation = Self {
            mesh,
            id: InvitationId(id.0),
            terms: Terms {
                tier,
                rights,
                not_after,
            },
            expires,
            addresses,
            issuer,
            for_node: None,
            signature: signature.0,
        };
        invitation.check_addresses()?;
        let signer = Signer::read(&mesh, invitation.issuer.as_deref())?;
        Statement::Invitation.verify(signer.key(), &body, &signature.0)?;
        signer.may_issue(&invitation.terms)?;
        if let Some(token) = token {
            let membership = Membership {
                issuer: invitation.issuer.clone(),
                token: token.clone(),
            };
            let (_, read) = membership.read(&mesh)?;
            if read.claims.terms != invitation.terms {
                return Err(MembershipError::malformed(
                    FIELD,
                    "its membership has other terms; ask for a new one",
                ));
            }
            invitation.for_node = Some((read.claims.key, token));
        }
        Ok(invitation)
    }
}
