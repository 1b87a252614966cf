//! What this node is by its own membership, and why it is not.

use super::{MESH, Standing, clock};
use crate::gate::GateError;
use crate::membership::{Member, Membership, MembershipError, UnixTime};
use karman_types::NodeId;
use libp2p::PeerId;

/// What this node is, by which membership, after which news and in which minute.
pub(super) type JudgedOwn = ((Membership, u64, u64), Member);

impl Standing {
    /// Brings the node's own membership about, where that needs nobody else.
    pub(super) fn begin(&self) -> Result<(), GateError> {
        let now = self.now();
        self.store.mesh().put(MESH, &self.mesh())?;
        if let Some(issuer) = self.issuer() {
            return self.admit_itself(&issuer);
        }
        let whole = match &*self.invitation.read() {
            Some(invitation) => invitation
                .accept(&self.key, now)
                .map_err(|error| GateError::Invitation(self.by_clock(error)))?,
            None => None,
        };
        if let Some(membership) = whole {
            self.verify(&membership, &self.key)
                .map_err(GateError::Invitation)?;
            self.keep(membership)?;
        }
        let Some(membership) = self.membership() else {
            return Ok(());
        };
        match self.verify(&membership, &self.key) {
            Ok(own) => {
                self.times.signed(own.issued);
                self.serve_by(&membership);
            }
            // It is let in as a newcomer.
            Err(_) if self.invitation.read().is_some() => *self.membership.write() = None,
            // What it does by itself needs no mesh. It shows what it has, as one whose time runs out later: set right, a clock may tell
            // that it holds.
            Err(error) => {
                tracing::warn!(%error, "this node's own membership does not hold: it is outside the mesh");
                *self.refusal.lock() = Some(error.to_string());
            }
        }
        Ok(())
    }

    /// Of what is over by a time that this node has seen, and not by its clock, both are told.
    pub(super) fn by_clock(&self, error: MembershipError) -> MembershipError {
        let clock = UnixTime::from_seconds(clock());
        match error {
            MembershipError::Expired { not_after, now: seen } if clock <= not_after => {
                MembershipError::ClockBehind {
                    not_after,
                    seen,
                    clock,
                }
            }
            error => error,
        }
    }

    /// This node's own membership, once it has one that holds.
    pub fn own(&self) -> Option<Member> {
        self.own_or_why()?.ok()
    }

    /// The same, or why it does not hold now; nothing before it has one. Every offer asks: what holds is judged anew once a minute, and when
    /// there is news.
    pub fn own_or_why(&self) -> Option<Result<Member, MembershipError>> {
        let (news, now) = (*self.news.borrow(), self.now());
        let by = (self.membership()?, news, now.seconds() / 60);
        let mut judged = self.judged.lock();
        if let Some((before, own)) = &*judged
            && *before == by
            && own.not_after >= now
        {
            return Some(Ok(own.clone()));
        }
        let own = self.verify(&by.0, &self.key);
        *judged = own.as_ref().ok().map(|own| (by, own.clone()));
        Some(own)
    }

    /// Whether this node was let in once, for however long that holds.
    pub fn was_let_in(&self) -> bool {
        self.membership.read().is_some()
    }

    /// This node knocked at another, and was not let in.
    pub(crate) fn knocked_in_vain(&self, at: &PeerId, error: &GateError) {
        let why = match error {
            GateError::Refused(why) => why.clone(),
            // Who was invited judges first whom it shows its word.
            GateError::NotAMember(why) if self.membership.read().is_none() => {
                format!("where the invitation leads: {why}")
            }
            _ => return,
        };
        if self.is_asked_at(at) {
            *self.refusal.lock() = Some(why);
        }
    }

