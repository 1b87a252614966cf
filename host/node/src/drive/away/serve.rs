//! The other side: runs what came by bundle for a node that is out of reach, and sends back what came of it.

use super::wire::Reply;
use super::{Order, readable};
use crate::drive::attempt::{run_here, write};
use crate::drive::bundles::Terms;
use crate::drive::tasks::Inner;
use crate::node::Node;
use crate::services::{Carried, Effects, Origin, blocking, store_error};
use bytes::Bytes;
use karman_mesh::membership::{Member, Right};
use karman_mesh::{Envelope, Parcel};
use karman_space::Priority;
use karman_store::BundleState;
use karman_tasks::{AttemptId, Begin, BeginError};
use karman_types::{Digest, ErrorKind, TaskError};
use std::sync::Arc;
use std::time::Duration;

/// Attempts that came by bundle and run at once; the next ones wait in their bundles.
pub(in crate::drive) const MOST_AT_ONCE: usize = 8;
/// How long one waits that found no room here.
const LATER: Duration = Duration::from_secs(5);
/// When one runs again whose answer could not be written down.
const MUCH_LATER: Duration = Duration::from_secs(60);

impl Node {
    /// Runs the attempt in a bundle. The bundle stays until the answer is on the disk: after a crash it runs again, and what it
    /// writes counts once.
    pub(in crate::drive) async fn run_away(
        &self,
        bundle: Digest,
        sender: Member,
        envelope: Envelope,
        content: Bytes,
    ) {
        let left = envelope.not_after.seconds().saturating_sub(self.standing_now());
        let reply = match self
            .tried(&sender, &envelope, &content, Duration::from_secs(left))
            .await
        {
            Ok(reply) => reply,
            Err(Busy(why)) => {
                tracing::info!(bundle = %bundle.short(), why, "an attempt that came by bundle waits");
                return tokio::time::sleep(LATER).await;
            }
        };
        let terms = Terms {
            // The sender does not wait any longer than that.
            lifetime: Duration::from_secs(left.max(1)),
            priority: Priority::Normal,
        };
        let to = (sender.node, sender.key);
        let label = format!("answer to {}", bundle.short());
        let tell = async |reply: &Reply| {
            let parcel = Parcel::Answer { bundle };
            self.send(to, parcel, write(reply)?, &label, terms).await
        };
        let answered = async {
            match tell(&reply).await {
                // What it has answered is too long, or there is no room for it.
                Err(error) if error.kind == ErrorKind::Limit => tell(&Reply::Failed(error)).await?,
                sent => sent?,
            };
            let store = self.runtime().home().store()?;
            let done = BundleState::Delivered;
            blocking(move || store.bundles().set(&bundle, done).map_err(store_error)).await
        };
        if let Err(error) = answered.await {
            tracing::error!(bundle = %bundle.short(), %error, "what came of an attempt is not sent back yet");
            tokio::time::sleep(MUCH_LATER).await;
        }
    }

    async fn tried(
        &self,
        sender: &Member,
        envelope: &Envelope,
        content: &Bytes,
        left: Duration,
    ) -> Result<Reply, Busy> {
        let judged = judge(sender, envelope, content);
        let order = match judged {
            Ok(order) => order,
            Err(error) => return Ok(Reply::Failed(error)),
        };
        let tasks = self.tasks().inner();
        let Order { mut call, values } = order;
        call.within = Some(call.within.map_or(left, |within| within.min(left)));
        let attempt = call.attempt;
        let begun = tasks.provider.lock().begin(&call);
        match begun {
            Ok(Begin::Run) => {}
            Ok(Begin::Running) => return Err(Busy("it runs here already".into())),
            Err(error @ (BeginError::Limit(_) | BeginError::Draining)) => {
                return Err(Busy(error.to_string()));
            }
            Err(error) => return Ok(Reply::Failed(error.into())),
        }
        let _running = Running(tasks, attempt);
        let carried = Arc::new(Carried::new(values));
        let effects = Effects::new(Origin::Carried(carried.clone()), None);
        // Where its buckets are, its home knows.
        tracing::info!(task = %attempt.task, name = %call.name, by = %sender.node, "an attempt runs that came by bundle");
        let ran = run_here(tasks, call, effects).await;
        let missing = carried.missing();
        Ok(match ran {
            _ if !missing.is_empty() => Reply::Needs(missing),
            Ok(answer) => Reply::Done(answer),
            Err(error) => Reply::Failed(error),
        })
    }

    fn standing_now(&self) -> u64 {
        self.mesh().map_or(0, |mesh| mesh.standing().now().seconds())
    }
}

/// There is no room for it now.
struct Busy(String);

fn judge(sender: &Member, envelope: &Envelope, content: &Bytes) -> Result<Order, TaskError> {
    let Parcel::Attempt { name } = &envelope.parcel else {
        return Err(TaskError::internal("no attempt"));
    };
    let right = name.parse().map(Right::Call);
    if !right.is_ok_and(|right| sender.rights.allows(&right)) {
        let node = sender.node.short();
        return Err(TaskError::denied(format!(
            "node {node} has no right `call:{name}`"
        )));
    }
    let order = readable(content)?;
    match *order.call.name == **name {
        true => Ok(order),
        false => Err(TaskError::new(
            ErrorKind::Invalid,
            format!(
                "the envelope is for `{name}`, the attempt for `{}`",
                order.call.name
            ),
        )
        .with_field("name")),
    }
}

/// An attempt of another node, until it has ended or was dropped.
struct Running<'a>(&'a Inner, AttemptId);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.provider.lock().finish(self.1);
    }
}
