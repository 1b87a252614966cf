//! What nodes tell each other of root keys and revocations, and what follows from it.

use super::roots::Roots;
use super::{MESH, Standing};
use crate::gate::GateError;
use crate::membership::{
    Charter, Kind, Lineage, Member, Membership, MembershipError, MeshKey, Right, Signed, UnixTime,
};
use karman_types::NodeId;
use libp2p::PeerId;
use serde_bytes::ByteBuf;
use tokio::sync::watch;

impl Standing {
    /// The mesh, by the root key that it has now.
    pub fn mesh(&self) -> MeshKey {
        self.roots.read().mesh()
    }

    /// The mesh by every root key that holds, the present one first: what was sealed before the last one came names another.
    pub(crate) fn meshes(&self) -> Vec<MeshKey> {
        let roots = self.roots.read();
        let former = roots.lineage.former(self.now());
        std::iter::once(roots.mesh()).chain(former).collect()
    }

    /// Who holds this membership. One that was signed by a root key that was replaced ends with that key, if not sooner.
    pub(crate) fn verify(&self, membership: &Membership, key: &[u8; 32]) -> Result<Member, MembershipError> {
        let judged = self.roots.read().judge(membership, key, self.now());
        let judged = judged.map_err(|error| self.by_clock(error))?;
        let not_after = judged.member.not_after;
        Ok(Member {
            not_after: judged.until.map_or(not_after, |until| until.min(not_after)),
            ..judged.member
        })
    }

    /// Who holds this membership, in its encoded form, with this key; nobody where it is not of this mesh, or does not hold now.
    ///
    /// # Errors
    /// Those of [`Membership::decode`] and [`Membership::verify`].
    pub fn member_by(&self, membership: &[u8], key: &[u8; 32]) -> Result<Member, MembershipError> {
        self.verify(&Membership::decode(membership)?, key)
    }

    /// This node's own membership, encoded, for others to look at: it is no secret. Nothing before it has one.
    pub fn shown(&self) -> Option<Vec<u8>> {
        Some(self.membership()?.encode())
    }

    /// Who states something.
    pub(crate) fn judge(&self, kind: Kind, signed: &Signed) -> Result<Member, MembershipError> {
        let now = self.now();
        let roots = self.roots.read();
        let judged = roots.under(now, |mesh, revoked| signed.verify(kind, mesh, now, revoked));
        let (member, _) = judged.map_err(|error| self.by_clock(error))?;
        roots.check(&member)?;
        Ok(member)
    }

    /// Which nodes are the keepers, as another node says.
    ///
    /// # Errors
    /// Those of [`Charter::decode`]; `Revoked` where who has signed it is; `Malformed` for a number that is the present root key's.
    pub fn charter_of(&self, bytes: &[u8]) -> Result<Charter, MembershipError> {
        let (now, roots) = (self.now(), self.roots.read());
        let charter = charter_under(&roots, bytes, now)?;
        match charter.issuer() {
            Some(by) if roots.excludes(by, now) => Err(MembershipError::Revoked {
                node: NodeId::of_key(by),
            }),
            _ => Ok(charter),
        }
    }

    /// The same, of what this node has taken before, however long ago the root key that signed it was replaced.
    ///
    /// # Errors
    /// Those of [`Charter::decode`].
    pub fn known_charter(&self, bytes: &[u8]) -> Result<Charter, MembershipError> {
        charter_under(&self.roots.read(), bytes, UnixTime::default())
    }

    /// Says at the gate that this node knows the keepers by the charter with this number; by none: 0.
    pub fn knows_charter(&self, number: u64) {
        *self.charter.lock() = Some(number);
    }

    /// The number of the charter that a member knew when it last told; nothing where it does not say, or was not met.
    pub fn charter_known_by(&self, peer: &PeerId) -> Option<u64> {
        self.members.lock().get(peer)?.charter
    }

