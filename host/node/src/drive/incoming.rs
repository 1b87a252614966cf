//! Bundles that come: taken from the node that tells of them, and opened where they are for this node.

use super::away::{self, Come, run_away};
use super::bundles::{MOST_BUNDLE, Opening, Terms, known};
use super::mesh_of;
use super::parcels::{MOST_LIFETIME, kept, must_have_room, not_received, record, too_long};
use super::serve::peer_of;
use crate::node::Node;
use crate::services::{blocking, is_of_disk};
use bytes::Bytes;
use karman_mesh::membership::{Member, Right};
use karman_mesh::{Envelope, Parcel, Wanted, open_bundle};
use karman_space::Priority;
use karman_store::{Bundle, BundleOrder, BundleState, Store};
use karman_types::{Digest, ErrorKind, NodeId, TaskError};

impl Node {
    /// Fetches a bundle from the node that tells of it, and keeps it until it has left, or is opened here.
    pub(super) async fn take_bundle(
        &self,
        from: &Member,
        digest: Digest,
        size: u64,
    ) -> Result<(), TaskError> {
        if size > MOST_BUNDLE {
            return Err(too_long(size));
        }
        let store = self.runtime().home().store()?;
        match known(&store, digest).await?.map(|bundle| bundle.state) {
            None => {}
            // It comes back: its sender shall look for another way.
            Some(BundleState::Passed { .. } | BundleState::Expired) => {
                return Err(TaskError::invalid("this bundle was here before").with_field("bundle"));
            }
            Some(_) => return Ok(()),
        }
        // Until it is among those that the member has brought it counts here: what comes slowly takes room, too.
        let coming = self.bundles().comes(from.node, size);
        must_have_room(&store, from.node, coming.of_member()).await?;
        let wanted = Wanted {
            digest,
            size,
            name: format!("bundle:{}", digest.short()),
            ticket: Bytes::new(),
            anywhere: false,
        };
        let bytes = self.fetch(wanted, peer_of(from)?).await.map_err(not_received)?;
        let by = from.node;
        let taken = blocking(move || {
            let taken = keep(&store, &bytes, by);
            if taken.is_err() {
                store.blobs().forget_partial(&digest);
            }
            taken
        });
        taken.await?;
        drop(coming);
        tracing::info!(bundle = %digest.short(), from = %from.node, "a bundle has come");
        self.bundles().changed();
        Ok(())
    }

    /// Opens a bundle that is for this node, and does what it asks, or begins to. Where the disk fails it is opened again later.
    pub(super) async fn open(&self, mut opening: Opening) {
        let bundle = opening.bundle();
        let (outcome, order) = match self.unseal(bundle).await {
            Err(error) => (Err(error), None),
            Ok((sender, envelope, content, order)) => {
                if let Some(order) = order {
                    match opening.claim(order.digest) {
                        Some(claimed) => opening = claimed,
                        None => return,
                    }
                }
                match self.must_be_new(&sender, bundle, order).await {
                    Err(error) => (Err(error), None),
                    Ok(()) if matches!(envelope.parcel, Parcel::Attempt { .. }) => {
                        return self.begin(Come {
                            opening,
                            sender,
                            envelope,
                            content,
                        });
                    }
                    Ok(()) => (self.obey(bundle, sender, envelope, content).await, order),
                }
            }
        };
        let opened = match outcome {
            Err(error) if is_of_disk(&error) => Err(error),
            // Of a deployment the sender has heard by then how it went.
            Err(error) if order.is_none() && error.kind == ErrorKind::Internal => Err(error),
            outcome => self.opened(bundle, order, outcome).await,
        };
        if let Err(error) = opened {
            tracing::error!(bundle = %bundle.short(), %error, "a bundle cannot be opened yet");
            opening.later();
        }
    }

