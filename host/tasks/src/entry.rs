use crate::{Epoch, KeyReused, LimitReached, Outcome, StaleEpoch, TaskRecord, UnixMs};
use bytes::Bytes;
use karman_types::{NodeId, TaskId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One entry of the keepers' log. A node may propose it again until it knows the outcome.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Entry {
    /// A task is accepted. Once this is committed, the caller gets its acknowledgement.
    Accept {
        /// The node that accepted it, which is its first owner.
        owner: NodeId,
        /// The task.
        record: Box<TaskRecord>,
    },
    /// Its first owner takes an acceptance back that it has told nobody of, because it did not learn in time that this was
    /// committed. Nothing is known of the task then, and its key is free again.
    Withdraw {
        /// The task.
        task: TaskId,
        /// The ownership.
        epoch: Epoch,
    },
    /// A node takes the task over.
    Own {
        /// The task.
        task: TaskId,
        /// Its owner from now on.
        node: NodeId,
        /// The next epoch.
        epoch: Epoch,
    },
    /// An attempt is about to start. Only the owner learns that this was committed, so that nobody else starts one.
    Dispatch {
        /// The task.
        task: TaskId,
        /// The ownership.
        epoch: Epoch,
        /// How many attempts count by now, with this one.
        number: u32,
        /// Where it runs.
        provider: NodeId,
    },
    /// How far an attempt has got: what a task that goes on over several attempts carries on from, whichever node owns it then.
    Progress {
        /// The task.
        task: TaskId,
        /// The ownership.
        epoch: Epoch,
        /// In the words of who runs it.
        progress: Bytes,
    },
    /// The task has ended: it is done, failed, expired or cancelled.
    End {
        /// The task.
        task: TaskId,
        /// The ownership.
        epoch: Epoch,
        /// How.
        outcome: Outcome,
        /// When, if the owner could tell.
        at: Option<UnixMs>,
    },
    /// The result was fetched, nobody came for it in time, or newer ones need its room.
    Trim {
        /// The task.
        task: TaskId,
        /// The ownership.
        epoch: Epoch,
    },
    /// The key is old enough: nothing is known of the task any more.
    Forget {
        /// The task.
        task: TaskId,
        /// The ownership.
        epoch: Epoch,
    },
}

impl Entry {
    /// The task whose owner speaks here, and its ownership; nothing where one begins.
    pub const fn ownership(&self) -> Option<(TaskId, Epoch)> {
        match self {
            Self::Accept { .. } | Self::Own { .. } => None,
            Self::Withdraw { task, epoch }
            | Self::Dispatch { task, epoch, .. }
            | Self::Progress { task, epoch, .. }
            | Self::End { task, epoch, .. }
            | Self::Trim { task, epoch }
            | Self::Forget { task, epoch } => Some((*task, *epoch)),
        }
    }

    /// Bytes of the input, progress or result that it carries.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Accept { record, .. } => record.weight(),
            Self::Progress { progress, .. } => progress.len() as u64,
            Self::End {
                outcome: Outcome::Done(response),
                ..
            } => response.body.len() as u64,
            _ => 0,
        }
    }
}

/// What an entry did. A node that lets clients wait at any keeper tells them from these.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Effect {
    /// The task is kept.
    Accepted(TaskId),
    /// It is not, after all.
    Withdrawn(TaskId),
    /// The task has this owner.
    Owned {
        /// The task.
        task: TaskId,
        /// Its owner.
        node: NodeId,
        /// The ownership.
        epoch: Epoch,
    },
    /// The attempt may start.
    Dispatched(TaskId),
    /// The progress is kept.
    Progressed(TaskId),
    /// The task has ended, with the outcome of its record.
    Ended(TaskId),
    /// The result is gone.
    Trimmed(TaskId),
    /// All of it is gone.
    Forgotten(TaskId),
}

/// Why an entry had no effect. It stays in the log all the same, and is refused by every keeper alike.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[non_exhaustive]
pub enum KeptError {
    /// An owner that is one no longer.
    #[error(transparent)]
    Stale(#[from] StaleEpoch),
    /// The same request under the same key was accepted before, perhaps by another node. From now on that task cannot be
    /// withdrawn: somebody has been told of it.
    #[error("task {0} asks for the same under the same key: wait for that one")]
    Same(TaskId),
    /// It is too late to withdraw the task: who asked for the same has been told of it.
    #[error("task {0} was acknowledged at another node: it runs")]
    Joined(TaskId),
    /// Another request came under a key that is taken.
    #[error(transparent)]
    KeyReused(#[from] KeyReused),
    /// Not from this node.
    #[error(
        "the keepers do not take `{0}` from this node: it may not call it, or is no keeper and takes over no task of another"
    )]
    Denied(Arc<str>),
    /// There is no such task, or it was forgotten.
    #[error("task {0} is not known to the keepers: submit it again")]
    Unknown(TaskId),
    /// The task has ended before. This is how.
    #[error("task {task} has ended: fetch its result")]
    Ended {
        /// The task.
        task: TaskId,
        /// The recorded outcome, while it is known.
        outcome: Option<Box<Outcome>>,
    },
    /// The keepers have no room for more.
    #[error(transparent)]
    Limit(#[from] LimitReached),
}
