//! Bundles: what waits here for a contact leaves when it comes, and what comes for this node is opened.
//!
//! The decisions are `karman-space`'s ([`agenda`]); here are the clock, the disk and the links. A node hands a bundle on by
//! telling the next one of it, which then fetches it like any blob: what a contact cuts goes on in the next one. It keeps
//! its own copy until the next node has it on its disk.

mod meet;
mod next;
mod not_now;
mod under_way;

pub(super) use next::priority;
pub(super) use under_way::Opening;

use self::meet::{keep_to, meet};
use self::next::{Going, open_all, waiting};
use self::not_now::NotNow;
use self::under_way::{Busy, Coming};
use super::away::listen;
use super::chances::with_chances;
use super::mesh_of;
use super::parcels::wants_room;
use crate::ahead::{ContactsAhead, LastSeen};
use crate::contacts::{self, Contacts};
use crate::node::{Inner, Node};
use crate::services::{blocking, is_of_disk};
use bytes::Bytes;
use karman_mesh::{Ask, CallHead, Mesh, PeerId};
use karman_space::{Contact, ContactPlan, Priority, Time, Waiting, agenda};
use karman_store::{Bundle, BundleState, Store};
use karman_types::{Digest, ErrorKind, NodeId, TaskError};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The longest bundle: the longest component with what goes around it.
pub(super) const MOST_BUNDLE: u64 = (64 << 20) + (256 << 10);
/// How long to wait before a node that does not answer is tried again while its contact lasts.
const AGAIN: Duration = Duration::from_millis(250);
/// Attempts that came by bundle and run at once; the next ones wait in their bundles.
const MOST_AT_ONCE: usize = 8;
/// Looking costs what waits. Where much comes and leaves, that takes a fifth of the time at most; but what begins is noticed by then.
const RESTS: u32 = 4;
const LONGEST_REST: Duration = Duration::from_millis(500);
/// The longest time until the plan is looked at again, and where it stands in a file, which may change.
const LOOK: Duration = Duration::from_secs(30);
const LOOK_AT_FILE: Duration = Duration::from_secs(2);

/// How long a bundle may wait, and what it goes before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) lifetime: Duration,
    pub(super) priority: Priority,
}

/// What a node knows of its bundles besides what is on the disk.
pub(crate) struct Bundles {
    contacts: Mutex<Contacts>,
    last_seen: LastSeen,
    /// Which bundle is offered to which node: nobody else may read it. Whether it was asked for.
    offered: Mutex<HashMap<(Digest, NodeId), bool>>,
    /// Nodes that something is being sent to, this one where something is being opened.
    busy: Mutex<HashSet<NodeId>>,
    not_now: NotNow,
    /// Bundles for this node that are being opened, or whose attempts run.
    running: Mutex<HashSet<Digest>>,
    /// The orders in them that are being done, and of each the bundles that bring it once more.
    orders: Mutex<HashMap<Digest, Vec<Opening>>>,
    /// Those with attempts that found no place to run.
    put_off: Mutex<HashSet<Digest>>,
    places: Arc<Semaphore>,
    /// Bytes of the bundles that each member brings and that are being fetched.
    coming: Mutex<HashMap<NodeId, u64>>,
    looked: Mutex<Time>,
    changed: Notify,
    /// The same, for who waits for a place meanwhile.
    came: Notify,
}

impl Bundles {
    pub(crate) fn new(contacts: Contacts) -> Self {
        Self {
            contacts: Mutex::new(contacts),
            last_seen: LastSeen::default(),
            offered: Mutex::default(),
            busy: Mutex::default(),
            not_now: NotNow::default(),
            running: Mutex::default(),
            orders: Mutex::default(),
            put_off: Mutex::default(),
            places: Arc::new(Semaphore::new(MOST_AT_ONCE)),
            coming: Mutex::default(),
            looked: Mutex::new(contacts::now()),
            changed: Notify::new(),
            came: Notify::new(),
        }
    }

    /// The contact plan from now on.
    pub(crate) fn plan(&self, now: Time) -> Arc<ContactPlan> {
        self.contacts.lock().plan(now).clone()
    }

    /// How many contacts are ahead.
    ///
    /// # Errors
    /// What is wrong with the files that tell; the plan from before goes on then.
    pub(super) fn planned(&self, now: Time) -> Result<usize, TaskError> {
        let mut contacts = self.contacts.lock();
        let number = contacts.plan(now).contacts().len();
        contacts.trouble().map_or(Ok(number), Err)
    }

    /// What an operator sees of it. The plan is not locked meanwhile.
    pub(crate) fn contacts_ahead(&self, now: Time, ahead: Duration, most: usize) -> Arc<ContactsAhead> {
        let outlook = self.contacts.lock().outlook(now);
        self.last_seen.look(&outlook, ahead, most)
    }

    /// Something waits that did not.
    pub(super) fn changed(&self) {
        self.changed.notify_one();
        self.came.notify_waiters();
    }