    async fn unseal(&self, bundle: Digest) -> Result<Unsealed, TaskError> {
        let store = self.runtime().home().store()?;
        let standing = mesh_of(self)?.standing().clone();
        blocking(move || {
            let bytes = store.blobs().read(&bundle)?;
            let (_, sealed) = open_bundle(&bytes)?;
            let (sender, envelope, content) = Envelope::open(&sealed, &standing)?;
            let order = order_in(&sender, &envelope)?;
            Ok((sender, envelope, content, order))
        })
        .await
    }

    /// Refuses an order that has been done. Its sender is not told so: that it was carried here twice is not its doing.
    async fn must_be_new(
        &self,
        sender: &Member,
        bundle: Digest,
        order: Option<BundleOrder>,
    ) -> Result<(), TaskError> {
        let Some(order) = order else { return Ok(()) };
        let store = self.runtime().home().store()?;
        let is_new = blocking(move || store.bundles().must_be_new(&order).map_err(TaskError::from)).await;
        if let Err(error) = &is_new
            && error.kind == ErrorKind::Limit
        {
            self.answer(sender, bundle, Some(error.clone())).await;
        }
        is_new
    }

    async fn opened(
        &self,
        bundle: Digest,
        order: Option<BundleOrder>,
        outcome: Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let state = match outcome {
            Ok(()) => BundleState::Delivered,
            Err(error) => {
                tracing::warn!(bundle = %bundle.short(), %error, "what a bundle asks for is refused");
                BundleState::Refused {
                    why: error.to_string(),
                }
            }
        };
        let store = self.runtime().home().store()?;
        blocking(move || {
            let bundles = store.bundles();
            let set = match &order {
                Some(order) => bundles.done(&bundle, order, state),
                None => bundles.set(&bundle, state),
            };
            set.map_err(TaskError::from)
        })
        .await
    }

    /// Begins an attempt if there is a place for it. That may take its time, and the next bundle does not wait for it; where there
    /// is no place, it is opened again when there is one.
    fn begin(&self, come: Come) {
        match self.bundles().place() {
            Some(place) => drop(tokio::spawn(run_away(self.downgrade(), come, place))),
            None => self.bundles().put_off(come.opening.bundle()),
        }
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
                if !outcome.as_ref().is_err_and(is_of_disk) {
                    self.answer(&sender, bundle, outcome.clone().err()).await;
                }
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
        sender.must(Right::Deploy, name)?;
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
        tracing::info!(bundle = %bundle.short(), by = %sender.node, ?refused, "the outcome of a bundle");
        match refused {
            None => {
                let done = BundleState::Delivered;
                blocking(move || store.bundles().set(&bundle, done).map_err(TaskError::from)).await
            }
            Some(error) => away::refused(self.tasks().inner(), bundle, error).await,
        }
    }
}

/// Who sealed it, what it asks, what it brings, and the order in it.
type Unsealed = (Member, Envelope, Bytes, Option<BundleOrder>);

/// The order in an envelope, if it is one: the other parcels tell of a bundle of this node, and change nothing the second time.
fn order_in(sender: &Member, envelope: &Envelope) -> Result<Option<BundleOrder>, TaskError> {
    let is_order = matches!(envelope.parcel, Parcel::Deploy { .. } | Parcel::Attempt { .. });
    is_order.then(|| order_of(sender, envelope)).transpose()
}

/// What is remembered of an order when it is done.
pub(super) fn order_of(sender: &Member, envelope: &Envelope) -> Result<BundleOrder, TaskError> {
    Ok(BundleOrder {
        digest: envelope.digest(sender.node)?,
        by: sender.node,
        good_until_ms: envelope.not_after.seconds().saturating_mul(1000),
    })
}

/// Keeps a bundle that a node has brought, until it has left or is opened here.
fn keep(store: &Store, bytes: &Bytes, by: NodeId) -> Result<bool, TaskError> {
    let (head, _) = open_bundle(bytes)?;
    if head.lifetime > MOST_LIFETIME {
        return Err(TaskError::limit("the bundle lives longer than 30 days").with_field("lifetime"));
    }
    let bundle = Bundle {
        brought_by: Some(by),
        ..record(&head, bytes)
    };
    kept(store.bundles().keep(&bundle, bytes))
}
