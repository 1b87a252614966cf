//! The other side: runs what came by bundle for a node that is out of reach, and sends back what came of it.

use crate::drive::attempt::{Running, run_here};
use crate::drive::bundles::{Opening, Terms};
use crate::drive::cbor::write;
use crate::drive::incoming::order_of;
use crate::drive::parcels::{TOO_LONG, wants_room};
use crate::drive::providers::runs_here;
use crate::drive::tasks::Inner;
use crate::node::{self, Node};
use crate::services::{Carried, Effects, Origin, blocking};
use bytes::Bytes;
use futures::FutureExt;
use karman_mesh::membership::{Member, Right};
use karman_mesh::{Envelope, Parcel};
use karman_space::Priority;
use karman_store::BundleState;
use karman_tasks::{AwayCall, AwayReply, Begin, BeginError};
use karman_types::{Digest, TaskError};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

/// How long one waits that found no room here.
const LATER: Duration = Duration::from_secs(5);
/// When an answer is written down again for which there was no room, and when one runs again that went wrong.
const MUCH_LATER: Duration = Duration::from_secs(60);

/// An attempt that came in a bundle.
pub(in crate::drive) struct Come {
    pub(in crate::drive) opening: Opening,
    pub(in crate::drive) sender: Member,
    pub(in crate::drive) envelope: Envelope,
    pub(in crate::drive) content: Bytes,
}

/// Runs the attempt in a bundle. The bundle stays until the answer is on the disk: after a crash it runs again, and what it writes
/// counts once. While it waits for something it holds neither the node nor, unless that is room for its answer, its place.
pub(in crate::drive) async fn run_away(node: Weak<node::Inner>, come: Come, place: OwnedSemaphorePermit) {
    let Come {
        opening,
        sender,
        envelope,
        content,
    } = come;
    let bundle = opening.bundle();
    let ran = AssertUnwindSafe(ran(&node, bundle, &sender, &envelope, content));
    // A panic in the host is no reason to begin again at once.
    let pause = ran.catch_unwind().await.unwrap_or(Some(MUCH_LATER));
    opening.leaves(place);
    if let Some(pause) = pause {
        sleep(pause).await;
    }
    drop(opening);
}

/// Runs it and sends back what came of it; how long until that is tried again, if it is.
async fn ran(
    node: &Weak<node::Inner>,
    bundle: Digest,
    sender: &Member,
    envelope: &Envelope,
    content: Bytes,
) -> Option<Duration> {
    let tasks = Node::upgrade(node)?.tasks().inner().clone();
    let mut reply = match tried(&tasks, sender, envelope, content).await {
        Ok(reply) => reply,
        Err(Busy(why)) => {
            tracing::info!(bundle = %bundle.short(), why, "an attempt that came by bundle waits");
            return Some(LATER);
        }
    };
    drop(tasks);
    loop {
        let there = Node::upgrade(node)?;
        let told = there.tell(bundle, sender, envelope, &reply).await;
        drop(there);
        match told {
            Ok(()) => return None,
            // The attempt has run, and does not run again for that.
            Err(error) if wants_room(&error) => {
                tracing::warn!(bundle = %bundle.short(), %error, "an answer waits for room");
                sleep(MUCH_LATER).await;
            }
            Err(error)
                if error.field.as_deref() == Some(TOO_LONG) && !matches!(reply, AwayReply::Failed(_)) =>
            {
                reply = AwayReply::Failed(error);
            }
            Err(error) => {
                tracing::error!(bundle = %bundle.short(), %error, "what came of an attempt is not sent back yet");
                return Some(MUCH_LATER);
            }
        }
    }
}

impl Node {
    /// Sends what came of an attempt in the place of the bundle that it came in.
    async fn tell(
        &self,
        bundle: Digest,
        sender: &Member,
        envelope: &Envelope,
        reply: &AwayReply,
    ) -> Result<(), TaskError> {
        let order = order_of(sender, envelope)?;
        let left = left(self.tasks().inner(), envelope);
        // The sender does not wait any longer than that.
        if !left.is_zero() {
            let terms = Terms {
                lifetime: left,
                priority: Priority::Normal,
            };
            let (to, parcel) = ((sender.node, sender.key), Parcel::Answer { bundle });
            let label = format!("answer to {}", bundle.short());
            let answer = self.seal(to, parcel, write(reply)?, &label, terms).await?;
            return self.keep(answer, Some((bundle, order))).await.map(drop);
        }
        let store = self.runtime().home().store()?;
        let state = BundleState::Delivered;
        blocking(move || {
            store
                .bundles()
                .done(&bundle, &order, state)
                .map_err(TaskError::from)
        })
        .await
    }
}

/// The time that the sender waits.
fn left(tasks: &Inner, envelope: &Envelope) -> Duration {
    let now = tasks.mesh.get().map_or(0, |mesh| mesh.standing().now().seconds());
    Duration::from_secs(envelope.not_after.seconds().saturating_sub(now))
}

async fn tried(
    tasks: &Inner,
    sender: &Member,
    envelope: &Envelope,
    content: Bytes,
) -> Result<AwayReply, Busy> {
    let judged = judge(sender, envelope, &content);
    drop(content);
    let AwayCall { mut call, values } = match judged {
        Ok(order) => order,
        Err(error) => return Ok(AwayReply::Failed(error)),
    };
    // Said with the field `task`: it is not offered here any more.
    if !runs_here(tasks, &call.name) {
        let gone = TaskError::unavailable(format!("this node runs `{}` no longer", call.name));
        return Ok(AwayReply::Failed(gone.with_field("task")));
    }
    let left = left(tasks, envelope);
    call.within = Some(call.within.map_or(left, |within| within.min(left)));
    let attempt = call.attempt;
    let begun = tasks.provider.lock().begin(&call);
    match begun {
        Ok(Begin::Run) => {}
        Ok(Begin::Running) => return Err(Busy("it runs here already".into())),
        Err(error @ (BeginError::Limit(_) | BeginError::Draining)) => {
            return Err(Busy(error.to_string()));
        }
        Err(error) => return Ok(AwayReply::Failed(error.into())),
    }
    let _running = Running(tasks, attempt);
    let carried = Arc::new(Carried::new(values));
    let effects = Effects::new(Origin::Carried(carried.clone()), None);
    // Where its buckets are, its home knows.
    tracing::info!(task = %attempt.task, name = %call.name, by = %sender.node, "an attempt runs that came by bundle");
    let ran = run_here(tasks, call, effects).await;
    let missing = carried.missing();
    Ok(match ran {
        _ if !missing.is_empty() => AwayReply::Needs(missing),
        Ok(answer) => AwayReply::Done(answer),
        Err(error) => AwayReply::Failed(error),
    })
}

/// There is no room for it now.
struct Busy(String);

fn judge(sender: &Member, envelope: &Envelope, content: &Bytes) -> Result<AwayCall, TaskError> {
    let Parcel::Attempt { name } = &envelope.parcel else {
        return Err(TaskError::internal("no attempt"));
    };
    sender.must(Right::Call, name)?;
    let order = AwayCall::read(content)?;
    match *order.call.name == **name {
        true => Ok(order),
        false => Err(TaskError::invalid(format!(
            "the envelope is for `{name}`, the attempt for `{}`",
            order.call.name
        ))
        .with_field("name")),
    }
}
