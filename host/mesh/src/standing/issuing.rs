//! What only an issuer may: to let nodes in, to put them out, to name the keepers.

use super::Standing;
use super::roots::Roots;
use crate::gate::GateError;
use crate::membership::{
    Charter, Invitation, Issuer, Membership, MembershipError, Revocations, Right, Rights, RootKey, Terms,
    UnixTime,
};
use karman_store::{Redeemed, Store};
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
            tier: self.tier,
            rights: everything(),
            not_after: now.after(ROOT_LASTS),
        };
        self.keep(issuer.issue(&self.key, &terms, now)?)
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

    /// An invitation for one node, good until `expires`, that leads to these addresses of issuers.
    ///
    /// # Errors
    /// `NoIssuer` when this node may not invite, `NotAMember` for terms that it may not give or too many addresses.
    pub fn invite(
        &self,
        terms: &Terms,
        expires: UnixTime,
        for_node: Option<&[u8; 32]>,
        addresses: Vec<String>,
    ) -> Result<Invitation, GateError> {
        let issuer = self.issuer().ok_or(GateError::NoIssuer)?;
        Ok(issuer.invite(terms, expires, for_node, addresses, self.now())?)
    }

    /// Puts a node out of the mesh. Others learn it at their next contact.
    ///
    /// # Errors
    /// `NotAMember` when this node may not revoke, else what the store refuses.
    pub fn revoke(&self, node: &[u8; 32]) -> Result<(), GateError> {
        let issuer = self.issuer().ok_or(GateError::NoIssuer)?;
        let revocation = issuer.revoke(node, self.now())?;
        let mut roots = self.roots.write();
        roots.revoked.add(revocation)?;
        roots.keep(&self.store)?;
        drop(roots);
        self.has_news();
        Ok(())
    }

    /// Gives the mesh the root key that the node keeps as the next one. What the one before has signed is good for `grace` from
    /// now, until the time that is answered; for no time, and all its memberships and revocations end.
    ///
    /// # Errors
    /// `NotAMember` when this node does not hold the root key, `NoNextRoot` when none is to follow, else what the store refuses.
    /// Where the node is cut off in the middle, the mesh has either key, and the node the same one.
    pub fn rotate(&self, grace: Duration) -> Result<UnixTime, GateError> {
        let issuer = self.issuer().ok_or(GateError::NoIssuer)?;
        let seed = self.store.next_mesh_root()?.ok_or(GateError::NoNextRoot)?;
        let new = RootKey::from_seed(&seed);
        let (now, next) = (self.now(), Arc::new(Issuer::root(&new)));
        let until = match grace.is_zero() {
            true => UnixTime::from_seconds(now.seconds().saturating_sub(1)),
            false => now.after(grace),
        };
        let mut roots = self.roots.write();
        let succession = issuer.succession(&new.public(), now, until)?;
        let revoked = match grace.is_zero() {
            true => Revocations::new(new.public()),
            false => roots.carried(&next)?,
        };
        let after = roots.after(succession, revoked)?;
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
    /// `NoIssuer` when this node may not, `NotAMember` when they are not three.
    pub fn charter(&self, keepers: &[[u8; 32]], before: Option<&Charter>) -> Result<Charter, GateError> {
        let issuer = self.issuer().ok_or(GateError::NoIssuer)?;
        Ok(issuer.charter(keepers, before, self.now())?)
    }

    /// A first membership for the node that shows this invitation, which was made here: another issuer does not know whether it was used
    /// or withdrawn. Remembered before it is given.
    pub(crate) fn redeem(&self, invitation: &Invitation, key: &[u8; 32]) -> Result<Membership, GateError> {
        let issuer = self.issuer().filter(|issuer| issuer.has_made(invitation));
        let issuer = issuer.ok_or(GateError::NoIssuer)?;
        let now = self.now();
        // Words that were given out before the root key was replaced are good as long as that key.
        let ((id, terms), _) = self.roots.read().under(now, |mesh, revoked| {
            issuer.redeem_under(mesh, invitation, key, now, revoked)
        })?;
        let expires = invitation.expires().seconds();
        if !self.store.mesh().redeem(id.number(), expires, key)? {
            return Err(match self.store.mesh().redeemed(id.number())? {
                Some(Redeemed::Withdrawn) => MembershipError::Withdrawn.into(),
                _ => MembershipError::Used.into(),
            });
        }
        Ok(issuer.issue(key, &terms, self.now())?)
    }

    /// The next membership of a member whose own is past half of its life, or signed by a key that was replaced, where this node
    /// is an issuer that may give it: for as long as it was given.
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
        let member = judged.member;
        if judged.until.is_none() && !member.is_past_half(now) {
            return Ok(None);
        }
        let terms = Terms {
            tier: member.tier,
            not_after: now.after(member.life()),
            rights: member.rights,
        };
        match issuer.issue(key, &terms, now) {
            // The holder of the root key may.
            Err(MembershipError::BeyondIssuer { .. } | MembershipError::Expired { .. }) => Ok(None),
            issued => Ok(Some(issued?)),
        }
    }
}

/// What the holder of the root key may do.
fn everything() -> Rights {
    let all = [
        "bucket-read:*",
        "bucket-write:*",
        "call:*",
        "deploy:*",
        "drain",
        "issue",
        "revoke",
    ];
    all.iter()
        .map(|right| right.parse::<Right>().expect("a right of ours"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::Tier;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_deputy_renews_what_it_could_have_given() {
        let root = RootKey::generate().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let signer = Issuer::root(&root);
        let now = clock();
        let terms = |rights: &[&str], not_after| Terms {
            rights: rights
                .iter()
                .map(|right| right.parse::<Right>().unwrap())
                .collect(),
            ..Terms::usual(Tier::Fog, not_after)
        };
        let key = store.node_key().public();
        let own = terms(&["issue", "call:*"], now.after(10 * HOUR));
        let word = signer.invite(&own, now.after(HOUR), Some(&key), Vec::new(), now);
        let deputy = Standing::open(store, Tier::Fog, Some(word.unwrap()), None).unwrap();
        assert!(deputy.is_issuer() && !deputy.holds_root());

        let member = *RootKey::from_seed(&[3; 32]).public().as_bytes();
        let renewed = |rights: &[&str], from: UnixTime, to| {
            let before = signer.issue(&member, &terms(rights, to), from).unwrap();
            deputy.renew(&before, &member).unwrap()
        };
        let earlier = UnixTime::from_seconds(now.seconds() - 3600);
        let next = renewed(&["call:*"], earlier, now.after(HOUR / 2)).unwrap();
        let next = deputy.verify(&next, &member).unwrap();
        assert_eq!(next.issuer, Some(key));
        assert!(next.not_after >= now.after(HOUR));
        // It is early; it has not the right, or not the time: the holder of the root key may.
        assert!(renewed(&["call:*"], now, now.after(HOUR)).is_none());
        assert!(renewed(&["call:*", "deploy:*"], earlier, now.after(HOUR / 2)).is_none());
        let long_ago = UnixTime::from_seconds(now.seconds() - 20 * 3600);
        assert!(renewed(&["call:*"], long_ago, now.after(HOUR)).is_none());
    }

    fn clock() -> UnixTime {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        UnixTime::from_seconds(now.unwrap().as_secs())
    }
}
