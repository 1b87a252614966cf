//! Handing accepted tasks over to other nodes, and taking theirs.

use super::mesh_of;
use crate::drive::cbor::{read, write};
use crate::drive::tasks::{Inner, Tasks};
use karman_mesh::membership::Member;
use karman_mesh::{Ask, CallHead};
use karman_store::DISK;
use karman_tasks::{Guarantee, Handover};
use karman_types::{ErrorKind, NodeId, TaskError, TaskResponse};
use std::time::Duration;

/// The field of an error in what the heir has answered.
const ANSWER: &str = "answer";

/// Hands a task over. Whether the heir has taken it; nothing when nobody knows.
pub(in crate::drive) async fn hand_over(tasks: &Inner, to: NodeId, handover: Handover) -> Option<bool> {
    let handed = async {
        let mesh = mesh_of(tasks)?;
        let heir = mesh.peer(to).await?;
        // A keeper may wait for a majority longer than this node waits for it. Where only the heir and this one know of the task, there is
        // nobody else to ask.
        let is_kept = handover.record.guarantee == Guarantee::Kept;
        let within = is_kept.then(|| tasks.keepers.handover());
        let head = CallHead {
            within_ms: within.map(|within| within.as_millis() as u64),
            ..CallHead::new(Ask::TakeOver, &*handover.record.name, handover.record.task)
        };
        let (answer, _) = mesh.call(heir, head, write(&handover)?).await?;
        read::<bool>(ANSWER, &answer.body)
    };
    handed.await.map_or_else(
        |error| {
            tracing::warn!(to = %to.short(), %error, "a task is not handed over");
            is_refused(&error).then_some(false)
        },
        Some,
    )
}

/// Whether the heir says by this error that it has not taken the task: all such are found before it does, but for what is wrong with
/// its answer.
fn is_refused(error: &TaskError) -> bool {
    let before = matches!(
        error.kind,
        ErrorKind::Denied | ErrorKind::Limit | ErrorKind::Invalid
    );
    before && error.field.as_deref() != Some(ANSWER)
}

/// Takes over a task from a node that is being drained: whether this node has it now. The right of that node was checked for the
/// name in the head of its call, so the task has to be that one; of a kept task the keepers are asked what it is, and whose.
pub(in crate::drive) async fn take_over(
    tasks: &Tasks,
    from: &Member,
    name: &str,
    body: &[u8],
) -> Result<TaskResponse, TaskError> {
    let handover: Handover = read("task", body)?;
    if *handover.record.name != *name {
        return Err(TaskError::invalid(format!(
            "the task is `{}`, the call says `{name}`",
            handover.record.name
        ))
        .with_field("name"));
    }
    let taken = async {
        let handover = match handover.record.guarantee {
            Guarantee::Kept => {
                let kept = tasks.keepers().find(handover.record.task, Duration::ZERO).await?;
                handover.of_owner(from.node, kept)?
            }
            // It would be asked again until its disk takes the task, which another one may take now.
            _ => match tasks.inner().runtime.home().store()?.trouble() {
                Some(trouble) => return Err(TaskError::unavailable(trouble).with_field(DISK)),
                None => handover,
            },
        };
        tasks.receive(handover).await
    };
    let taken = taken.await;
    if let Err(error) = &taken {
        tracing::warn!(%error, "a task is not taken over");
    }
    Ok(TaskResponse::from(write(&taken.is_ok())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_from_doubt() {
        for (error, refused) in [
            (TaskError::denied("no right `call:classify`"), true),
            (TaskError::limit("too long").with_field("body"), true),
            (TaskError::invalid("no task").with_field("task"), true),
            (TaskError::limit("too long").with_field(ANSWER), false),
            (TaskError::invalid("it does not read").with_field(ANSWER), false),
            (TaskError::unavailable("the link broke"), false),
            (TaskError::internal("a defect"), false),
        ] {
            assert_eq!(is_refused(&error), refused, "{error:?}");
        }
    }
}
