//! Which root keys the mesh has and had, and whom it has excluded under each.

use crate::gate::GateError;
use crate::membership::{
    Issuer, Lineage, Member, Membership, MembershipError, MeshKey, Revocation, Revocations, Succession,
    UnixTime,
};
use karman_store::Store;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// The revocations of a mesh whose root key was never replaced.
const REVOCATIONS: &str = "revocations";
/// All of this, of one whose root key was.
const ROOTS: &str = "roots";
/// The records to forget with the mesh.
pub(super) const RECORDS: [&str; 2] = [REVOCATIONS, ROOTS];

#[derive(Clone)]
pub(super) struct Roots {
    pub(super) lineage: Lineage,
    pub(super) revoked: Revocations,
    /// What this node knew of revocations under keys that were replaced since.
    former: Vec<(MeshKey, Revocations)>,
}

#[derive(Deserialize, Serialize)]
struct Record {
    lineage: ByteBuf,
    revoked: ByteBuf,
    former: Vec<(MeshKey, ByteBuf)>,
}

/// A membership that holds.
pub(super) struct Judged {
    pub(super) member: Member,
    /// Where a key that was replaced has signed it: the last second that this key holds.
    pub(super) until: Option<UnixTime>,
}

impl Judged {
    /// Whether it is time to renew it.
    pub(super) const fn is_due(&self, now: UnixTime) -> bool {
        self.until.is_some() || self.member.is_past_half(now)
    }

    /// Whether a quarter of its life is left at most.
    pub(super) fn is_late(&self, now: UnixTime) -> bool {
        let end = self.member.not_after;
        let end = self.until.map_or(end, |until| until.min(end));
        end.seconds().saturating_sub(now.seconds()) <= self.member.life().as_secs() / 4
    }
}

impl Roots {
    pub(super) const fn new(mesh: MeshKey) -> Self {
        Self {
            lineage: Lineage::new(mesh),
            revoked: Revocations::new(mesh),
            former: Vec::new(),
        }
    }

    /// As the node remembers them, of the mesh that it remembers.
    pub(super) fn read(store: &Store, remembered: Option<MeshKey>) -> Result<Option<Self>, GateError> {
        if let Some(record) = store.mesh().get::<Record>(ROOTS)? {
            // What is in the store was verified before it came there.
            let lineage = Lineage::decode(&record.lineage)?;
            let former = record.former.into_iter();
            return Ok(Some(Self {
                revoked: Revocations::decode(lineage.mesh(), &record.revoked)?,
                former: former
                    .map(|(mesh, revoked)| Ok((mesh, Revocations::decode(mesh, &revoked)?)))
                    .collect::<Result<_, MembershipError>>()?,
                lineage,
            }));
        }
        let Some(mesh) = remembered else { return Ok(None) };
        let mut roots = Self::new(mesh);
        if let Some(revoked) = store.mesh().get::<ByteBuf>(REVOCATIONS)? {
            roots.revoked = Revocations::decode(mesh, &revoked)?;
        }
        Ok(Some(roots))
    }

    /// Remembers them, all at once or not at all.
    pub(super) fn keep(&self, store: &Store) -> Result<(), GateError> {
        let revoked = ByteBuf::from(self.revoked.encode());
        if self.lineage.links().is_empty() {
            return Ok(store.mesh().put(REVOCATIONS, &revoked)?);
        }
        let former = self.former.iter();
        let record = Record {
            lineage: ByteBuf::from(self.lineage.encode()),
            revoked,
            former: former
                .map(|(mesh, revoked)| (*mesh, ByteBuf::from(revoked.encode())))
                .collect(),
        };
        Ok(store.mesh().put(ROOTS, &record)?)
    }

    /// Excludes a node. Where that is not kept it does not count: who asks for it is told so, and nobody else.
    pub(super) fn exclude(
        &mut self,
        revocation: Revocation,
        keep: impl FnOnce(&Self) -> Result<(), GateError>,
    ) -> Result<(), GateError> {
        let before = self.revoked.clone();
        self.revoked.add(revocation).map_err(GateError::Issuer)?;
        keep(self).inspect_err(|_| self.revoked = before)
    }

    pub(super) fn mesh(&self) -> MeshKey {
        self.lineage.mesh()
    }

    /// What the node belongs to after this.
    pub(super) fn after(
        &self,
        succession: Succession,
        revoked: Revocations,
    ) -> Result<Self, MembershipError> {
        let mut next = self.clone();
        next.lineage.add(succession)?;
        next.replaced(revoked);
        Ok(next)
    }