    /// The next one that is here for this node. Attempts wait for a place, and all others do not wait for them.
    fn next(&self, here: NodeId, waiting: &[Waiting<Digest>]) -> Option<Digest> {
        let (running, put_off) = (self.running.lock(), self.put_off.lock());
        let free = self.places.available_permits() > 0;
        let ours = waiting.iter().filter(|bundle| bundle.destination == here);
        ours.map(|bundle| bundle.key)
            .find(|key| !running.contains(key) && (free || !put_off.contains(key)))
    }

    /// The same, to be opened now.
    fn open_next(self: &Arc<Self>, here: NodeId, waiting: &[Waiting<Digest>]) -> Option<Opening> {
        let Some(bundle) = self.next(here, waiting) else {
            let there: HashSet<Digest> = waiting.iter().map(|bundle| bundle.key).collect();
            self.put_off.lock().retain(|bundle| there.contains(bundle));
            return None;
        };
        self.put_off.lock().remove(&bundle);
        self.running.lock().insert(bundle);
        let bundles = self.clone();
        Some(Opening::new(bundles, bundle))
    }

    /// The same. Where all that is left are attempts for which there is no place it waits for one, for so long at most, and no longer
    /// than until something else may have come.
    async fn open_next_within(
        self: &Arc<Self>,
        here: NodeId,
        waiting: &[Waiting<Digest>],
        most: Duration,
    ) -> Option<Opening> {
        let came = self.came.notified();
        if let Some(opening) = self.open_next(here, waiting) {
            return Some(opening);
        }
        if self.put_off.lock().is_empty() {
            return None;
        }
        tokio::select! {
            biased;
            // Given back at once: whose place it is shows when its bundle is open.
            _ = self.places.acquire() => {}
            () = came => {}
            () = tokio::time::sleep(most) => {}
        }
        self.open_next(here, waiting)
    }

    /// Begins to send to a node, or to open what is here for this one; nothing where that goes on already.
    fn begin(self: &Arc<Self>, node: NodeId) -> Option<Busy> {
        let begins = self.busy.lock().insert(node);
        begins.then(|| Busy {
            bundles: self.clone(),
            node,
        })
    }

    /// A member brings a bundle of this length.
    pub(super) fn comes(self: &Arc<Self>, by: NodeId, bytes: u64) -> Coming {
        Coming::new(self.clone(), by, bytes)
    }

    /// A place for an attempt, if one is free.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// The attempt in this bundle waits for a place.
    pub(super) fn put_off(&self, bundle: Digest) {
        self.put_off.lock().insert(bundle);
    }

    /// Whether it waits for a place, or did when one was looked for last.
    fn is_put_off(&self, bundle: &Digest) -> bool {
        self.put_off.lock().contains(bundle)
    }

    /// Whether the bundle may be read by this node now, and whether that is news.
    pub(super) fn is_offered(&self, digest: Digest, to: NodeId) -> Option<bool> {
        let mut offered = self.offered.lock();
        let asked = offered.get_mut(&(digest, to))?;
        Some(!std::mem::replace(asked, true))
    }
}

/// Hands bundles on for as long as the node is there.
pub(crate) async fn run(node: Weak<Inner>) {
    let arrivals = Node::upgrade(&node).and_then(|node| Some(node.mesh()?.arrivals()));
    let Some(mut arrivals) = arrivals else { return };
    loop {
        let Some(here) = Node::upgrade(&node) else { return };
        let bundles = here.bundles().clone();
        let begun = Instant::now();
        let wait = look(&here)
            .await
            .inspect_err(|error| tracing::error!(%error, "bundles are not handed on"))
            .unwrap_or(LOOK);
        // A node that is asleep here can be shut down.
        drop(here);
        let rest = LONGEST_REST.min(RESTS * begun.elapsed());
        tokio::time::sleep(rest.min(wait)).await;
        tokio::select! {
            () = tokio::time::sleep(wait.saturating_sub(rest)) => {}
            () = bundles.changed.notified() => {}
            arrived = arrivals.changed() => if arrived.is_err() { return },
        }
    }
}

/// Does what is to be done now; how long until there is more.
async fn look(node: &Node) -> Result<Duration, TaskError> {
    let now = contacts::now();
    let here = node.runtime().id();
    let mesh = mesh_of(node)?;
    let plan = node.bundles().plan(now);
    let begun = keep_to(node, mesh, &plan, now).await;
    if node.runtime().config().mesh.plans_contacts() {
        listen(node, mesh, &plan).await;
    }
    let waiting = waiting(node, now).await?;
    if node.bundles().next(here, &waiting).is_some()
        && let Some(busy) = node.bundles().begin(here)
    {
        tokio::spawn(open_all(node.clone(), busy));
    }
    let chances = with_chances(mesh, &plan, here, now);
    let todo = agenda(&chances, here, now, &waiting);
    for (_, none) in &todo.stranded {
        tracing::debug!(%none, "a bundle waits for better contacts");
    }
    for (_, contact) in &todo.now {
        if let Some(busy) = node.bundles().begin(contact.to) {
            let planned = plan.open(here, contact.to, now).is_some();
            tokio::spawn(send_all(node.clone(), *contact, planned, busy));
        }
    }
    for (other, end) in begun {
        // Who has something to send dials, too.
        if let Some(busy) = node.bundles().begin(other) {
            tokio::spawn(meet(node.downgrade(), end, busy));
        }
    }
    let edges = plan
        .contacts_of(here)
        .flat_map(|contact| [contact.start, contact.end]);
    let next = edges.filter(|edge| *edge > now).chain(todo.next).min();
    let wait = next.map_or(LOOK, |next| next.since(contacts::now()));
    let is_file = node.runtime().config().mesh.contacts.is_some();
    Ok(wait.min(if is_file { LOOK_AT_FILE } else { LOOK }))
}

