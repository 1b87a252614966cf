use super::{Outcome, Record};
use karman_types::{NodeId, Scalar, TaskError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// An input of the machine: what happened.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Event {
    /// An attempt has ended: the reply to [`Action::Start`], and to an [`Action::Stop`] that came too late. Every attempt that was
    /// started is answered, [`Event::Garbled`] or [`Event::Stopped`]; whatever runs tasks ends each of them.
    Answered {
        /// The one of the call.
        attempt: AttemptId,
        /// The output, or how it failed.
        result: Result<Value, TaskError>,
    },
    /// An attempt has ended, and what it answered cannot be read: whatever it did is there.
    Garbled {
        /// The one of the call.
        attempt: AttemptId,
        /// What is wrong with the answer.
        error: TaskError,
    },
    /// The reply to [`Action::Stop`]: the attempt runs no longer, or nobody knows of it. It may have had its effect.
    Stopped {
        /// The one of the action.
        attempt: AttemptId,
    },
    /// The node on which an attempt ran was chosen by a policy. Said before how the attempt has ended, so that both are written down at once.
    Placed {
        /// The one of the call.
        attempt: AttemptId,
        /// The node that was chosen; nothing where the policy left it to others.
        node: Option<NodeId>,
        /// Why, in plain words.
        why: String,
    },
    /// What [`Action::Save`] asked for is durable.
    Saved {
        /// The one of the action.
        ticket: Ticket,
    },
    /// It is not, or nobody knows. The machine asks again after a pause.
    Unsaved {
        /// The one of the action.
        ticket: Ticket,
    },
    /// It is longer than whoever keeps it takes, now or later. The run fails, and asks for less to be saved.
    TooLong {
        /// The one of the action.
        ticket: Ticket,
        /// What it fails with.
        error: TaskError,
    },
    /// Somebody withdraws the run. What has had an effect is undone.
    Cancel,
    /// The time is over that its coordinator has for it, whatever the workflow says. What has had an effect is undone.
    Outlived {
        /// What it fails with.
        error: TaskError,
    },
    /// [`super::Machine::next_timeout`] has come.
    Tick,
}

/// An output of the machine: what the coordinator is to do, in this order.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Action {
    /// Make this record durable in the place of the one before, and say [`Event::Saved`] or [`Event::Unsaved`]. There is one such
    /// write at a time.
    Save {
        /// To name it.
        ticket: Ticket,
        /// What a coordinator carries on from.
        record: Box<Record>,
    },
    /// Run this, and say [`Event::Answered`].
    Start {
        /// What.
        call: Box<Call>,
    },
    /// Stop an attempt, and say [`Event::Stopped`], or [`Event::Answered`] if it has ended by itself.
    Stop {
        /// The attempt.
        attempt: AttemptId,
        /// The key that it was started under.
        key: Arc<str>,
    },
    /// The run has ended, and that is durable, unless it [is unkept](super::Machine::is_unkept).
    End {
        /// How.
        outcome: Outcome,
    },
}

/// Names one write.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Ticket(pub(super) u64);

/// One run of a task of the workflow: the task itself, one item of its list, or what undoes one of these.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct RunId {
    /// The task, by its place in [`karman_types::Workflow::tasks`].
    pub task: usize,
    /// The item of the list that it fans out over; 0 where it does not.
    pub item: usize,
    /// Whether this undoes the run.
    pub undo: bool,
}

/// One attempt at a run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct AttemptId {
    /// The run.
    pub of: RunId,
    /// 1 at the first attempt. A coordinator that carries on asks for the same attempt again.
    pub number: u32,
}

/// A call that is to run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Call {
    /// To name it in the answer.
    pub attempt: AttemptId,
    /// The name by which providers are found.
    pub run: Arc<str>,
    /// The same for every attempt at one run, and for no other run: an effect is applied once for it. An attempt that is known
    /// under its number is not run again, but answered with how it ended.
    pub key: Arc<str>,
    /// The input.
    pub input: Value,
    /// The constants that the workflow gives it.
    pub with: BTreeMap<String, Scalar>,
    /// How long it may take: until its timeout, or the end of the workflow's time.
    pub within: Option<Duration>,
}
