//! Bundles of this node: what it leaves for one that is out of reach, and what its operator sees of them.

use super::blobs::RECEIVING;
use super::bundles::{MOST_BUNDLE, Terms, priority};
use super::mesh_of;
use crate::contacts;
use crate::node::Node;
use crate::services::blocking;
use bytes::Bytes;
use karman_mesh::membership::UnixTime;
use karman_mesh::{BundleHead, Envelope, Parcel, write_bundle};
use karman_space::{Priority, Time, earliest_arrival};
use karman_store::{Bundle, BundleOrder, BundleState, Store, StoreError};
use karman_types::{Digest, ErrorKind, NodeId, TaskError};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a bundle may wait at most.
pub(super) const MOST_LIFETIME: Duration = Duration::from_secs(30 * 86_400);
/// The field of an error that says that a bundle is longer than one may be.
pub(super) const TOO_LONG: &str = "size";
/// The field of an error that says that there is no room for a bundle now.
const NO_ROOM: &str = "bundles";

/// A deployment that waits for a contact.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Sent {
    /// The bundle that it is in.
    pub bundle: Digest,
    /// The plugin.
    pub plugin: String,
    /// The node that it is for.
    pub node: NodeId,
    /// Bytes of the bundle.
    pub bytes: u64,
    /// When it will be there by the contact plan, as far as nothing else takes its place; nothing where no contacts lead there
    /// in time.
    pub arrives: Option<Time>,
    /// The last instant at which it may arrive.
    pub expires: Time,
}

/// A bundle as the operator sees it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct BundleStatus {
    /// The bundle.
    pub bundle: Digest,
    /// What is in it, where this node made it.
    pub label: String,
    /// The node that made it.
    pub source: NodeId,
    /// The node that it is for.
    pub destination: NodeId,
    /// Its length in bytes.
    pub bytes: u64,
    /// Which goes first.
    pub priority: Priority,
    /// The last instant at which it may arrive.
    pub expires: Time,
    /// How far it is, here.
    pub state: BundleState,
}

impl Node {
    /// Deploys a component on a node that is not in reach now: it waits as a bundle, sealed to that node.
    ///
    /// # Errors
    /// `invalid` when `on` is no node, `unavailable` when its key is not known, `limit` when too much waits already.
    pub async fn deploy_later(
        &self,
        on: &str,
        component: Bytes,
        name: &str,
        downgrade: bool,
        (wait, priority): (Duration, Priority),
    ) -> Result<Sent, TaskError> {
        let node = self.named(on).map_err(|error| error.with_field("on"))?;
        let name = self.plugins().name_of(&component, name)?;
        let parcel = Parcel::Deploy {
            name: name.clone(),
            downgrade,
        };
        let label = format!("deploy {name}");
        let terms = Terms {
            lifetime: wait,
            priority,
        };
        let bundle = self
            .send((node, self.key_of(node)?), parcel, component, &label, terms)
            .await?;
        let now = contacts::now();
        let route = karman_space::Bundle {
            source: self.runtime().id(),
            destination: node,
            bytes: bundle.size,
            sent: now,
            expires: time(bundle.expires_ms),
            split: true,
        };
        Ok(Sent {
            bundle: bundle.digest,
            plugin: name,
            node,
            bytes: bundle.size,
            arrives: earliest_arrival(&self.bundles().plan(now), &route)
                .ok()
                .map(|route| route.arrival),
            expires: time(bundle.expires_ms),
        })
    }

