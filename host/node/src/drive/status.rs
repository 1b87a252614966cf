//! How far an accepted task is, in the words of its operator.

use super::flow;
use karman_tasks::{Guarantee, Kept, Outcome, Saved, Status, TaskRecord};
use karman_types::{NodeId, TaskError, TaskId};
use serde::{Deserialize, Serialize};

/// An accepted task as the operator sees it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct TaskStatus {
    /// Its id.
    pub task: TaskId,
    /// What runs.
    pub name: String,
    /// What was promised.
    pub guarantee: Guarantee,
    /// How far it is.
    pub state: TaskState,
    /// Where it runs, or who has it now; its owner, where that is another node than the one that is asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeId>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TaskError>,
    /// Why it waits, where it does: what kept it from running last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The state of an accepted task.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskState {
    /// On its way to the disk.
    Saving,
    /// Held: since a restart nobody can tell whether its time is over.
    DeadlineUnknown,
    /// Waits for a node that can run it.
    Waiting,
    /// Runs.
    Running,
    /// Has run; its effects or its outcome are on the way to the disk.
    Ending,
    /// Ended with a response.
    Done,
    /// Ended with an error.
    Failed,
    /// Ended because its time was over.
    Expired,
    /// Withdrawn.
    Cancelled,
    /// Ended, and its result is gone.
    Forgotten,
    /// Handed over to another node.
    Moved,
}

impl TaskState {
    /// Whether more may come of the task at this node.
    pub(super) const fn is_open(self) -> bool {
        matches!(
            self,
            Self::Saving | Self::DeadlineUnknown | Self::Waiting | Self::Running | Self::Ending
        )
    }
}

impl TaskStatus {
    /// A task as the keepers know it: it runs once an attempt was started, wherever that is now.
    pub(super) fn of_kept(Kept { owner, record, .. }: &Kept) -> Self {
        let status = match &record.state {
            Saved::Ended { outcome, .. } => Status::Ended(outcome),
            Saved::Forgotten { .. } => Status::Forgotten,
            Saved::Moved { to, .. } | Saved::Moving { to, .. } => Status::Moved(*to),
            Saved::Open(_) if record.attempts > 0 => Status::Running(vec![*owner]),
            Saved::Open(_) => Status::Waiting,
        };
        let mut status = Self::of(record, status);
        if status.state == TaskState::Running {
            status.nodes = vec![*owner];
        }
        status
    }

    pub(super) fn of(record: &TaskRecord, status: Status<'_>) -> Self {
        let (state, nodes, error) = match status {
            Status::Saving => (TaskState::Saving, Vec::new(), None),
            Status::DeadlineUnknown => (TaskState::DeadlineUnknown, Vec::new(), None),
            Status::Waiting => (TaskState::Waiting, Vec::new(), None),
            // What coordinates a workflow is this node, under another name.
            Status::Running(_) if flow::is_one(&record.name) => (TaskState::Running, Vec::new(), None),
            Status::Running(nodes) => (TaskState::Running, nodes, None),
            Status::Ending => (TaskState::Ending, Vec::new(), None),
            Status::Ended(Outcome::Done(_)) => (TaskState::Done, Vec::new(), None),
            Status::Ended(Outcome::Failed(error)) => (TaskState::Failed, Vec::new(), Some(error.clone())),
            Status::Ended(Outcome::Expired) => (TaskState::Expired, Vec::new(), None),
            Status::Ended(Outcome::Cancelled) => (TaskState::Cancelled, Vec::new(), None),
            Status::Forgotten => (TaskState::Forgotten, Vec::new(), None),
            Status::Moved(to) => (TaskState::Moved, vec![to], None),
        };
        Self {
            task: record.task,
            name: record.name.to_string(),
            guarantee: record.guarantee,
            state,
            nodes,
            error,
            why: None,
        }
    }
}