    /// Why this node was not let in when it last knocked; nothing once it was.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.refusal.lock().clone()
    }

    /// The same, where that was because it was revoked, or who has let it in: others know, and do not tell it otherwise.
    pub fn put_out(&self) -> Option<String> {
        let (own, why) = (self.own()?, self.refusal()?);
        let is_said_of = |key: &[u8; 32]| {
            let node = NodeId::of_key(key);
            why.contains(&MembershipError::Revoked { node }.to_string())
        };
        (is_said_of(&own.key) || own.issuer.as_ref().is_some_and(is_said_of)).then_some(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Issuer, Revocations, RootKey, Terms};
    use karman_store::Store;
    use karman_types::Tier;
    use std::time::Duration;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn a_member_that_has_seen_a_time_after_its_end_is_outside_until_that_is_set_back() {
        let (root, folder) = (RootKey::generate().unwrap(), tempfile::tempdir().unwrap());
        let opened = |word| Standing::open(Store::open(folder.path()).unwrap(), None::<Tier>, word, None);
        let store = Store::open(folder.path()).unwrap();
        let (key, now) = (store.node_key().public(), UnixTime::from_seconds(clock()));
        let terms = Terms::usual(Tier::Space, now.after(30 * DAY));
        let word = Issuer::root(&root).invite(&terms, now.after(DAY), Some(&key), Vec::new(), now);
        drop(store);
        let word = word.unwrap();
        assert_eq!(
            opened(Some(word.clone())).unwrap().own().unwrap().tier,
            Tier::Space
        );

        let ahead = now.after(40 * DAY).seconds();
        let store = Store::open(folder.path()).unwrap();
        store.mesh().time_floor(ahead).unwrap();
        drop(store);
        let standing = opened(None).unwrap();
        let why = standing.own_or_why().unwrap().unwrap_err();
        assert!(
            matches!(why, MembershipError::ClockBehind { seen, clock, .. } if seen.seconds() == ahead && clock >= now),
            "{why}"
        );
        assert!(standing.was_let_in() && standing.refusal().unwrap().contains("reset-clock"));
        drop(standing);
        let refused = opened(Some(word)).err().unwrap();
        let is_behind = matches!(
            refused,
            GateError::Invitation(MembershipError::ClockBehind { .. })
        );
        assert!(is_behind, "{refused}");

        let store = Store::open(folder.path()).unwrap();
        store.mesh().set_back(clock()).unwrap();
        drop(store);
        assert!(opened(None).unwrap().own().is_some());
    }

    #[test]
    fn what_a_node_is_changes_with_its_membership_and_with_news() {
        let (root, folder) = (RootKey::generate().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::open(folder.path()).unwrap();
        let (signer, key) = (Issuer::root(&root), store.node_key().public());
        let now = UnixTime::from_seconds(clock());
        let terms = |tier| Terms::usual(tier, now.after(30 * DAY));
        let word = signer.invite(&terms(Tier::Edge), now.after(DAY), Some(&key), Vec::new(), now);
        let standing = Standing::open(store, None::<Tier>, Some(word.unwrap()), None).unwrap();
        let tier = || standing.own().map(|own| own.tier);
        assert_eq!([tier(), tier()], [Some(Tier::Edge); 2]);
        let next = signer.issue(&key, &terms(Tier::Fog), now.after(DAY)).unwrap();
        standing.granted(next).unwrap();
        assert_eq!([tier(), tier()], [Some(Tier::Fog); 2]);
        let mut revoked = Revocations::new(standing.mesh());
        revoked.add(signer.revoke(&key, now).unwrap()).unwrap();
        standing.learn(standing.mesh(), &revoked.encode(), 0).unwrap();
        assert_eq!([tier(), tier()], [None; 2]);
    }

    #[test]
    fn who_is_revoked_hears_so_from_others_until_one_lets_it_in() {
        let (root, folder) = (RootKey::generate().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::open(folder.path()).unwrap();
        let (signer, now) = (Issuer::root(&root), UnixTime::from_seconds(clock()));
        let standing = Standing::open(store, Tier::Edge, None, Some(signer)).unwrap();
        let other = PeerId::random();
        let refused = |node| GateError::Refused(MembershipError::Revoked { node }.to_string());
        standing.knocked_in_vain(&other, &refused(NodeId::of_key(&[7; 32])));
        assert_eq!(standing.put_out(), None, "another node is");
        standing.knocked_in_vain(&other, &refused(NodeId::of_key(&standing.public_key())));
        assert!(standing.put_out().unwrap().contains("is revoked"));
        assert!(standing.own().unwrap().not_after > now);
    }

    #[test]
    fn the_node_with_the_root_key_keeps_the_tier_that_it_had() {
        let (root, folder) = (RootKey::generate().unwrap(), tempfile::tempdir().unwrap());
        let tier = |said: Option<Tier>| {
            let store = Store::open(folder.path()).unwrap();
            let standing = Standing::open(store, said, None, Some(Issuer::root(&root)));
            standing.unwrap().own().unwrap().tier
        };
        assert_eq!(tier(None), Tier::default());
        assert_eq!(tier(Some(Tier::Fog)), Tier::Fog);
        assert_eq!(tier(None), Tier::Fog);
    }
}
