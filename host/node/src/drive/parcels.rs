//! What is in bundles: a deployment for a node that is out of reach, and what became of it.

use super::bundles::{MOST_BUNDLE, Terms, known, priority};
use super::serve::peer_of;
use super::{away, mesh_of};
use crate::contacts;
use crate::node::Node;
use crate::services::{blocking, store_error};
use bytes::Bytes;
use karman_mesh::membership::{Member, Right, UnixTime};
use karman_mesh::{BundleHead, Envelope, Parcel, Wanted, open_bundle, write_bundle};
use karman_space::{Priority, Time, earliest_arrival};
use karman_store::{Bundle, BundleState};
use karman_types::{Digest, NodeId, TaskError};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a bundle may wait at most.
const MOST_LIFETIME: Duration = Duration::from_secs(30 * 86_400);

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
        let node = self.known_node(on)?;
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
        let all = self
            .runtime()
            .home()
            .store()?
            .bundles()
            .list()
            .map_err(store_error)?;
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

    /// A node by its id, or by the beginning of one that this node has met or the contact plan names.
    fn known_node(&self, text: &str) -> Result<NodeId, TaskError> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let plan = self.bundles().plan(contacts::now());
        let planned = plan
            .contacts()
            .iter()
            .flat_map(|contact| [contact.from, contact.to]);
        let mut fit: Vec<NodeId> = mesh_of(self)?
            .acquaintances()
            .into_iter()
            .chain(planned)
            .collect();
        fit.retain(|node| text.len() >= 4 && node.to_string().starts_with(text));
        fit.sort();
        fit.dedup();
        match fit[..] {
            [node] => Ok(node),
            [] => Err(
                TaskError::invalid(format!("`{text}` is no node that this one has met"))
                    .with_field("on")
                    .with_hint("a deployment that may wait is for one node: --on 9c01d2e7"),
            ),
            _ => Err(
                TaskError::invalid(format!("`{text}` is the beginning of several nodes")).with_field("on"),
            ),
        }
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
        (to, key): (NodeId, [u8; 32]),
        parcel: Parcel,
        content: Bytes,
        label: &str,
        Terms { lifetime, priority }: Terms,
    ) -> Result<Bundle, TaskError> {
        let mesh = mesh_of(self)?;
        let lifetime = lifetime.min(MOST_LIFETIME);
        let head = BundleHead {
            source: self.runtime().id(),
            destination: to,
            created_ms: (contacts::now().unix_micros() / 1000).max(0) as u64,
            lifetime,
            priority: priority as u8,
        };
        let label = label.to_owned();
        let standing = mesh.standing().clone();
        let store = self.runtime().home().store()?;
        let kept = blocking(move || {
            let envelope = Envelope {
                to,
                not_after: UnixTime::from_seconds(head.expires_ms() / 1000),
                chain: Vec::new(),
                parcel,
                content: Digest::of(&content),
            };
            let sealed = envelope.seal(&key, &content, &standing)?;
            let bytes = write_bundle(&head, &sealed)?;
            let bundle = Bundle {
                label,
                ..record(&head, &bytes)
            };
            store.bundles().keep(&bundle, &bytes).map_err(store_error)?;
            Ok(bundle)
        });
        let bundle = kept.await?;
        tracing::info!(bundle = %bundle.digest.short(), %to, bytes = bundle.size, "a bundle waits");
        self.bundles().changed();
        Ok(bundle)
    }

    /// Fetches a bundle from the node that tells of it, and keeps it until it has left, or is opened here.
    pub(super) async fn take_bundle(
        &self,
        from: &Member,
        digest: Digest,
        size: u64,
    ) -> Result<(), TaskError> {
        if size > MOST_BUNDLE {
            return Err(
                TaskError::limit(format!("the bundle has {size} bytes; {MOST_BUNDLE} are the most"))
                    .with_field("size"),
            );
        }
        let store = self.runtime().home().store()?;
        match known(&store, digest).await?.map(|bundle| bundle.state) {
            None => {}
            // It comes back: whoever sent it shall look for another way.
            Some(BundleState::Passed { .. } | BundleState::Expired) => {
                return Err(TaskError::invalid("this bundle was here before").with_field("bundle"));
            }
            Some(_) => return Ok(()),
        }
        let wanted = Wanted {
            digest,
            size,
            name: format!("bundle:{}", digest.short()),
            ticket: Bytes::new(),
            anywhere: false,
        };
        let bytes = self.fetch(wanted, peer_of(from)?).await?;
        let kept = blocking(move || {
            let kept = open_bundle(&bytes)
                .map_err(TaskError::from)
                .and_then(|(head, _)| {
                    if head.lifetime > MOST_LIFETIME {
                        return Err(
                            TaskError::limit("the bundle lives longer than 30 days").with_field("lifetime")
                        );
                    }
                    store
                        .bundles()
                        .keep(&record(&head, &bytes), &bytes)
                        .map_err(store_error)
                });
            if kept.is_err() {
                store.blobs().forget_partial(&digest);
            }
            kept
        });
        kept.await?;
        tracing::info!(bundle = %digest.short(), from = %from.node, "a bundle has come");
        self.bundles().changed();
        Ok(())
    }

    /// Opens a bundle that is for this node, and does what it asks.
    pub(super) async fn open(&self, digest: Digest) -> Result<(), TaskError> {
        let store = self.runtime().home().store()?;
        let standing = mesh_of(self)?.standing().clone();
        let from = store.clone();
        let opened = blocking(move || {
            let bytes = from.blobs().read(&digest).map_err(store_error)?;
            let (_, sealed) = open_bundle(&bytes)?;
            Envelope::open(&sealed, &standing)
        });
        let outcome = match opened.await {
            Ok((sender, envelope, content)) if matches!(envelope.parcel, Parcel::Attempt { .. }) => {
                // That may take its time, and the next bundle does not wait for it.
                let node = self.clone();
                tokio::spawn(async move {
                    node.run_away(digest, sender, envelope, content).await;
                    node.bundles().has_run(&digest);
                });
                return Ok(());
            }
            Ok((sender, envelope, content)) => self.obey(digest, sender, envelope, content).await,
            Err(error) => Err(error),
        };
        let state = match outcome {
            Ok(()) => BundleState::Delivered,
            Err(error) => {
                tracing::warn!(bundle = %digest.short(), %error, "what a bundle asks for is refused");
                BundleState::Refused {
                    why: error.to_string(),
                }
            }
        };
        let set = blocking(move || store.bundles().set(&digest, state).map_err(store_error)).await;
        self.bundles().has_run(&digest);
        set
    }

    async fn obey(
        &self,
        bundle: Digest,
        sender: Member,
        envelope: Envelope,
        content: Bytes,
    ) -> Result<(), TaskError> {
        match envelope.parcel {
            Parcel::Deploy { name, downgrade } => {
                tracing::info!(plugin = name, by = %sender.node, "a member deploys, by bundle");
                let outcome = self.deploy_by(&sender, &name, content, downgrade).await;
                self.answer(&sender, bundle, outcome.clone().err()).await;
                outcome
            }
            Parcel::Outcome { bundle, refused } => self.heard(&sender, bundle, refused).await,
            Parcel::Answer { bundle } => {
                away::answered(self.tasks().inner(), &sender, bundle, &content).await
            }
            Parcel::Attempt { .. } => Err(TaskError::internal("an attempt is run, not obeyed")),
        }
    }

    async fn deploy_by(
        &self,
        sender: &Member,
        name: &str,
        component: Bytes,
        downgrade: bool,
    ) -> Result<(), TaskError> {
        let right = name.parse().map(Right::Deploy);
        if !right.is_ok_and(|right| sender.rights.allows(&right)) {
            let node = sender.node.short();
            return Err(TaskError::denied(format!(
                "node {node} has no right `deploy:{name}`"
            )));
        }
        self.deploy_as(name, component, downgrade).await.map(drop)
    }

    /// Lets the sender know what became of its bundle.
    async fn answer(&self, to: &Member, bundle: Digest, refused: Option<TaskError>) {
        let parcel = Parcel::Outcome { bundle, refused };
        let label = format!("outcome of {}", bundle.short());
        let terms = Terms {
            lifetime: MOST_LIFETIME / 4,
            priority: Priority::Expedited,
        };
        if let Err(error) = self
            .send((to.node, to.key), parcel, Bytes::new(), &label, terms)
            .await
        {
            tracing::warn!(to = %to.node, %error, "the sender of a bundle does not hear of its outcome");
        }
    }

    /// What became of a bundle of this node, by the word of the node that it was for.
    async fn heard(
        &self,
        sender: &Member,
        bundle: Digest,
        refused: Option<TaskError>,
    ) -> Result<(), TaskError> {
        let store = self.runtime().home().store()?;
        let ours = known(&store, bundle).await?;
        let theirs =
            ours.is_some_and(|ours| ours.source == self.runtime().id() && ours.destination == sender.node);
        if !theirs {
            return Err(TaskError::invalid(
                "it tells of no bundle of this node to its sender",
            ));
        }
        let state = match refused {
            None => BundleState::Delivered,
            Some(error) => BundleState::Refused {
                why: error.to_string(),
            },
        };
        tracing::info!(bundle = %bundle.short(), by = %sender.node, ?state, "the outcome of a bundle");
        blocking(move || store.bundles().set(&bundle, state).map_err(store_error)).await
    }
}

fn record(head: &BundleHead, bytes: &Bytes) -> Bundle {
    Bundle {
        digest: Digest::of(bytes),
        label: String::new(),
        source: head.source,
        destination: head.destination,
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