    /// Whether its own membership was signed by a key that was replaced, or is past half of its life.
    pub(crate) fn wants_renewal(&self) -> bool {
        let (Some(own), now) = (self.membership(), self.now()) else {
            return false;
        };
        let judged = self.roots.read().judge(&own, &self.key, now);
        judged.is_ok_and(|judged| judged.is_due(now))
    }

    /// Whether its own membership may be renewed by this member: where another node has signed it, by that one only.
    pub(crate) fn may_be_renewed_by(&self, member: &Member) -> bool {
        let is_its = |own: Member| own.issuer.is_none_or(|by| by == member.key);
        member.rights.allows(&Right::Issue) && self.own().is_none_or(is_its)
    }

    /// Changes whenever this node knows something that those it is connected with may not.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    pub(super) fn has_news(&self) {
        self.news.send_modify(|number| *number += 1);
    }

    pub(crate) fn revocations(&self) -> ByteBuf {
        ByteBuf::from(self.roots.read().revoked.encode())
    }

    pub(crate) fn revocations_digest(&self) -> [u8; 32] {
        *self.roots.read().revoked.digest().as_bytes()
    }

    /// How many revocations this node knows of.
    pub(crate) fn revocations_number(&self) -> usize {
        self.roots.read().revoked.number()
    }

    /// Takes in what another node knows of revocations, which knew `had` of them before; how many it knows of. Where the mesh has
    /// got another root key than `mesh` since they met, they are of no use, and the node is told again. What is new counts, and is passed
    /// on, though the disk may take it later.
    pub(crate) fn learn(&self, mesh: MeshKey, revocations: &[u8], had: usize) -> Result<usize, GateError> {
        let mut roots = self.roots.write();
        if roots.mesh() != mesh {
            return Ok(had);
        }
        let merged = roots.revoked.merge(revocations, had)?;
        if merged.new > 0 {
            self.keep_what_was_told(&roots);
            drop(roots);
            self.has_news();
        }
        Ok(merged.shown)
    }

    /// The root keys that the mesh had, for others; nothing where it has its first.
    pub(crate) fn lineage(&self) -> Option<ByteBuf> {
        let roots = self.roots.read();
        let replaced = !roots.lineage.links().is_empty();
        replaced.then(|| ByteBuf::from(roots.lineage.encode()))
    }

    /// Takes in which root keys another node knows of. What is new goes to the disk before it counts.
    ///
    /// # Errors
    /// `NotAMember` when it claims a root key that the one before has not signed.
    pub(crate) fn follow(&self, lineage: Option<&[u8]>) -> Result<(), GateError> {
        let Some(lineage) = lineage else { return Ok(()) };
        let theirs = Lineage::decode(lineage)?;
        let mut roots = self.roots.write();
        let Some(next) = roots.following(&theirs)? else {
            return Ok(());
        };
        self.replace(&mut roots, next)?;
        drop(roots);
        // A copy of the old root key admits nobody any more; nor does a node by what that key has signed, until it is renewed.
        *self.issuer.write() = None;
        tracing::warn!(mesh = %theirs.mesh().short(), "the mesh has another root key");
        self.has_news();
        Ok(())
    }

    pub(super) fn replace(&self, roots: &mut Roots, next: Roots) -> Result<(), GateError> {
        next.keep(&self.store)?;
        *roots = next;
        // It is in what was kept as well, and is written with the next start.
        if let Err(error) = self.store.mesh().put(MESH, &roots.mesh()) {
            tracing::warn!(%error, "the mesh's root key is not remembered by itself");
        }
        Ok(())
    }
}

/// A charter by the root key that the mesh has, or one that it had. By the latter it leaves the present one higher numbers.
fn charter_under(roots: &Roots, bytes: &[u8], now: UnixTime) -> Result<Charter, MembershipError> {
    let (charter, until) = roots.under(now, |mesh, _| Charter::decode(mesh, bytes))?;
    if until.is_some() {
        charter.check_number()?;
    }
    Ok(charter)
}
