use super::key::random;
use super::signer::{Signer, check_time};
use super::token::Claims;
use super::{
    Charter, Invitation, InvitationId, Membership, MembershipError, MeshKey, Revocation, Revocations, Right,
    RootKey, Succession, Terms, UnixTime, statement,
};
use bytes::Bytes;
use karman_types::NodeId;
use std::fmt;
use zeroize::Zeroizing;

/// Who lets nodes in: the root key, or a node whose membership the root key signed with the right `issue`. The latter
/// gives no right that it does not hold, no time beyond its own, and neither `issue` nor `revoke`.
pub struct Issuer {
    seed: Zeroizing<[u8; 32]>,
    signer: Signer,
    token: Option<Bytes>,
}

impl Issuer {
    /// The root key as an issuer.
    pub fn root(root: &RootKey) -> Self {
        Self {
            seed: Zeroizing::new(*root.seed()),
            signer: Signer::Root(root.public()),
            token: None,
        }
    }

    /// The node with this seed (RFC 8032) and its membership as an issuer.
    ///
    /// # Errors
    /// What [`Membership::verify`] says; [`MembershipError::NotAnIssuer`] when it holds neither `issue` nor `revoke`.
    pub fn node(
        mesh: &MeshKey,
        seed: &[u8; 32],
        membership: &Membership,
        now: UnixTime,
        revoked: &Revocations,
    ) -> Result<Self, MembershipError> {
        let member = membership.verify(mesh, &statement::public_key(seed), now, revoked)?;
        if !member.rights.allows(&Right::Issue) && !member.rights.allows(&Right::Revoke) {
            return Err(MembershipError::NotAnIssuer {
                node: member.node,
                right: Right::Issue,
            });
        }
        // Only the root key gives these rights, so the root key signed the token.
        Ok(Self {
            seed: Zeroizing::new(*seed),
            signer: Signer::read(mesh, Some(&membership.token))?,
            token: Some(membership.token.clone()),
        })
    }

    /// Whether it is the root key.
    pub const fn is_root(&self) -> bool {
        matches!(self.signer, Signer::Root(_))
    }

    /// The last second that it can be one.
    pub(crate) fn ends(&self) -> UnixTime {
        match &self.signer {
            Signer::Root(_) => UnixTime::MAX,
            Signer::Issuer(token) => token.claims.terms.not_after,
        }
    }

    /// Whether it gives memberships: one with `revoke` alone does not.
    pub fn admits(&self) -> bool {
        self.signer.needs(Right::Issue).is_ok()
    }

    /// Whether it has made this invitation, under any of its memberships; the root key, under any that it replaced.
    pub fn has_made(&self, invitation: &Invitation) -> bool {
        let made = Signer::read(&invitation.mesh, invitation.issuer.as_deref());
        match (&self.signer, made) {
            (Signer::Root(_), Ok(Signer::Root(_))) => true,
            (Signer::Issuer(own), Ok(Signer::Issuer(maker))) => own.claims.key == maker.claims.key,
            _ => false,
        }
    }

    /// The mesh it issues for.
    pub fn mesh(&self) -> MeshKey {
        self.signer.mesh()
    }

    /// A membership for the node with this public key.
    ///
    /// # Errors
    /// [`MembershipError::NotAnIssuer`], [`BeyondIssuer`](MembershipError::BeyondIssuer),
    /// [`TooLong`](MembershipError::TooLong); [`Expired`](MembershipError::Expired) when the terms, or the issuer's own
    /// membership, are over.
    pub fn issue(
        &self,
        node: &[u8; 32],
        terms: &Terms,
        now: UnixTime,
    ) -> Result<Membership, MembershipError> {
        self.signer.may_issue(terms)?;
        self.signer.stands(now, &Revocations::new(self.mesh()))?;
        check_time(terms.not_after, now)?;
        let claims = Claims {
            mesh: self.mesh(),
            key: *node,
            terms: terms.clone(),
            // The clock may be behind that of who has let it in.
            issued: now.max(self.signer.since()),
        };
        let membership = Membership {
            issuer: self.token.clone(),
            token: claims.sign(&self.seed)?,
        };
        if membership.encode().len() > Membership::MAX_BYTES {
            return Err(MembershipError::TooLong {
                field: "membership",
                limit: Membership::MAX_BYTES,
            });
        }
        Ok(membership)
    }