    /// The bundles that are known here, those first that go first.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn bundle_list(&self) -> Result<Vec<BundleStatus>, TaskError> {
        let all = self.runtime().home().store()?.bundles().list()?;
        let status = |bundle: Bundle| BundleStatus {
            bundle: bundle.digest,
            label: bundle.label,
            source: bundle.source,
            destination: bundle.destination,
            bytes: bundle.size,
            priority: priority(bundle.priority),
            expires: time(bundle.expires_ms),
            state: bundle.state,
        };
        Ok(all.into_iter().map(status).collect())
    }

    /// The key of a node, to seal something for it.
    pub(super) fn key_of(&self, node: NodeId) -> Result<[u8; 32], TaskError> {
        mesh_of(self)?.key_of(node).ok_or_else(|| {
            TaskError::unavailable(format!("the key of node {} is not known here", node.short()))
                .with_hint("two nodes have to have met once before something can be sealed for one of them")
        })
    }

    /// Signs, seals and keeps; from then on it is on its way.
    pub(super) async fn send(
        &self,
        to: (NodeId, [u8; 32]),
        parcel: Parcel,
        content: Bytes,
        label: &str,
        terms: Terms,
    ) -> Result<Bundle, TaskError> {
        let sealed = self.seal(to, parcel, content, label, terms).await?;
        self.keep(sealed, None).await
    }

    /// Signs and seals: its digest is known, and nothing is on its way.
    pub(super) async fn seal(
        &self,
        (to, key): (NodeId, [u8; 32]),
        parcel: Parcel,
        content: Bytes,
        label: &str,
        Terms { lifetime, priority }: Terms,
    ) -> Result<Sealed, TaskError> {
        let head = BundleHead {
            source: self.runtime().id(),
            destination: to,
            created_ms: contacts::now().unix_ms(),
            lifetime: lifetime.min(MOST_LIFETIME),
            priority: priority as u8,
        };
        let label = label.to_owned();
        let standing = mesh_of(self)?.standing().clone();
        blocking(move || {
            let envelope = Envelope {
                to,
                not_after: UnixTime::from_seconds(head.expires_ms() / 1000),
                chain: Vec::new(),
                parcel,
                content: Digest::of(&content),
            };
            let sealed = envelope.seal(&key, &content, &standing)?;
            drop(content);
            let bytes = write_bundle(&head, &sealed)?;
            // No node would take it.
            if bytes.len() as u64 > MOST_BUNDLE {
                return Err(too_long(bytes.len() as u64));
            }
            let bundle = Bundle {
                label,
                ..record(&head, &bytes)
            };
            Ok(Sealed { bundle, bytes })
        })
        .await
    }

    /// Keeps a bundle until its contact, in the place of one that it answers: that, and the order in it, are done.
    pub(super) async fn keep(
        &self,
        sealed: Sealed,
        answered: Option<(Digest, BundleOrder)>,
    ) -> Result<Bundle, TaskError> {
        let store = self.runtime().home().store()?;
        let bundle = blocking(move || {
            sealed.keep(&store, answered)?;
            Ok(sealed.bundle)
        })
        .await?;
        self.waits(&bundle);
        Ok(bundle)
    }

    /// A bundle is on the disk, and leaves when its contact comes.
    pub(super) fn waits(&self, bundle: &Bundle) {
        tracing::info!(bundle = %bundle.digest.short(), to = %bundle.destination, bytes = bundle.size, "a bundle waits");
        self.bundles().changed();
    }
}

/// A bundle that is not on its way yet.
pub(super) struct Sealed {
    pub(super) bundle: Bundle,
    bytes: Bytes,
}

impl Sealed {
    /// Puts it on the disk, in the place of one that it answers.
    pub(super) fn keep(
        &self,
        store: &Store,
        answered: Option<(Digest, BundleOrder)>,
    ) -> Result<bool, TaskError> {
        let Self { bundle, bytes } = self;
        kept(match answered {
            Some((done, order)) => store.bundles().answer((&done, &order), bundle, bytes),
            None => store.bundles().keep(bundle, bytes),
        })
    }
}

/// What became of keeping a bundle; that there is no room for it can be told from all else.
pub(super) fn kept(kept: Result<bool, StoreError>) -> Result<bool, TaskError> {
    kept.map_err(|error| {
        let field = match &error {
            StoreError::Limit { field, .. } => *field,
            _ => "",
        };
        match field {
            "bundles" | "waiting bundles" | "bundles-per-member" | "waiting-per-member" => {
                TaskError::from(error).with_field(NO_ROOM)
            }
            _ => TaskError::from(error),
        }
    })
}

/// Refuses a bundle of this length that would not be kept: said before its bytes take the time of a contact.
///
/// # Errors
/// `limit` where there is no room for it now, or none for more of this member, else what the disk refuses.
pub(super) async fn must_have_room(store: &Store, brought_by: NodeId, bytes: u64) -> Result<(), TaskError> {
    let store = store.clone();
    blocking(move || {
        let room = store.bundles().must_have_room(Some(brought_by), bytes);
        kept(room.map(|()| true)).map(drop)
    })
    .await
}

/// An error of receiving a bundle; that too much else is being received passes, too.
pub(super) fn not_received(error: TaskError) -> TaskError {
    match error.field.as_deref() {
        Some(RECEIVING) => error.with_field(NO_ROOM),
        _ => error,
    }
}

/// Whether it says that there is no room for a bundle now.
pub(super) fn wants_room(error: &TaskError) -> bool {
    error.kind == ErrorKind::Limit && error.field.as_deref() == Some(NO_ROOM)
}

pub(super) fn too_long(bytes: u64) -> TaskError {
    TaskError::limit(format!(
        "the bundle has {bytes} bytes; {MOST_BUNDLE} are the most"
    ))
    .with_field(TOO_LONG)
}

pub(super) fn record(head: &BundleHead, bytes: &Bytes) -> Bundle {
    Bundle {
        digest: Digest::of(bytes),
        label: String::new(),
        source: head.source,
        destination: head.destination,
        brought_by: None,
        size: bytes.len() as u64,
        priority: head.priority,
        created_ms: head.created_ms,
        expires_ms: head.expires_ms(),
        state: BundleState::Waiting,
        refused_by: Vec::new(),
    }
}

fn time(unix_ms: u64) -> Time {
    Time::from_unix_ms(i64::try_from(unix_ms).unwrap_or(i64::MAX))
}
