//! What this node is in its mesh, and whom it has let in. What changes is in the store before it counts.

mod issuing;
mod knowing;
mod leading;
mod own;
mod roots;
mod times;
mod unwritten;

pub use issuing::root_of;

use self::own::JudgedOwn;
use self::roots::{Judged, Roots};
use self::times::Times;
use self::unwritten::Unwritten;
use crate::acquaintances::Acquaintances;
use crate::gate::door::MOST_LED;
use crate::gate::{About, Credential, GateError, Knew, Shown};
use crate::invitations::Invitations;
use crate::membership::{Invitation, Issuer, Kind, Member, Membership, MeshKey, Signed, UnixTime};
use crate::refusals::Refusals;
use crate::wall_clock;
use bytes::Bytes;
use karman_store::{Store, StoreError};
use karman_types::{TaskError, Tier};
use libp2p::PeerId;
use libp2p_stream::Control;
use parking_lot::{Mutex, RwLock};
use serde_bytes::ByteBuf;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

const MESH: &str = "mesh";
const MEMBERSHIP: &str = "membership";
const ENTRANCES: &str = "entrances";

/// Membership, revocations and time of one node.
pub struct Standing {
    store: Store,
    roots: RwLock<Roots>,
    key: [u8; 32],
    /// Where the node stands that holds the root key, if that was said.
    tier: Option<Tier>,
    /// Who admits others or puts them out here: the root key, else the node itself, where its membership gives it the right.
    issuer: RwLock<Option<Arc<Issuer>>>,
    membership: RwLock<Option<Membership>>,
    judged: Mutex<Option<JudgedOwn>>,
    invitation: RwLock<Option<Invitation>>,
    /// Counts what those that this node is connected with have to be told.
    news: watch::Sender<u64>,
    members: Mutex<HashMap<PeerId, Admitted>>,
    acquaintances: Acquaintances,
    calls: OnceLock<u16>,
    charter: Mutex<Option<u64>>,
    /// Opens streams to members, for strangers that are led to an issuer; a few at once.
    ways: OnceLock<Control>,
    doors: Semaphore,
    times: Times,
    unwritten: Unwritten,
    /// Tells this run of the node from others.
    run: u64,
    refusals: Arc<Refusals>,
    refusal: Mutex<Option<String>>,
}

impl Standing {
    /// The standing of the node of this store: as it remembers it, as the invitation gives it, or as the root key that it
    /// holds gives it. With the root key it is of this tier; where none is said, of that which it was of.
    ///
    /// # Errors
    /// `Stranger` without any of these; `Invitation` when that does not hold; else what the store refuses.
    pub fn open(
        store: Store,
        tier: impl Into<Option<Tier>>,
        invitation: Option<Invitation>,
        issuer: Option<Issuer>,
    ) -> Result<Self, GateError> {
        let remembered = Roots::read(&store, store.mesh().get(MESH)?)?;
        let named = issuer.as_ref().map(Issuer::mesh);
        let named = named.or_else(|| invitation.as_ref().map(|invitation| *invitation.mesh()));
        let roots = match (remembered, named) {
            // By a key that the mesh had before it is the same mesh.
            (Some(roots), named) if named.is_none_or(|named| roots.lineage.contains(&named)) => roots,
            (Some(_), Some(mesh)) => {
                // Nothing of another mesh holds in this one.
                Invitations::of(&store).forget()?;
                store
                    .mesh()
                    .remove(&[&[MEMBERSHIP, ENTRANCES], &roots::RECORDS[..]].concat())?;
                Roots::new(mesh)
            }
            (None, Some(mesh)) => Roots::new(mesh),
            (_, None) => return Err(GateError::Stranger),
        };
        let (times, clock) = (Times::new(store.mesh().time_floor(0)?), clock());
        if times.read(clock).1 {
            remember_time(&store, clock);
        }
        let membership: Option<ByteBuf> = store.mesh().get(MEMBERSHIP)?;
        // A copy of a root key that was replaced admits nobody.
        let issuer = issuer.filter(|issuer| issuer.mesh() == roots.mesh());
        let standing = Self {
            roots: RwLock::new(roots),
            key: store.node_key().public(),
            tier: tier.into(),
            issuer: RwLock::new(issuer.map(Arc::new)),
            membership: RwLock::new(
                membership
                    .map(|bytes| Membership::decode(&bytes))
                    .transpose()
                    .map_err(GateError::Own)?,
            ),
            judged: Mutex::default(),
            invitation: RwLock::new(invitation),
            news: watch::Sender::new(0),
            members: Mutex::default(),
            acquaintances: Acquaintances::new(store.clone()),
            calls: OnceLock::new(),
            charter: Mutex::default(),
            ways: OnceLock::new(),
            doors: Semaphore::new(MOST_LED),
            times,
            unwritten: Unwritten::default(),
            run: fastrand::u64(..),
            refusals: Arc::default(),
            refusal: Mutex::default(),
            store,
        };
        standing.begin()?;
        Ok(standing)
    }