    /// An invitation to be redeemed once, until `expires`, at one of the issuers with these addresses (at most 8, of 256
    /// characters). For a node whose key is known it holds the membership itself and needs no issuer in reach.
    ///
    /// # Errors
    /// What [`issue`](Self::issue) says; [`MembershipError::TooLong`] when the text would be longer than 4,096 characters;
    /// [`NoRandomness`](MembershipError::NoRandomness).
    pub fn invite(
        &self,
        terms: &Terms,
        expires: UnixTime,
        for_node: Option<&[u8; 32]>,
        addresses: Vec<String>,
        now: UnixTime,
    ) -> Result<Invitation, MembershipError> {
        self.signer.may_issue(terms)?;
        self.signer.stands(now, &Revocations::new(self.mesh()))?;
        check_time(terms.not_after.min(expires), now)?;
        let token = match for_node {
            Some(node) => Some(self.issue(node, terms, now)?.token),
            None => None,
        };
        let unsigned = Invitation {
            mesh: self.mesh(),
            id: InvitationId(random()?),
            terms: terms.clone(),
            expires,
            addresses,
            issuer: self.token.clone(),
            for_node: for_node.copied().zip(token),
            signature: [0; 64],
        };
        unsigned.sign(&self.seed)
    }

    /// The terms of an invitation that this node shows on a connection authenticated as `presenter`. The caller gives them
    /// with [`issue`](Self::issue).
    ///
    /// That an invitation is used once is the caller's part: before it answers, it stores the id where it survives a power
    /// cut, and it refuses an id that is stored with [`MembershipError::Used`]. Issuers that do not share what they have
    /// stored could each redeem it once. An id can be forgotten once `now` can never again be before the invitation's end.
    ///
    /// # Errors
    /// [`MembershipError::Foreign`], [`Expired`](MembershipError::Expired) (the invitation or its terms),
    /// [`WrongKey`](MembershipError::WrongKey) (it is for another node), [`Revoked`](MembershipError::Revoked) (the node or
    /// who invited it), [`BeyondIssuer`](MembershipError::BeyondIssuer) (this issuer could not give its terms).
    pub fn redeem(
        &self,
        invitation: &Invitation,
        presenter: &[u8; 32],
        now: UnixTime,
        revoked: &Revocations,
    ) -> Result<(InvitationId, Terms), MembershipError> {
        self.redeem_under(&self.mesh(), invitation, presenter, now, revoked)
    }

    /// [`redeem`](Self::redeem) for an invitation that was signed when the mesh had this root key.
    pub(crate) fn redeem_under(
        &self,
        mesh: &MeshKey,
        invitation: &Invitation,
        presenter: &[u8; 32],
        now: UnixTime,
        revoked: &Revocations,
    ) -> Result<(InvitationId, Terms), MembershipError> {
        if invitation.mesh != *mesh {
            return Err(MembershipError::Foreign { mesh: mesh.short() });
        }
        invitation.check(presenter, now)?;
        revoked.check(presenter)?;
        Signer::read(mesh, invitation.issuer.as_deref())?.stands(now, revoked)?;
        check_time(invitation.terms.not_after, now)?;
        self.signer.may_issue(&invitation.terms)?;
        Ok((invitation.id, invitation.terms.clone()))
    }

    /// Names the keepers by their public keys, in the place of those of the charter before. `at` is the present time.
    ///
    /// # Errors
    /// [`MembershipError::Malformed`] when they are not three; [`NotAnIssuer`](MembershipError::NotAnIssuer) when it does not
    /// hold `issue`; [`Expired`](MembershipError::Expired) when its own membership is over.
    pub fn charter(
        &self,
        keepers: &[[u8; 32]],
        before: Option<&Charter>,
        at: UnixTime,
    ) -> Result<Charter, MembershipError> {
        self.signer.may_charter(at)?;
        let signer = (&self.signer, self.token.clone());
        Charter::sign(keepers, before, at, signer, &self.seed)
    }

    /// The word of this root key that another takes its place. What it has signed is good `until` then.
    ///
    /// # Errors
    /// [`MembershipError::NotAnIssuer`] for an issuer that is not the root key.
    pub fn succession(
        &self,
        new: &MeshKey,
        at: UnixTime,
        until: UnixTime,
    ) -> Result<Succession, MembershipError> {
        match &self.signer {
            Signer::Root(mesh) => Ok(Succession::sign(&self.seed, *mesh, *new, at, until)),
            Signer::Issuer(_) => Err(MembershipError::NotAnIssuer {
                node: NodeId::of_key(self.signer.key()),
                right: Right::Issue,
            }),
        }
    }

    /// Ends the membership of the node with this public key, for good: it comes back with a new key only. `at` is the
    /// present time; an issuer that is no longer a member then cannot revoke.
    ///
    /// # Errors
    /// [`MembershipError::NotAnIssuer`] when it does not hold `revoke`; [`Expired`](MembershipError::Expired) when its own
    /// membership is over.
    pub fn revoke(&self, node: &[u8; 32], at: UnixTime) -> Result<Revocation, MembershipError> {
        self.signer.may_revoke(at)?;
        Ok(Revocation::sign(
            self.mesh(),
            node,
            at,
            self.token.clone(),
            &self.seed,
        ))
    }
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer")
            .field("mesh", &self.mesh())
            .field("node", &NodeId::of_key(self.signer.key()))
            .finish_non_exhaustive()
    }
}
