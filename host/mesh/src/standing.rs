//! What this node is in its mesh, and whom it has let in. What changes is in the store before it counts.

mod issuing;

use crate::acquaintances::Acquaintances;
use crate::gate::{About, Credential, GateError};
use crate::membership::{
    Invitation, Issuer, Kind, Member, Membership, MembershipError, MeshKey, Revocations, Right, Rights,
    Signed, Terms, UnixTime,
};
use crate::refusals::Refusals;
use bytes::Bytes;
use karman_store::{Store, StoreError};
use karman_types::{TaskError, Tier};
use libp2p::PeerId;
use parking_lot::{Mutex, RwLock};
use serde_bytes::ByteBuf;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How far the newest time seen may lie behind before it is written down again: a write costs a page of flash.
const FLOOR_STEP: u64 = 600;
/// How long the node that holds the root key is a member before it renews itself.
const ROOT_LASTS: Duration = Duration::from_secs(365 * 86_400);

const MESH: &str = "mesh";
const MEMBERSHIP: &str = "membership";
const REVOCATIONS: &str = "revocations";
const ENTRANCES: &str = "entrances";

/// Membership, revocations and time of one node.
pub struct Standing {
    store: Store,
    mesh: MeshKey,
    key: [u8; 32],
    /// Held by the node with the root key: it admits others.
    issuer: Option<Issuer>,
    membership: RwLock<Option<Membership>>,
    invitation: RwLock<Option<Invitation>>,
    revoked: RwLock<Revocations>,
    members: Mutex<HashMap<PeerId, Admitted>>,
    acquaintances: Acquaintances,
    calls: OnceLock<u16>,
    floor: AtomicU64,
    /// Tells this run of the node from others.
    run: u64,
    refusals: Arc<Refusals>,
    refusal: Mutex<Option<String>>,
}

impl Standing {
    /// The standing of the node of this store: as it remembers it, as the invitation gives it, or as the root key that it
    /// holds gives it.
    ///
    /// # Errors
    /// `Stranger` without any of these; `NotAMember` when the invitation does not hold; else what the store refuses.
    pub fn open(
        store: Store,
        tier: Tier,
        invitation: Option<Invitation>,
        issuer: Option<Issuer>,
    ) -> Result<Self, GateError> {
        let remembered: Option<MeshKey> = store.mesh().get(MESH)?;
        let mesh = match (&issuer, &invitation, remembered) {
            (Some(issuer), _, _) => issuer.mesh(),
            (None, Some(invitation), _) => *invitation.mesh(),
            (None, None, Some(mesh)) => mesh,
            (None, None, None) => return Err(GateError::Stranger),
        };
        if remembered.is_some_and(|remembered| remembered != mesh) {
            // Nothing of another mesh holds in this one.
            store.mesh().remove(&[MEMBERSHIP, REVOCATIONS, ENTRANCES])?;
        }
        let membership: Option<ByteBuf> = store.mesh().get(MEMBERSHIP)?;
        let revoked: Option<ByteBuf> = store.mesh().get(REVOCATIONS)?;
        let revoked = match revoked {
            Some(bytes) => Revocations::decode(mesh, &bytes)?,
            None => Revocations::new(mesh),
        };
        let standing = Self {
            mesh,
            key: store.node_key().public(),
            issuer,
            membership: RwLock::new(membership.map(|bytes| Membership::decode(&bytes)).transpose()?),
            invitation: RwLock::new(invitation),
            revoked: RwLock::new(revoked),
            members: Mutex::default(),
            acquaintances: Acquaintances::new(store.clone()),
            calls: OnceLock::new(),
            floor: AtomicU64::new(store.mesh().time_floor(0)?),
            run: fastrand::u64(..),
            refusals: Arc::default(),
            refusal: Mutex::default(),
            store,
        };
        standing.begin(tier)?;
        Ok(standing)
    }