    /// The invitations that this node remembers. They are on its disk.
    pub fn invitations(&self) -> Invitations<'_> {
        Invitations::of(&self.store)
    }

    fn issuer(&self) -> Option<Arc<Issuer>> {
        self.issuer.read().clone()
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
            Invitations::of(store).forget()?;
            let records = [&[MESH, MEMBERSHIP, ENTRANCES], &roots::RECORDS[..]];
            store.mesh().remove(&records.concat())?;
        }
        Ok(remembered)
    }

    /// The time by which memberships are judged: a clock that was reset does not bring expired ones back, and what one showed that was
    /// [far ahead](karman_store::MOST_AHEAD) counts no longer than it shows it.
    pub fn now(&self) -> UnixTime {
        let clock = clock();
        let (now, newer) = self.times.read(clock);
        if newer {
            let store = self.store.clone();
            // The loop of the swarm asks, and calls that come in: they do not wait for the disk.
            match Handle::try_current() {
                Ok(threads) => drop(threads.spawn_blocking(move || remember_time(&store, clock))),
                Err(_) => remember_time(&store, clock),
            }
        }
        now
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
        let (member, mesh) = {
            let members = self.members.lock();
            let admitted = members.get(peer)?;
            (admitted.member.clone(), admitted.knew.mesh)
        };
        let now = self.now();
        holds(&self.roots.read(), &member, &mesh, now).then_some(member)
    }

    /// Where the member takes calls directly, as it said at the gate.
    pub(crate) fn calls_at(&self, peer: &PeerId) -> Option<(String, u16)> {
        self.members.lock().get(peer)?.calls.clone()
    }

    /// What the member knew when it last told.
    pub(crate) fn knew(&self, peer: &PeerId) -> Option<Knew> {
        Some(self.members.lock().get(peer)?.knew)
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
            charter: *self.charter.lock(),
        }
    }

    pub(crate) fn takes_calls_at(&self, port: u16) {
        let _ = self.calls.set(port);
    }

    /// Whether a member was revoked since, or who has let it in.
    pub fn is_revoked(&self, member: &Member) -> bool {
        let now = self.now();
        self.roots.read().excludes_member(member, now)
    }

    /// Connections that were not let in, calls that were not served and what was not taken: how many, by the reason.
    pub fn refusals(&self) -> Vec<(&'static str, u64)> {
        self.refusals.read()
    }

    /// Counts something that was refused behind the gate.
    pub fn refused(&self, reason: &'static str) {
        self.refusals.count(reason);
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

    /// Takes a membership that an issuer gave this node. One from before its own, which any member may have kept, is not taken; nor is it
    /// an error: two issuers may renew it at the same time.
    pub(crate) fn granted(&self, membership: Membership) -> Result<(), GateError> {
        let (own, now) = (self.membership(), self.now());
        let judge = |membership: &Membership| self.roots.read().judge(membership, &self.key, now);
        // What a key has signed that was replaced since is older than all that the present one has, whatever clocks showed.
        let age = |judged: &Judged| (judged.until.is_none(), judged.member.issued);
        let given = judge(&membership)?;
        self.times.signed(given.member.issued);
        let own = own.and_then(|own| judge(&own).ok());
        if own.as_ref().is_some_and(|own| age(&given) < age(own)) {
            self.refused("old-membership");
            return Ok(());
        }
        // By the word of a node it would go with that one, should it be revoked.
        let is_of_root = |judged: &Judged| judged.member.issuer.is_none();
        if own.is_some_and(|own| is_of_root(&own) && !own.is_late(now)) && !is_of_root(&given) {
            return Ok(());
        }
        self.keep(membership)
    }

    pub(crate) fn keep(&self, membership: Membership) -> Result<(), GateError> {
        self.keep_own(&membership)?;
        self.serve_by(&membership);
        *self.membership.write() = Some(membership);
        if let Some(used) = self.invitation.write().take() {
            // The way back, should the node be restarted before it has met anyone else.
            self.remember_entrances(used.addresses());
        }
        Ok(())
    }

    /// Lets a member in; `host` is where it is, if UDP passes between the two.
    pub(crate) fn admitted(&self, peer: PeerId, shown: Shown, host: Option<String>) {
        let Shown { member, about, knew } = shown;
        self.times.signed(member.issued);
        self.acquaintances.met(&member, self.now());
        *self.refusal.lock() = None;
        let mut members = self.members.lock();
        // Over a connection that does not tell, it is where it was, unless it was started again.
        let before = members.remove(&peer).filter(|before| before.run == about.run);
        let calls = host.zip(about.calls).or_else(|| before?.calls);
        let admitted = Admitted {
            member: Arc::new(member),
            calls,
            run: about.run,
            charter: about.charter,
            knew,
        };
        members.insert(peer, admitted);
    }

    /// A connection was not let in, by this side or the other.
    pub(crate) fn turned(&self, error: &GateError) {
        if let Some(reason) = error.reason() {
            self.refusals.count(reason);
        }
    }

    /// Those whose membership ran out or was revoked since they were let in. Each call that comes in waits for the members meanwhile.
    pub(crate) fn no_longer_members(&self) -> Vec<PeerId> {
        let now = self.now();
        let roots = self.roots.read();
        let mut members = self.members.lock();
        let gone =
            members.extract_if(|_, Admitted { member, knew, .. }| !holds(&roots, member, &knew.mesh, now));
        gone.map(|(peer, _)| peer).collect()
    }
}

/// Whether one still is a member that was let in when the mesh had this root key: its end was settled then, and comes sooner where that
/// key was replaced since.
fn holds(roots: &Roots, member: &Member, under: &MeshKey, now: UnixTime) -> bool {
    member.not_after >= now && roots.counts(under, now) && !roots.excludes_member(member, now)
}

/// One that was let in.
struct Admitted {
    member: Arc<Member>,
    /// Host and port where it takes calls directly.
    calls: Option<(String, u16)>,
    /// Which of its runs it is.
    run: u64,
    /// The number of the charter that it knew when it last told.
    charter: Option<u64>,
    knew: Knew,
}

fn remember_time(store: &Store, seen: u64) {
    if let Err(error) = store.mesh().time_floor(seen) {
        tracing::warn!(%error, "the newest time seen is not remembered");
    }
}

fn clock() -> u64 {
    wall_clock().as_secs()
}

impl From<StoreError> for GateError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}