    /// What it belongs to by what another node knows; nothing where that is nothing new.
    pub(super) fn following(&self, theirs: &Lineage) -> Result<Option<Self>, MembershipError> {
        let mut next = self.clone();
        if next.lineage.follow(theirs)? == 0 {
            return Ok(None);
        }
        let mesh = next.lineage.mesh();
        next.replaced(Revocations::new(mesh));
        Ok(Some(next))
    }

    fn replaced(&mut self, revoked: Revocations) {
        let before = std::mem::replace(&mut self.revoked, revoked);
        self.former.push((before.mesh(), before));
        let lineage = &self.lineage;
        self.former.retain(|(mesh, _)| lineage.contains(mesh));
    }

    /// Those who are revoked now, in the name of another root key; but for what issuers have said of `holders` of the root key, which would
    /// count in its name.
    pub(super) fn carried(
        &self,
        next: &Issuer,
        holders: &[[u8; 32]],
    ) -> Result<Revocations, MembershipError> {
        let mut carried = Revocations::new(next.mesh());
        carried.add_all(
            self.revoked
                .iter()
                .filter(|revocation| revocation.is_of_root() || !holders.contains(revocation.node()))
                .map(|revocation| next.revoke(revocation.node(), revocation.at()))
                .collect::<Result<Vec<_>, _>>()?,
        )?;
        Ok(carried)
    }

    /// Judges something by the root key that the mesh has, else by those that it had and that still hold; with the time until
    /// which that key does.
    pub(super) fn under<T>(
        &self,
        now: UnixTime,
        check: impl Fn(&MeshKey, &Revocations) -> Result<T, MembershipError>,
    ) -> Result<(T, Option<UnixTime>), MembershipError> {
        let mut why = match check(&self.mesh(), &self.revoked) {
            Ok(holds) => return Ok((holds, None)),
            Err(error) => error,
        };
        for link in self.lineage.links().iter().rev() {
            let known = self.former.iter().find(|(mesh, _)| *mesh == link.old);
            let unknown = Revocations::new(link.old);
            let revoked = known.map_or(&unknown, |(_, revoked)| revoked);
            match check(&link.old, revoked) {
                Ok(_) if now > link.until => {
                    return Err(MembershipError::Replaced {
                        mesh: self.mesh().short(),
                        until: link.until,
                    });
                }
                Ok(holds) => return Ok((holds, Some(link.until))),
                // Where its own key tells what is wrong with it, that is why.
                Err(error) if matches!(why, MembershipError::Foreign { .. }) => why = error,
                Err(_) => {}
            }
        }
        match why {
            MembershipError::Foreign { .. } => Err(MembershipError::Foreign {
                mesh: self.mesh().short(),
            }),
            why => Err(why),
        }
    }

    pub(super) fn judge(
        &self,
        membership: &Membership,
        key: &[u8; 32],
        now: UnixTime,
    ) -> Result<Judged, MembershipError> {
        let (member, until) = self.under(now, |mesh, revoked| membership.verify(mesh, key, now, revoked))?;
        self.check(&member)?;
        Ok(Judged { member, until })
    }

    /// Refuses one who is revoked by now, or whose issuer is, whichever root key has signed for them.
    pub(super) fn check(&self, member: &Member) -> Result<(), MembershipError> {
        self.revoked.check_member(member)?;
        member
            .issuer
            .iter()
            .try_for_each(|issuer| self.revoked.check(issuer))
    }

    /// Whether this is the root key, or one that was replaced and still holds.
    pub(super) fn counts(&self, mesh: &MeshKey, now: UnixTime) -> bool {
        self.mesh() == *mesh || self.lineage.former(now).any(|former| former == *mesh)
    }

    /// Whether this member is revoked, or who has let it in, under any key that still holds.
    pub(super) fn excludes_member(&self, member: &Member, now: UnixTime) -> bool {
        let is_by_one_out = |issuer: &[u8; 32]| self.excludes(issuer, now);
        member.issuer.as_ref().is_some_and(is_by_one_out)
            || self
                .in_force(now)
                .any(|revoked| revoked.check_member(member).is_err())
    }

    /// Whether the issuer with this key is revoked, under any key that still holds.
    pub(super) fn excludes(&self, key: &[u8; 32], now: UnixTime) -> bool {
        self.in_force(now).any(|revoked| revoked.contains(key))
    }

    /// The revocations under each key that still holds.
    fn in_force(&self, now: UnixTime) -> impl Iterator<Item = &Revocations> {
        let of = |mesh| self.former.iter().find(move |(known, _)| *known == mesh);
        let former = self.lineage.former(now).filter_map(of);
        std::iter::once(&self.revoked).chain(former.map(|(_, revoked)| revoked))
    }
}
