use super::signer::{Signer, check_key, check_time};
use super::token::Token;
use super::{MembershipError, MeshKey, Pattern, Revocations, Right, Rights, UnixTime, wire};
use bytes::Bytes;
use karman_types::{NodeId, TaskError, Tier};
use std::fmt::Display;
use std::time::Duration;

/// What a node shows to be let in: a token bound to its key, and the token of the issuer that signed it, unless the root
/// key did. It is no secret; only the holder of the key can use it. A few hundred bytes, at most
/// [`Membership::MAX_BYTES`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Membership {
    pub(super) issuer: Option<Bytes>,
    pub(super) token: Bytes,
}

/// A node that showed a membership which holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Member {
    /// Its Ed25519 public key.
    pub key: [u8; 32],
    /// Its id, which follows from the key.
    pub node: NodeId,
    /// The public key of the issuer that has signed its membership; nothing where that was the root key.
    pub issuer: Option<[u8; 32]>,
    /// Where it stands.
    pub tier: Tier,
    /// What it may do.
    pub rights: Rights,
    /// When the membership was signed: no earlier than that of its issuer, and no later than its end, whatever it says. Where
    /// that is later than the reader's clock, the clock is behind.
    pub issued: UnixTime,
    /// The last second the membership is good for.
    pub not_after: UnixTime,
}

impl Member {
    /// Whether it holds the root key, as far as its membership tells: that key has signed it, with every right. Only the root key
    /// puts it out.
    pub fn holds_root(&self) -> bool {
        self.issuer.is_none() && self.rights.covers(&Rights::all())
    }

    /// Whether it has this right for what is named so. None is for what is no name.
    pub fn may(&self, right: fn(Pattern) -> Right, name: &str) -> bool {
        let right = name.parse().map(right);
        right.is_ok_and(|right| self.rights.allows(&right))
    }

    /// That it has this right.
    ///
    /// # Errors
    /// `denied`, with the right that it lacks.
    pub fn must(&self, right: fn(Pattern) -> Right, name: &str) -> Result<(), TaskError> {
        match self.may(right, name) {
            true => Ok(()),
            false => Err(self.lacks(&match name.parse() {
                Ok(name) => right(name).to_string(),
                Err(_) => format!("for `{}`, which is no name", name.escape_debug()),
            })),
        }
    }

    /// The error of one who lacks a right.
    pub(crate) fn lacks(&self, right: &impl Display) -> TaskError {
        TaskError::denied(format!("node {} has no right `{right}`", self.node.short()))
            .with_hint("`karman mesh invite --right …` gives it with the next membership")
    }

    /// For how long the membership was given.
    pub(crate) const fn life(&self) -> Duration {
        Duration::from_secs(self.not_after.seconds().saturating_sub(self.issued.seconds()))
    }

    /// Whether the membership is past half of its life: time to renew it.
    pub(crate) const fn is_past_half(&self, now: UnixTime) -> bool {
        let lived = now.seconds().saturating_sub(self.issued.seconds());
        lived >= self.life().as_secs() / 2
    }
}

impl Membership {
    /// Longer ones are neither made nor read.
    pub const MAX_BYTES: usize = 8 << 10;

    /// The member that holds it, on a connection that is authenticated as `connection_key`.
    ///
    /// `now` is the latest of the clock, the persisted floor and the time of the build ([`UnixTime`]). A membership that
    /// was issued after `now` holds: the clock is behind.
    ///
    /// # Errors
    /// [`MembershipError::Foreign`], [`Malformed`](MembershipError::Malformed),
    /// [`NotAnIssuer`](MembershipError::NotAnIssuer) and [`BeyondIssuer`](MembershipError::BeyondIssuer) when it is not
    /// properly signed for this mesh; then [`WrongKey`](MembershipError::WrongKey),
    /// [`Revoked`](MembershipError::Revoked) (the node or its issuer) and [`Expired`](MembershipError::Expired).
    pub fn verify(
        &self,
        mesh: &MeshKey,
        connection_key: &[u8; 32],
        now: UnixTime,
        revoked: &Revocations,
    ) -> Result<Member, MembershipError> {
        let (signer, token) = self.read(mesh)?;
        let claims = &token.claims;
        check_key(&claims.key, connection_key)?;
        let member = Member {
            key: claims.key,
            node: NodeId::of_key(&claims.key),
            issuer: match &signer {
                Signer::Root(_) => None,
                Signer::Issuer(token) => Some(token.claims.key),
            },
            tier: claims.terms.tier,
            rights: claims.terms.rights.clone(),
            issued: claims.issued.max(signer.since()).min(claims.terms.not_after),
            not_after: claims.terms.not_after,
        };
        revoked.check_member(&member)?;
        signer.stands(now, revoked)?;
        check_time(claims.terms.not_after, now)?;
        token.authorize(connection_key, now)?;
        Ok(member)
    }

    /// The tier that it gives in this mesh, whether or not it holds now.
    pub(crate) fn tier(&self, mesh: &MeshKey) -> Result<Tier, MembershipError> {
        Ok(self.read(mesh)?.1.claims.terms.tier)
    }

    /// The CBOR form.
    pub fn encode(&self) -> Vec<u8> {
        wire::encode(&(&self.issuer, &self.token))
    }

    /// Reads the CBOR form. Nothing is verified yet.
    ///
    /// # Errors
    /// [`MembershipError::TooLong`] or [`MembershipError::Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, MembershipError> {
        let (issuer, token) = wire::decode("membership", bytes, Self::MAX_BYTES)?;
        Ok(Self { issuer, token })
    }

    /// What it says and who signed it, when that one may say so; whether it holds now is another question.
    pub(super) fn read(&self, mesh: &MeshKey) -> Result<(Signer, Token), MembershipError> {
        let signer = Signer::read(mesh, self.issuer.as_deref())?;
        let foreign = || match signer {
            Signer::Root(_) => MembershipError::Foreign { mesh: mesh.short() },
            Signer::Issuer(_) => MembershipError::malformed(
                "membership",
                "its signature is not its issuer's; ask for a new one",
            ),
        };
        let token = Token::read(&self.token, signer.key(), foreign())?;
        // A key may be an issuer's in two meshes; what it signs for one is nothing in the other.
        if token.claims.mesh != *mesh {
            return Err(MembershipError::Foreign { mesh: mesh.short() });
        }
        signer.may_issue(&token.claims.terms)?;
        Ok((signer, token))
    }
}
