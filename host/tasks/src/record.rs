use crate::UnixMs;
use karman_types::{Digest, NodeId, TaskError, TaskId, TaskRequest, TaskResponse};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The durability that the caller is promised.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Guarantee {
    /// Held by its waiting caller: nothing is written, and it ends with the node or the caller.
    Direct,
    /// Acknowledged once it is on this node's disk: survives a crash and a power cut, not a lost disk.
    Local,
    /// Acknowledged once it is on a majority of three keepers: survives the loss of its owner.
    Kept,
}

/// Which ownership of a task: 1 for the node that accepted it, one more for each node that took it over. An effect of an older
/// epoch is refused.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// That of the node which accepted the task.
    pub const FIRST: Self = Self(1);

    /// That of the next owner.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An effect of an owner that is one no longer.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[error(
    "task {task} is owned with epoch {current}, and epoch {given} is over: give it up, another node owns it"
)]
pub struct StaleEpoch {
    /// The task.
    pub task: TaskId,
    /// The epoch of the effect.
    pub given: Epoch,
    /// The newest epoch that is known.
    pub current: Epoch,
}

/// A task as its caller submits it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Submission {
    /// What is to run: the name by which the node finds providers.
    pub name: Arc<str>,
    /// The input.
    pub request: TaskRequest,
    /// What is promised.
    pub guarantee: Guarantee,
    /// Equal for submissions that ask for the same effect. All callers of a node share its keys, and all of a mesh those of kept tasks.
    pub key: Option<Arc<str>>,
    /// What the homes of buckets know it by, where that is not the key: of all tasks with the same one effect is applied. For
    /// another try at what may have had its effect already.
    pub effect: Option<Arc<str>>,
    /// The time that is left.
    pub within: Option<Duration>,
    /// The absolute moment after which it must not start.
    pub expires: Option<UnixMs>,
    /// A second attempt starts elsewhere when the first has not answered in this time. For tasks that may run twice at once.
    pub hedge_after: Option<Duration>,
    /// A local task stays on this node's disk when it is drained: others go on only with what is here, as its progress is.
    pub stays: bool,
}

impl Submission {
    /// Whether it is part of another task, which goes on with its result: a task of a workflow is.
    pub(crate) const fn is_part(&self) -> bool {
        self.stays && self.effect.is_some()
    }

    /// A direct task without key, deadline or hedge.
    pub fn new(name: impl Into<Arc<str>>, request: TaskRequest) -> Self {
        Self {
            name: name.into(),
            request,
            guarantee: Guarantee::Direct,
            key: None,
            effect: None,
            within: None,
            expires: None,
            hedge_after: None,
            stays: false,
        }
    }

    /// The digest of what is asked for: two submissions under one key are the same if this is. How long the caller would wait
    /// is no part of it.
    pub fn fingerprint(&self) -> Digest {
        fingerprint(&self.name, self.guarantee, &self.request)
    }
}

pub(crate) fn fingerprint(name: &str, guarantee: Guarantee, request: &TaskRequest) -> Digest {
    let TaskRequest {
        content_type,
        metadata,
        body,
    } = request;
    let texts = metadata.iter().flat_map(|(name, value)| [name, value]);
    let texts = [name, content_type].into_iter().chain(texts.map(String::as_str));
    // Each part after its length, so that no two lists of parts have the same bytes.
    let mut bytes = vec![guarantee as u8];
    for text in texts {
        bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes.extend_from_slice(Digest::of(body).as_bytes());
    Digest::of(&bytes)
}

/// The outcome of a task.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Outcome {
    /// With an answer.
    Done(TaskResponse),
    /// With an error of the task, or of every attempt.
    Failed(TaskError),
    /// Its time was over. An attempt that ran was told to stop, and an effect that was on its way may have been applied.
    Expired,
    /// It was withdrawn. The same holds for what was on its way.
    Cancelled,
}

impl Outcome {
    /// Bytes of the answer, its header included, or else of what the error says.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Done(response) => length(response),
            Self::Failed(error) => (error.message.len() + error.hint.as_ref().map_or(0, String::len)) as u64,
            Self::Expired | Self::Cancelled => 0,
        }
    }

    /// The answer to a waiting caller.
    ///
    /// # Errors
    /// When the task did not end with a response.
    pub fn into_result(self) -> Result<TaskResponse, TaskError> {
        match self {
            Self::Done(response) => Ok(response),
            Self::Failed(error) => Err(error),
            Self::Expired => Err(TaskError::deadline("the time of the task is over")
                .with_hint("submit it again with more time")),
            Self::Cancelled => Err(TaskError::cancelled("the task was withdrawn")
                .with_hint("submit it again if it is wanted after all")),
        }
    }
}

/// Bytes of a response, its header included.
pub(crate) fn length(response: &TaskResponse) -> u64 {
    let texts = response.metadata.iter().flat_map(|(name, value)| [name, value]);
    let header: usize = texts.map(String::len).sum();
    (response.content_type.len() + header + response.body.len()) as u64
}

