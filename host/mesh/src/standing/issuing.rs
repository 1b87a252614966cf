//! What only an issuer may: to let nodes in, to put them out, to name the keepers.

use super::{REVOCATIONS, Standing};
use crate::gate::GateError;
use crate::membership::{Charter, Invitation, Member, Membership, MembershipError};
use serde_bytes::ByteBuf;
use std::time::Duration;

/// A membership that an issuer sees past half of its life is renewed for as long as it was given.
const RENEW_AFTER: u64 = 2;

impl Standing {
    /// Puts a node out of the mesh. Others learn it at their next contact.
    ///
    /// # Errors
    /// `NotAMember` when this node may not revoke, else what the store refuses.
    pub fn revoke(&self, node: &[u8; 32]) -> Result<(), GateError> {
        let issuer = self.issuer.as_ref().ok_or(GateError::NoIssuer)?;
        let revocation = issuer.revoke(node, self.now())?;
        let mut revoked = self.revoked.write();
        revoked.add(revocation)?;
        self.store
            .mesh()
            .put(REVOCATIONS, &ByteBuf::from(revoked.encode()))?;
        Ok(())
    }

    /// Names the keepers of the mesh by their public keys, in the place of those of the charter before.
    ///
    /// # Errors
    /// `NoIssuer` when this node may not, `NotAMember` when they are not three.
    pub fn charter(&self, keepers: &[[u8; 32]], before: Option<&Charter>) -> Result<Charter, GateError> {
        let issuer = self.issuer.as_ref().ok_or(GateError::NoIssuer)?;
        Ok(issuer.charter(keepers, before, self.now())?)
    }

    /// A first membership for the node that shows this invitation; remembered before it is given.
    pub(crate) fn redeem(&self, invitation: &Invitation, key: &[u8; 32]) -> Result<Membership, GateError> {
        let issuer = self.issuer.as_ref().ok_or(GateError::NoIssuer)?;
        let (id, terms) = issuer.redeem(invitation, key, self.now(), &self.revoked.read())?;
        if !self
            .store
            .mesh()
            .redeem(u128::from_le_bytes(*id.as_bytes()), key)?
        {
            return Err(MembershipError::Used.into());
        }
        Ok(issuer.issue(key, &terms, self.now())?)
    }

    /// The next membership of a member whose own is past half of its life, where this node is an issuer.
    pub(crate) fn renew(
        &self,
        membership: &Membership,
        member: &Member,
    ) -> Result<Option<Membership>, GateError> {
        let Some(issuer) = &self.issuer else {
            return Ok(None);
        };
        let now = self.now();
        let life = member.not_after.seconds().saturating_sub(member.issued.seconds());
        let lived = now.seconds().saturating_sub(member.issued.seconds());
        if lived < life / RENEW_AFTER {
            return Ok(None);
        }
        let not_after = now.after(Duration::from_secs(life));
        let next = issuer.renew(membership, &member.key, not_after, now, &self.revoked.read())?;
        Ok(Some(next))
    }
}