    /// Brings the node's own membership about, where that needs nobody else.
    fn begin(&self, tier: Tier) -> Result<(), GateError> {
        let now = self.now();
        self.store.mesh().put(MESH, &self.mesh)?;
        if let Some(issuer) = &self.issuer {
            let terms = Terms {
                tier,
                rights: everything(),
                not_after: now.after(ROOT_LASTS),
            };
            return self.keep(issuer.issue(&self.key, &terms, now)?);
        }
        let whole = match &*self.invitation.read() {
            Some(invitation) => invitation.accept(&self.key, now)?,
            None => None,
        };
        if let Some(membership) = whole {
            self.keep(membership)?;
        }
        if let Some(membership) = self.membership() {
            // A membership of its own that does not hold: the operator hears it now, not from a refusal elsewhere.
            match (
                self.verify(&membership, &self.key),
                self.invitation.read().is_some(),
            ) {
                (Err(_), true) => *self.membership.write() = None,
                (verified, _) => drop(verified?),
            }
        }
        Ok(())
    }

    /// The mesh.
    pub const fn mesh(&self) -> MeshKey {
        self.mesh
    }

    /// This node's public key.
    pub const fn public_key(&self) -> [u8; 32] {
        self.key
    }

    /// Forgets the mesh that the node of this store belongs to; which one that was.
    ///
    /// # Errors
    /// What the store refuses.
    pub fn forget(store: &Store) -> Result<Option<MeshKey>, GateError> {
        let remembered: Option<MeshKey> = store.mesh().get(MESH)?;
        if remembered.is_some() {
            Acquaintances::forget(store)?;
            store.mesh().remove(&[MESH, MEMBERSHIP, REVOCATIONS, ENTRANCES])?;
        }
        Ok(remembered)
    }

    /// The time by which memberships are judged: a clock that was reset does not bring expired ones back.
    pub fn now(&self) -> UnixTime {
        let clock = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let floor = self.floor.load(Ordering::Relaxed);
        if clock >= floor + FLOOR_STEP {
            self.floor.store(clock, Ordering::Relaxed);
            if let Err(error) = self.store.mesh().time_floor(clock) {
                tracing::warn!(%error, "the newest time seen is not remembered");
            }
        }
        UnixTime::from_seconds(clock.max(floor))
    }

    /// This node's own membership, once it has one.
    pub fn own(&self) -> Option<Member> {
        self.verify(&self.membership()?, &self.key).ok()
    }

    /// Where this node met others before it was last shut down.
    pub(crate) fn entrances(&self) -> Vec<String> {
        self.store
            .mesh()
            .get(ENTRANCES)
            .ok()
            .flatten()
            .unwrap_or_default()
    }

    /// Remembers where others are: after a restart there is no invitation to tell.
    pub(crate) fn remember_entrances(&self, addresses: &[String]) {
        if let Err(error) = self.store.mesh().put(ENTRANCES, &addresses) {
            tracing::warn!(%error, "the way into the mesh is not remembered");
        }
    }

    /// The member behind this key, if it was let in and its membership still holds.
    pub fn member(&self, peer: &PeerId) -> Option<Arc<Member>> {
        let member = self.members.lock().get(peer)?.member.clone();
        self.holds(&member).then_some(member)
    }

    /// Where the member takes calls directly, as it said at the gate.
    pub(crate) fn calls_at(&self, peer: &PeerId) -> Option<(String, u16)> {
        self.members.lock().get(peer)?.calls.clone()
    }

    /// Which run of the member is connected.
    pub(crate) fn run_of(&self, peer: &PeerId) -> Option<u64> {
        Some(self.members.lock().get(peer)?.run)
    }

    /// What this node tells of itself at the gate.
    pub(crate) fn about(&self) -> About {
        About {
            calls: self.calls.get().copied(),
            run: self.run,
        }
    }

    pub(crate) fn takes_calls_at(&self, port: u16) {
        let _ = self.calls.set(port);
    }

    fn holds(&self, member: &Member) -> bool {
        member.not_after >= self.now() && !self.revoked.read().contains(&member.key)
    }

    /// Connections that were not let in and calls that were not served: how many, by the reason.
    pub fn refusals(&self) -> Vec<(&'static str, u64)> {
        self.refusals.read()
    }

    pub(crate) fn counts(&self) -> Arc<Refusals> {
        self.refusals.clone()
    }

    pub(crate) fn membership(&self) -> Option<Membership> {
        self.membership.read().clone()
    }