/// When an accepted task must not start any more, as it is written down. Default: never.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Due {
    /// At this moment.
    pub at: Option<UnixMs>,
    /// The clock was not trusted when the time left was given: it is over at this moment or later. When the clock becomes trusted,
    /// `at` takes its place; if the node restarts before that, the task counts as due here, because it may not run late.
    pub no_earlier_than: Option<UnixMs>,
}

impl Due {
    /// The moment to judge by, with or without the time left in this run of the node.
    pub(crate) fn moment(&self, time_left_known: bool) -> Option<UnixMs> {
        let estimate = self.no_earlier_than.filter(|_| !time_left_known);
        [self.at, estimate].into_iter().flatten().min()
    }
}

/// An accepted task, as it is written down: by its owner (`Local`), or by the keepers (`Kept`). A later one of the same task
/// replaces the earlier.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct TaskRecord {
    /// The task.
    pub task: TaskId,
    /// What runs.
    pub name: Arc<str>,
    /// What is promised.
    pub guarantee: Guarantee,
    /// The caller's idempotency key.
    pub key: Option<Arc<str>>,
    /// [`Submission::effect`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Arc<str>>,
    /// [`Submission::fingerprint`].
    pub fingerprint: Digest,
    /// The ownership.
    pub epoch: Epoch,
    /// The node whose buckets the task reads and writes, whichever node owns it: the one that accepted it. Only for kept tasks; those of
    /// a local task are its owner's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<NodeId>,
    /// Attempts so far, as far as they are written down: only for kept tasks.
    pub attempts: u32,
    /// When the owner wrote this, if it could tell: time is no earlier than that.
    pub written: Option<UnixMs>,
    /// When it must not start any more.
    pub due: Due,
    /// When a second attempt starts beside the first.
    pub hedge_after: Option<Duration>,
    /// [`Submission::stays`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays: bool,
    /// How far it is.
    pub state: Saved,
}

/// The state of a task, as it is stored.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Saved {
    /// It has not ended.
    Open(TaskRequest),
    /// It is being handed over to this node, which may own it already. This node never runs it, unless the other refuses it.
    Moving {
        /// The node.
        to: NodeId,
        /// The input.
        request: TaskRequest,
    },
    /// Another node owns it.
    Moved {
        /// The node.
        to: NodeId,
        /// When that was, if it could be told.
        at: Option<UnixMs>,
    },
    /// It has ended, and the result waits to be fetched.
    Ended {
        /// How.
        outcome: Outcome,
        /// When, if it could be told.
        at: Option<UnixMs>,
    },
    /// The result was fetched, nobody came for it in time, or newer ones needed its room; the key is still known.
    Forgotten {
        /// When it ended, if it could be told.
        at: Option<UnixMs>,
    },
}

impl TaskRecord {
    /// What the homes of buckets know the task by: what the submitter said, its idempotency key, or else its id.
    pub fn effect_key(&self) -> Arc<str> {
        self.effect.clone().unwrap_or_else(|| self.own_key())
    }

    /// What a repetition comes under: its idempotency key, or else its id.
    pub(crate) fn own_key(&self) -> Arc<str> {
        self.key.clone().unwrap_or_else(|| self.task.to_string().into())
    }

    /// How it ended, while that is known.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.state {
            Saved::Ended { outcome, .. } => Some(outcome),
            _ => None,
        }
    }

    pub(crate) fn request(&self) -> Option<&TaskRequest> {
        match &self.state {
            Saved::Open(request) | Saved::Moving { request, .. } => Some(request),
            _ => None,
        }
    }

    /// Whether it is part of another task: see [`Submission`].
    pub const fn is_part(&self) -> bool {
        self.stays && self.effect.is_some()
    }

    /// Bytes of the result that waits to be fetched.
    pub(crate) fn result_bytes(&self) -> u64 {
        self.outcome().map_or(0, Outcome::bytes)
    }

    /// Bytes of its input, or else of its result, as keepers of all versions count them: without the head.
    pub fn weight(&self) -> u64 {
        match &self.state {
            Saved::Ended {
                outcome: Outcome::Done(response),
                ..
            } => response.body.len() as u64,
            _ => self.request().map_or(0, |request| request.body.len() as u64),
        }
    }

    /// Bytes of the request that it still holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.request().map_or(0, request_bytes)
    }
}

/// Bytes of a request, its head included.
pub(crate) fn request_bytes(request: &TaskRequest) -> u64 {
    (request.head_bytes() + request.body.len()) as u64
}

/// One write to the node's table of tasks.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Write {
    /// Puts this record in the place of an earlier one of the same task.
    Put(Box<TaskRecord>),
    /// Deletes the record of this task.
    Delete(TaskId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_tells_requests_apart() {
        let request = |metadata: &[(&str, &str)]| TaskRequest {
            metadata: metadata.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect(),
            ..TaskRequest::default()
        };
        let one = Submission::new("classify", request(&[("a", "bc")]));
        let other = Submission::new("classify", request(&[("ab", "c")]));
        let longer = Submission {
            within: Some(Duration::from_secs(1)),
            ..one.clone()
        };
        assert_ne!(one.fingerprint(), other.fingerprint());
        assert_eq!(one.fingerprint(), longer.fingerprint());
    }
}
