use crate::{
    Answer, AttemptId, Commit, CommitError, Effect, Entry, Epoch, KeptError, KeyReused, LimitReached,
    Reading, Submission, TaskRecord, Verdict, Write,
};
use karman_types::{Digest, ErrorKind, NodeId, TaskError, TaskId, TaskRequest, TaskResponse};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// An input of the machine: what happened.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Event {
    /// A caller hands in a task. `asked` is a new id, which the replies carry.
    ///
    /// Answered by [`Action::Acknowledge`] (accepted), [`Action::Answer`] (direct) or [`Action::Refuse`].
    Submit {
        /// The id of the task, unless it turns out to be a repetition.
        asked: TaskId,
        /// What is asked for.
        submission: Box<Submission>,
        /// [`Submission::fingerprint`].
        fingerprint: Digest,
    },
    /// A caller withdraws what it asked for. A direct task ends when its last caller has gone, an accepted one at once.
    Cancel {
        /// The id it was submitted with.
        asked: TaskId,
    },
    /// The result of an accepted task has reached who asked for it, and may be forgotten.
    Fetched {
        /// The task.
        task: TaskId,
    },
    /// The reply to [`Action::Place`]: nodes that could run the task now, the best first; none where there are none.
    Offered {
        /// The task.
        task: TaskId,
        /// The nodes.
        providers: Vec<NodeId>,
    },
    /// Providers, links or contacts have changed for the better: whatever waits tries again at once, or the oldest
    /// first where that is much.
    ProvidersChanged,
    /// An attempt has answered.
    Answered {
        /// The attempt.
        attempt: AttemptId,
        /// Its answer.
        answer: Result<Box<Answer>, TaskError>,
    },
    /// The connection to an attempt was lost.
    AttemptLost {
        /// The attempt.
        attempt: AttemptId,
    },
    /// An attempt has ended for want of something that is neither the task's fault nor its provider's: the node whose buckets it
    /// works on is out of reach, there is no room for what it would send, or it was called back. It does not count: the task is
    /// tried again after a pause.
    Excused {
        /// The attempt.
        attempt: AttemptId,
    },
    /// An attempt found no place at its provider, and did not run. It does not count: the task is tried again after a pause, at
    /// another provider if there is one.
    Crowded {
        /// The attempt.
        attempt: AttemptId,
    },
    /// A node is gone, with every attempt there.
    ProviderLost {
        /// The node.
        provider: NodeId,
    },
    /// The reply to [`Action::Commit`].
    Committed {
        /// The attempt.
        attempt: AttemptId,
        /// What became of it.
        verdict: Result<Verdict, CommitError>,
    },
    /// No reply to [`Action::Commit`]: nobody knows whether it was applied.
    CommitLost {
        /// The attempt.
        attempt: AttemptId,
    },
    /// What [`Action::Persist`] asked for is on the disk (fsynced), or what [`Action::Propose`] asked for is committed by a
    /// majority of the keepers and applied. Only now the machine acts on it.
    Saved {
        /// The one of the action.
        ticket: Ticket,
    },
    /// It is not, or nobody knows.
    Unsaved {
        /// The one of the action.
        ticket: Ticket,
        /// Why.
        error: SaveError,
    },
    /// A keeper's replica has applied an entry of anybody.
    Kept(Effect),
    /// Kept tasks without an owner that is alive: [`crate::KeptState::owned_by`] a lost node, or this one after a restart.
    Orphaned(Vec<TaskRecord>),
    /// Which keepers there are.
    Keepers {
        /// How many belong to the mesh.
        total: u32,
        /// Whether a majority of them can be reached.
        majority: bool,
    },
    /// The wall clock was read, set, or became trusted.
    Clock(Reading),
    /// The node is to stop: finish what runs, take nothing new, hand over what waits. [`Action::Drained`] says when.
    Drain {
        /// Nodes that take over, in turn.
        heirs: Vec<NodeId>,
        /// The keepers. Of the heirs only these may own a kept task of another node; one that none of them takes stays with the
        /// keepers, which take it over when this node is gone.
        keepers: Vec<NodeId>,
    },
    /// Another node hands an accepted task over to this one. Answered by [`Action::Acknowledge`] or [`Action::Refuse`], both with
    /// the id of the task as `asked`.
    Receive(Box<Handover>),
    /// The reply to [`Action::HandOver`]: the heir has acknowledged the task.
    HandedOver {
        /// The task.
        task: TaskId,
    },
    /// The other reply to [`Action::HandOver`].
    HandOverFailed {
        /// The task.
        task: TaskId,
        /// Whether the heir has refused it. If not, nobody knows whether it has it.
        refused: bool,
    },
    /// [`crate::Machine::next_timeout`] has come.
    Tick,
}