    /// What this node shows at a gate.
    pub(crate) fn credential(&self) -> Option<Credential> {
        if let Some(membership) = self.membership() {
            return Some(Credential::Membership(ByteBuf::from(membership.encode())));
        }
        let invitation = self.invitation.read();
        Some(Credential::Invitation(invitation.as_ref()?.to_string()))
    }

    pub(crate) fn verify(&self, membership: &Membership, key: &[u8; 32]) -> Result<Member, MembershipError> {
        membership.verify(&self.mesh, key, self.now(), &self.revoked.read())
    }

    /// The members that this node has ever met.
    pub(crate) const fn acquaintances(&self) -> &Acquaintances {
        &self.acquaintances
    }

    pub(crate) fn seed(&self) -> &[u8; 32] {
        self.store.node_key().seed()
    }

    /// States something in this node's name.
    ///
    /// # Errors
    /// `unavailable` while it is no member.
    pub(crate) fn sign(&self, kind: Kind, says: Bytes) -> Result<Signed, TaskError> {
        let membership = self
            .membership()
            .ok_or_else(|| TaskError::unavailable("this node is no member of its mesh yet"))?;
        Ok(Signed::sign(kind, self.seed(), &membership, says))
    }

    /// Who states something.
    pub(crate) fn judge(&self, kind: Kind, signed: &Signed) -> Result<Member, MembershipError> {
        signed.verify(kind, &self.mesh, self.now(), &self.revoked.read())
    }

    /// Takes a membership that an issuer gave this node.
    pub(crate) fn granted(&self, membership: Membership) -> Result<(), GateError> {
        self.verify(&membership, &self.key)?;
        self.keep(membership)
    }

    fn keep(&self, membership: Membership) -> Result<(), GateError> {
        self.store
            .mesh()
            .put(MEMBERSHIP, &ByteBuf::from(membership.encode()))?;
        *self.membership.write() = Some(membership);
        if let Some(used) = self.invitation.write().take() {
            // The way back, should the node be restarted before it has met anyone else.
            self.remember_entrances(used.addresses());
        }
        Ok(())
    }

    pub(crate) fn revocations(&self) -> ByteBuf {
        ByteBuf::from(self.revoked.read().encode())
    }

    pub(crate) fn revocations_digest(&self) -> [u8; 32] {
        *self.revoked.read().digest().as_bytes()
    }

    /// Takes in what another node knows of revocations.
    pub(crate) fn learn(&self, revocations: &[u8]) -> Result<(), GateError> {
        let mut revoked = self.revoked.write();
        if revoked.merge(revocations)? > 0 {
            self.store
                .mesh()
                .put(REVOCATIONS, &ByteBuf::from(revoked.encode()))?;
        }
        Ok(())
    }

    /// Lets a member in; `host` is where it is, if UDP passes between the two.
    pub(crate) fn admitted(&self, peer: PeerId, member: Member, about: About, host: Option<String>) {
        self.acquaintances.met(&member);
        let mut members = self.members.lock();
        // Over a connection that does not tell, it is where it was, unless it was started again.
        let before = members.remove(&peer).filter(|before| before.run == about.run);
        let calls = host.zip(about.calls).or_else(|| before?.calls);
        let admitted = Admitted {
            member: Arc::new(member),
            calls,
            run: about.run,
        };
        members.insert(peer, admitted);
    }

    pub(crate) fn turned(&self, error: &GateError) {
        if let GateError::Refused(why) = error {
            *self.refusal.lock() = Some(why.clone());
        }
        if let Some(reason) = error.reason() {
            self.refusals.count(reason);
        }
    }

    /// Why this node was not let in when it last knocked.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.refusal.lock().clone()
    }

    /// Those whose membership ran out or was revoked since they were let in.
    pub(crate) fn no_longer_members(&self) -> Vec<PeerId> {
        let mut members = self.members.lock();
        let gone = members.extract_if(|_, admitted| !self.holds(&admitted.member));
        gone.map(|(peer, _)| peer).collect()
    }
}

/// One that was let in.
struct Admitted {
    member: Arc<Member>,
    /// Host and port where it takes calls directly.
    calls: Option<(String, u16)>,
    /// Which of its runs it is.
    run: u64,
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

impl From<StoreError> for GateError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}
