//! What only an issuer may: to let nodes in, to put them out, to name the keepers.

use super::Standing;
use super::roots::Roots;
use crate::gate::{GateError, peer_of};
use crate::membership::{
    Charter, Invitation, Issuer, Membership, MembershipError, Revocations, Rights, RootKey, Terms, UnixTime,
};
use karman_store::{Redeemed, Store};
use karman_types::Tier;
use std::sync::Arc;
use std::time::Duration;

/// How long the node that holds the root key is a member before it renews itself.
const ROOT_LASTS: Duration = Duration::from_secs(365 * 86_400);

/// The root key, where this is the machine that holds it. Where the mesh has got the next one already and the machine was cut off
/// in between, the next one takes its place.
///
/// # Errors
/// When the keys or what is remembered of the mesh cannot be read.
pub fn root_of(store: &Store) -> Result<Option<RootKey>, GateError> {
    let Some(next) = store.next_mesh_root()?.map(|seed| RootKey::from_seed(&seed)) else {
        return Ok(store.mesh_root()?.map(|seed| RootKey::from_seed(&seed)));
    };
    let roots = Roots::read(store, None)?;
    if roots.is_some_and(|roots| roots.mesh() == next.public()) {
        store.promote_mesh_root()?;
    }
    Ok(store.mesh_root()?.map(|seed| RootKey::from_seed(&seed)))
}

impl Standing {
    /// The membership of the node that holds the root key.
    pub(super) fn admit_itself(&self, issuer: &Issuer) -> Result<(), GateError> {
        let now = self.now();
        let terms = Terms {
            tier: self.tier.or_else(|| self.tier_before()).unwrap_or_default(),
            rights: Rights::all(),
            not_after: now.after(ROOT_LASTS),
        };
        let own = issuer.issue(&self.key, &terms, now).map_err(GateError::Own)?;
        self.keep(own)
    }

    /// The tier that it had by its membership so far, however long ago that ended.
    fn tier_before(&self) -> Option<Tier> {
        let (own, roots) = (self.membership()?, self.roots.read());
        let read = roots.under(UnixTime::default(), |mesh, _| own.tier(mesh));
        Some(read.ok()?.0)
    }

    /// Renews the membership of the node that holds the root key where that is due: nobody else does.
    pub(crate) fn renew_itself(&self) -> Result<(), GateError> {
        let Some(issuer) = self.issuer().filter(|issuer| issuer.is_root()) else {
            return Ok(());
        };
        let now = self.now();
        let own = self.membership();
        let judged = own.map(|own| self.roots.read().judge(&own, &self.key, now));
        let is_due = match judged {
            Some(Ok(judged)) => judged.is_due(now),
            Some(Err(error)) => matches!(error, MembershipError::Expired { .. }),
            None => true,
        };
        if is_due {
            self.admit_itself(&issuer)?;
            self.has_news();
        }
        Ok(())
    }

    /// Whether this node holds the root key.
    pub fn holds_root(&self) -> bool {
        self.issuer().is_some_and(|issuer| issuer.is_root())
    }

    /// Has the node be an issuer by its own membership, as far as that gives it the right; with the root key it is one anyway.
    pub(super) fn serve_by(&self, own: &Membership) {
        if self.holds_root() {
            return;
        }
        let now = self.now();
        let issuer = {
            let roots = self.roots.read();
            Issuer::node(&roots.mesh(), self.seed(), own, now, &roots.revoked)
        };
        *self.issuer.write() = issuer.ok().map(Arc::new);
    }

    /// Has the node be an issuer by a membership that did not hold when it was started, and does now.
    pub(crate) fn serve_once_it_holds(&self) {
        if self.issuer().is_none()
            && let Some(own) = self.membership()
        {
            self.serve_by(&own);
        }
    }

    /// An invitation for one node, good until `expires`, that leads to these addresses of issuers.
    ///
    /// # Errors
    /// `NoIssuer` when this node may not invite, `Issuer` for terms that it may not give or too many addresses.
    pub fn invite(
        &self,
        terms: &Terms,
        expires: UnixTime,
        for_node: Option<&[u8; 32]>,
        addresses: Vec<String>,
    ) -> Result<Invitation, GateError> {
        let issuer = self.issuer().ok_or(GateError::NoIssuer)?;
        let invited = issuer.invite(terms, expires, for_node, addresses, self.now());
        invited.map_err(GateError::Issuer)
    }

    /// Puts a node out of the mesh. Others learn it at their next contact.
    ///
    /// # Errors
    /// `NoIssuer` or `Issuer` when this node may not revoke, `HoldsRoot` when it may not revoke that one, else what the store refuses.
    pub fn revoke(&self, node: &[u8; 32]) -> Result<(), GateError> {
        let issuer = self.issuer().ok_or(GateError::NoIssuer)?;
        let revocation = issuer.revoke(node, self.now()).map_err(GateError::Issuer)?;
        if !issuer.is_root() && self.holds_root_there(node) {
            return Err(GateError::HoldsRoot);
        }
        let keep = |roots: &Roots| roots.keep(&self.store);
        self.roots.write().exclude(revocation, keep)?;
        self.has_news();
        Ok(())
    }

    /// Whether the node with this key holds the root key, where it was met since this one was started.
    fn holds_root_there(&self, node: &[u8; 32]) -> bool {
        let members = self.members.lock();
        let met = peer_of(node).and_then(|peer| members.get(&peer));
        met.is_some_and(|admitted| admitted.member.holds_root())
    }