impl Event {
    /// [`Event::Submit`]. It hashes the input: of a long one that takes time, which nobody who shares a machine has to wait for.
    pub fn submit(asked: TaskId, submission: Submission) -> Self {
        Self::Submit {
            asked,
            fingerprint: submission.fingerprint(),
            submission: Box::new(submission),
        }
    }
}

/// An output of the machine: what the node is to do, in this order.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Action {
    /// Write this down and fsync it, then say [`Event::Saved`]; writes keep their order, and one fsync may serve many.
    Persist {
        /// To name it.
        ticket: Ticket,
        /// What to write.
        write: Write,
    },
    /// Propose this entry to the keepers, and say [`Event::Saved`] or [`Event::Unsaved`].
    Propose {
        /// To name it.
        ticket: Ticket,
        /// What to propose.
        entry: Entry,
    },
    /// Tell the caller that its task is accepted: it is durable.
    Acknowledge {
        /// What the caller submitted.
        asked: TaskId,
        /// The task: another one, if the same was accepted under the same key before.
        task: TaskId,
    },
    /// Tell the caller that its task is not accepted.
    Refuse {
        /// What the caller submitted.
        asked: TaskId,
        /// Why.
        error: SubmitError,
    },
    /// Tell the waiting caller of a direct task how it ended.
    Answer {
        /// What the caller submitted.
        asked: TaskId,
        /// The result.
        result: Result<TaskResponse, TaskError>,
    },
    /// An accepted task has ended, and its outcome is durable: callers that wait for it may have it.
    Ended {
        /// The task.
        task: TaskId,
    },
    /// The result of this task is forgotten before its time: there are too many bytes of newer ones.
    Displaced {
        /// The task.
        task: TaskId,
    },
    /// A newer owner has this task; ask the keepers which.
    Disowned {
        /// The task.
        task: TaskId,
    },
    /// Find nodes that could run this, and say [`Event::Offered`].
    Place {
        /// The task.
        task: TaskId,
        /// What is to run.
        name: Arc<str>,
        /// Nodes that run it or failed it: others are preferred, these are better than none.
        avoid: Vec<NodeId>,
    },
    /// Start an attempt, and say [`Event::Answered`] or [`Event::AttemptLost`].
    Start {
        /// Where.
        provider: NodeId,
        /// What.
        call: Box<Call>,
    },
    /// Stop an attempt: nobody waits for its answer.
    Stop {
        /// Where.
        provider: NodeId,
        /// The attempt.
        attempt: AttemptId,
    },
    /// Bring this batch to its home, and say [`Event::Committed`] or [`Event::CommitLost`].
    Commit(Box<Commit>),
    /// Hand this task over, and say [`Event::HandedOver`] or [`Event::HandOverFailed`]. One request on one stream: the heir may not
    /// get it twice, and has refused it only if it answered this very request.
    HandOver {
        /// The heir.
        to: NodeId,
        /// The task.
        handover: Box<Handover>,
    },
    /// After [`Event::Drain`]: nothing runs any more, and whatever could be handed over is.
    Drained,
}

