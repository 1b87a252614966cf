//! What comes back for attempts that are away, by the word of the node where they ran.

use super::ledger::Ledger;
use crate::drive::attempt::may_write;
use crate::drive::bundles::known;
use crate::drive::cbor::write;
use crate::drive::tasks::Inner;
use karman_mesh::membership::{Member, Right};
use karman_store::BundleState;
use karman_tasks::{AwayReply, Needs, Place};
use karman_types::{Digest, TaskError};

/// Takes what came of an attempt, by the word of the node where it ran.
///
/// # Errors
/// `invalid` where the bundle was not for that node.
pub(in crate::drive) async fn answered(
    tasks: &Inner,
    sender: &Member,
    bundle: Digest,
    content: &[u8],
) -> Result<(), TaskError> {
    let ours = known(&tasks.away.store, bundle).await?;
    let here = tasks.runtime.id();
    if !ours.is_some_and(|ours| ours.source == here && ours.destination == sender.node) {
        return Err(TaskError::invalid(
            "it answers no bundle of this node to its sender",
        ));
    }
    // One that cannot be understood is no answer, and another attempt may bring one.
    let reply = AwayReply::read(content)
        .unwrap_or_else(|error| AwayReply::Failed(TaskError::internal(error.to_string())));
    if !take(tasks, bundle, &judged(sender, reply), BundleState::Delivered).await? {
        tracing::info!(bundle = %bundle.short(), "an answer came that nobody waits for any more");
    }
    Ok(())
}

/// What a bundle of this node asks for is refused where it was for. If that was an attempt, it has failed.
pub(in crate::drive) async fn refused(
    tasks: &Inner,
    bundle: Digest,
    error: TaskError,
) -> Result<(), TaskError> {
    let why = error.to_string();
    let refused = BundleState::Refused { why };
    take(tasks, bundle, &AwayReply::Failed(error), refused)
        .await
        .map(drop)
}

/// Writes down what has become of a bundle of this node; whether a task waited for it.
async fn take(
    tasks: &Inner,
    bundle: Digest,
    reply: &AwayReply,
    state: BundleState,
) -> Result<bool, TaskError> {
    let (store, bytes) = (tasks.away.store.clone(), write(reply)?);
    let write_down = move |ledger: &Ledger| {
        let taken = ledger.answer(&bundle, &bytes)?;
        store.bundles().set(&bundle, state)?;
        Ok(taken)
    };
    tasks.away.with_ledger(write_down).await
}

/// What the node that ran the attempt may say and ask for.
pub(super) fn judged(sender: &Member, reply: AwayReply) -> AwayReply {
    let judged = match reply {
        AwayReply::Done(answer) => {
            let batch = answer.batch.as_ref();
            let may = batch.map_or(Ok(()), |batch| may_write(Some(sender), batch));
            may.map(|()| AwayReply::Done(answer))
        }
        AwayReply::Needs(places) => may_read(sender, places),
        AwayReply::Failed(error) => Err(error),
    };
    judged.unwrap_or_else(AwayReply::Failed)
}

fn may_read(sender: &Member, places: Vec<Place>) -> Result<AwayReply, TaskError> {
    // Each key once.
    let mut needs = Needs::default();
    needs.add(places)?;
    for (bucket, _) in needs.places() {
        sender.must(Right::BucketRead, bucket)?;
    }
    Ok(AwayReply::Needs(needs.places().iter().cloned().collect()))
}