    /// The keys of those who hold the root key, as far as they were met since this node was started.
    fn holders(&self) -> Vec<[u8; 32]> {
        let members = self.members.lock();
        let others = members.values().filter(|admitted| admitted.member.holds_root());
        others
            .map(|admitted| admitted.member.key)
            .chain([self.key])
            .collect()
    }

    /// Gives the mesh the root key that the node keeps as the next one. What the one before has signed is good for `grace` from
    /// now, until the time that is answered; for no time, and all its memberships and revocations end.
    ///
    /// # Errors
    /// `NoRoot` when this node does not hold the root key, `NoNextRoot` when none is to follow, else what the store refuses.
    /// Where the node is cut off in the middle, the mesh has either key, and the node the same one.
    pub fn rotate(&self, grace: Duration) -> Result<UnixTime, GateError> {
        let issuer = self.issuer().filter(|issuer| issuer.is_root());
        let issuer = issuer.ok_or(GateError::NoRoot)?;
        let seed = self.store.next_mesh_root()?.ok_or(GateError::NoNextRoot)?;
        let new = RootKey::from_seed(&seed);
        let (now, next) = (self.now(), Arc::new(Issuer::root(&new)));
        let until = match grace.is_zero() {
            true => UnixTime::from_seconds(now.seconds().saturating_sub(1)),
            false => now.after(grace),
        };
        let holders = self.holders();
        let mut roots = self.roots.write();
        let succession = issuer
            .succession(&new.public(), now, until)
            .map_err(GateError::Issuer)?;
        let revoked = match grace.is_zero() {
            true => Revocations::new(new.public()),
            false => roots.carried(&next, &holders).map_err(GateError::Issuer)?,
        };
        let after = roots.after(succession, revoked).map_err(GateError::Issuer)?;
        self.replace(&mut roots, after)?;
        drop(roots);
        *self.issuer.write() = Some(next.clone());
        self.store.promote_mesh_root()?;
        self.admit_itself(&next)?;
        self.has_news();
        Ok(until)
    }

    /// Names the keepers of the mesh by their public keys, in the place of those of the charter before.
    ///
    /// # Errors
    /// `NoIssuer` when this node may not, `Issuer` when they are not three.
    pub fn charter(&self, keepers: &[[u8; 32]], before: Option<&Charter>) -> Result<Charter, GateError> {
        let issuer = self.issuer().ok_or(GateError::NoIssuer)?;
        let charter = issuer.charter(keepers, before, self.now());
        charter.map_err(GateError::Issuer)
    }

    /// A first membership for the node that shows this invitation, which was made here: another issuer does not know whether it was used
    /// or withdrawn. Remembered before it is given.
    pub(crate) fn redeem(&self, invitation: &Invitation, key: &[u8; 32]) -> Result<Membership, GateError> {
        let issuer = self.issuer().filter(|issuer| issuer.has_made(invitation));
        let issuer = issuer.ok_or(GateError::NoIssuer)?;
        let now = self.now();
        // Words that were given out before the root key was replaced are good as long as that key.
        let redeemed = self.roots.read().under(now, |mesh, revoked| {
            issuer.redeem_under(mesh, invitation, key, now, revoked)
        });
        let ((id, terms), _) = redeemed.map_err(|error| GateError::Invitation(self.by_clock(error)))?;
        let expires = invitation.expires().seconds();
        if !self.store.mesh().redeem(id.number(), expires, key)? {
            return Err(GateError::Invitation(
                match self.store.mesh().redeemed(id.number())? {
                    Some(Redeemed::Withdrawn) => MembershipError::Withdrawn,
                    _ => MembershipError::Used,
                },
            ));
        }
        let issued = issuer.issue(key, &terms, self.now());
        issued.map_err(GateError::Invitation)
    }

    /// The next membership of a member whose own is past half of its life, or signed by a key that was replaced, where this node
    /// is an issuer that may give it: for as long as it was given. Whoever was let in by a node stays its member, so that it goes when
    /// that one is revoked; and a node renews whom the root key has let in only where the root key has not in time.
    pub(crate) fn renew(
        &self,
        membership: &Membership,
        key: &[u8; 32],
    ) -> Result<Option<Membership>, GateError> {
        let Some(issuer) = self.issuer().filter(|issuer| issuer.admits()) else {
            return Ok(None);
        };
        let now = self.now();
        let judged = self.roots.read().judge(membership, key, now)?;
        let is_due = match judged.member.issuer {
            Some(by) => by == self.key && judged.is_due(now),
            None if issuer.is_root() => judged.is_due(now),
            None => judged.is_late(now),
        };
        if !is_due {
            return Ok(None);
        }
        let (late, member) = (judged.is_late(now), judged.member);
        let whole = now.after(member.life());
        // Nobody else renews what this node has signed: for as long as it is a member itself, where that is of use.
        let not_after = member.issuer.map_or(whole, |_| whole.min(issuer.ends()));
        let is_of_use = not_after > member.not_after && (late || not_after >= now.after(member.life() / 2));
        if not_after < whole && !is_of_use {
            return Ok(None);
        }
        let terms = Terms {
            tier: member.tier,
            not_after,
            rights: member.rights,
        };
        match issuer.issue(key, &terms, now) {
            // The holder of the root key may.
            Err(MembershipError::BeyondIssuer { .. } | MembershipError::Expired { .. }) => Ok(None),
            issued => Ok(Some(issued?)),
        }
    }
}

#[cfg(test)]
mod tests;