/// Names one write. Comes from the machine only, so that nothing can be said to be durable that the machine did not ask for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Ticket(pub(crate) u64);

/// One attempt, as the provider gets it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Call {
    /// The attempt.
    pub attempt: AttemptId,
    /// The ownership: a provider refuses an older one than it has seen.
    pub epoch: Epoch,
    /// What runs.
    pub name: Arc<str>,
    /// The input.
    pub request: TaskRequest,
    /// [`TaskRecord::effect_key`]: equal for calls that ask for the same effect.
    pub key: Arc<str>,
    /// [`TaskRecord::home`]; nothing where it is the owner.
    pub home: Option<NodeId>,
    /// The time that is left.
    pub within: Option<Duration>,
}

/// An accepted task on its way to its next owner.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Handover {
    /// The task, with the epoch of the next owner.
    pub record: TaskRecord,
    /// The time that is left, where it is known. It counts if the record has no absolute expiry.
    pub within: Option<Duration>,
}

/// Why a write did not become durable.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// The disk failed. The write may still be there after a restart.
    #[error("the disk failed: {0}")]
    Disk(String),
    /// No majority of the keepers has answered. The entry may still be committed.
    #[error("no majority of the keepers answers: try again when the link is back")]
    NoMajority,
    /// The entry is committed, and has no effect.
    #[error(transparent)]
    Refused(#[from] KeptError),
}

/// Why a task is not accepted.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// A limit of this node or of the keepers.
    #[error(transparent)]
    Limit(#[from] LimitReached),
    /// Another request came under a key that is taken.
    #[error(transparent)]
    KeyReused(#[from] KeyReused),
    /// A part of it is longer than any node takes.
    #[error("`{field}` of an accepted task may have {most} bytes at most, and this has {bytes}")]
    TooLong {
        /// Which: `key` or `metadata`.
        field: String,
        /// Its bytes.
        bytes: u64,
        /// How many it may have.
        most: u64,
    },
    /// Its time was over when it came.
    #[error("the time of the task is over: submit it again with more time")]
    Expired,
    /// This node is about to stop.
    #[error("this node is draining: submit the task to another one")]
    Draining,
    /// A kept task needs three keepers.
    #[error("a kept task needs three keepers, and this node knows of {have}")]
    TooFewKeepers {
        /// How many there are.
        have: u32,
    },
    /// It could not be made durable. It may run all the same, but was not accepted: with the same key, a repetition is safe.
    #[error("the task could not be made durable: {0}")]
    NotDurable(SaveError),
    /// What another node hands over is not a task that it could have accepted.
    #[error("only a task that was accepted and has not ended can be handed over")]
    NoHandover,
    /// Another node owns the task already.
    #[error("the task has another owner: ask the keepers which")]
    Owned,
}

impl From<SubmitError> for TaskError {
    fn from(error: SubmitError) -> Self {
        let kind = match &error {
            SubmitError::Limit(_) | SubmitError::TooLong { .. } => ErrorKind::Limit,
            SubmitError::KeyReused(_) | SubmitError::NoHandover => ErrorKind::Invalid,
            SubmitError::Expired => ErrorKind::Deadline,
            SubmitError::Draining
            | SubmitError::TooFewKeepers { .. }
            | SubmitError::NotDurable(_)
            | SubmitError::Owned => ErrorKind::Unavailable,
        };
        let mut refused = Self::new(kind, error.to_string());
        let field = match &error {
            SubmitError::Limit(reached) => Some(&*reached.name),
            SubmitError::TooLong { field, .. } => Some(&**field),
            _ => None,
        };
        if let Some(field) = field {
            refused = refused.with_field(field);
        }
        match error {
            SubmitError::TooFewKeepers { .. } => refused.with_hint(
                "`karman mesh keepers NODE NODE NODE`, where the mesh was made, names them; `--accept local` needs none",
            ),
            _ => refused,
        }
    }
}