/// Sends a node all that goes its way while the contact lasts.
async fn send_all(node: Node, contact: Contact, planned: bool, _busy: Busy) {
    let left = contact.end.since(contacts::now());
    let sending = async {
        let mesh = mesh_of(&node)?;
        let unknown = || TaskError::unavailable("its key is not known: the two have never met");
        let id = mesh.key_of(contact.to).and_then(|key| karman_mesh::peer_of(&key));
        let id = id.ok_or_else(unknown)?;
        let mut going = Going::default();
        while reach(mesh, id, planned).await {
            let Some(bundle) = going.next(&node, &contact).await? else {
                break;
            };
            if !send(&node, mesh, (id, contact.to), &bundle).await? {
                going.again();
            }
        }
        Ok::<(), TaskError>(())
    };
    if let Ok(Err(error)) = tokio::time::timeout(left, sending).await {
        tracing::warn!(to = %contact.to, %error, "nothing can be sent");
        tokio::time::sleep(AGAIN).await;
    }
}

/// Waits until the node is in reach; false where there is no reason to wait.
async fn reach(mesh: &Mesh, id: PeerId, planned: bool) -> bool {
    let mut arrivals = mesh.arrivals();
    while !mesh.is_connected(&id) {
        if !planned {
            return false;
        }
        mesh.connect(id).await;
        let _ = tokio::time::timeout(AGAIN, arrivals.changed()).await;
    }
    true
}

/// Tells a node of a bundle, and lets it fetch it; false where it did not get through and is to be tried again.
async fn send(
    node: &Node,
    mesh: &Mesh,
    (id, to): (PeerId, NodeId),
    digest: &Digest,
) -> Result<bool, TaskError> {
    let store = node.runtime().home().store()?;
    let digest = *digest;
    // It may have been called back a moment ago.
    let goes = |bundle: &Bundle| bundle.state == BundleState::Waiting && !bundle.refused_by.contains(&to);
    let Some(bundle) = known(&store, digest).await?.filter(goes) else {
        return Ok(true);
    };
    let head = CallHead::new(
        Ask::TakeBundle {
            digest,
            size: bundle.size,
        },
        "bundle",
        node.runtime().context(None).task,
    );
    node.bundles().offered.lock().insert((digest, to), false);
    let taken = mesh.call(id, head, Bytes::new()).await;
    node.bundles().offered.lock().remove(&(digest, to));
    match taken {
        Ok(_) => {
            tracing::info!(bundle = %digest.short(), %to, bytes = bundle.size, "a bundle has left");
            let at_ms = contacts::now().unix_ms();
            let passed = BundleState::Passed { to, at_ms };
            // One that was called back or answered meanwhile stays so.
            let left = blocking(move || store.bundles().leave(&digest, passed).map_err(TaskError::from));
            if let Err(error) = left.await {
                // It goes once more, but not before the others.
                tracing::warn!(bundle = %digest.short(), %error, "a bundle that has left is not written down as such");
                node.bundles().not_now.note(digest, to, Instant::now());
            }
            Ok(true)
        }
        // That passes: for good it would be lost where there is no other way.
        Err(error) if wants_room(&error) || is_of_disk(&error) || error.kind == ErrorKind::Internal => {
            tracing::warn!(bundle = %digest.short(), %to, %error, "a node does not take a bundle yet");
            node.bundles().not_now.note(digest, to, Instant::now());
            Ok(true)
        }
        Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Deadline) => {
            tracing::info!(bundle = %digest.short(), %to, %error, "a bundle did not get through");
            tokio::time::sleep(AGAIN).await;
            Ok(false)
        }
        Err(error) => {
            tracing::warn!(bundle = %digest.short(), %to, %error, "a node does not take a bundle");
            blocking(move || store.bundles().refused(&digest, to).map_err(TaskError::from)).await?;
            Ok(true)
        }
    }
}

/// The bundle of this digest.
pub(super) async fn known(store: &Store, digest: Digest) -> Result<Option<Bundle>, TaskError> {
    let store = store.clone();
    blocking(move || store.bundles().get(&digest).map_err(TaskError::from)).await
}

#[cfg(test)]
mod tests;
