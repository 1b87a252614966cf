//! How far a run of a workflow is, in the words of its operator.

use super::FLOW;
use super::lifetime::expired;
use super::progress::Progress;
use crate::drive::status::{TaskState, TaskStatus};
use karman_sched::flow::{NotUndone, Outcome, Phase, Record, RunState, StepState, What};
use karman_tasks::Guarantee;
use karman_types::{NodeId, TaskError, TaskId, Workflow};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;

/// A run of a workflow as its operator sees it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FlowStatus {
    /// Its id.
    pub flow: TaskId,
    /// The workflow.
    pub name: String,
    /// What was promised.
    pub promise: Guarantee,
    /// How far it is.
    pub state: FlowState,
    /// How far each of its tasks is; none before it has begun.
    pub steps: Vec<StepStatus>,
    /// What came out of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Why it failed, or is being undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TaskError>,
    /// The task that it failed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// What is being undone now, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoing: Option<UndoStatus>,
    /// Effects that are still there although it failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_undone: Vec<NotUndone>,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowState {
    /// Nobody coordinates it yet.
    Waiting,
    /// Its tasks run.
    Running,
    /// It has failed, and what it did is being undone.
    Undoing,
    /// It has ended with an output.
    Done,
    /// It has failed, and what could be undone is.
    Failed,
    /// It was withdrawn, and what could be undone is.
    Cancelled,
    /// It has ended, and its result is gone.
    Forgotten,
}

impl FlowState {
    /// Whether nothing of it runs any more.
    pub const fn has_ended(self) -> bool {
        matches!(
            self,
            Self::Done | Self::Failed | Self::Cancelled | Self::Forgotten
        )
    }
}

/// The status of one task of a run.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct StepStatus {
    /// The task.
    pub task: String,
    /// `waiting`, also for a node that runs it, `skipped`, `running`, `done` or `failed`.
    pub state: String,
    /// How many runs it has: one, or one for each item of its list.
    pub runs: usize,
    /// How many of them have ended well.
    pub done: usize,
    /// How many of them were undone.
    pub undone: usize,
    /// The most attempts that one of them took.
    pub attempts: u32,
    /// Why one of them failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TaskError>,
    /// The node that a policy has last placed one of them on that ended; nothing where it left that to others, or none does that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Why there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What one of them waits for that has not begun, where the node that is asked has accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

/// How far the undoing of one effect is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct UndoStatus {
    /// The task whose effect it is.
    pub task: String,
    /// The item of its list; 0 where it has none.
    pub item: usize,
    /// What undoes it.
    pub by: String,
    /// The attempt at that, 1 at the first.
    pub attempt: u32,
    /// What it waits for, where it has not begun and the node that is asked has accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

impl UndoStatus {
    fn of(workflow: &Workflow, record: &Record) -> Option<Self> {
        let (of, undoing) = record.being_undone()?;
        let task = workflow.tasks().get(of.task)?;
        Some(Self {
            task: task.name.clone(),
            item: of.item,
            by: task.undo.clone()?,
            attempt: undoing.attempt,
            waits: None,
        })
    }
}

impl fmt::Display for UndoStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            task, by, attempt, ..
        } = self;
        match &self.waits {
            None => write!(f, "`{by}` undoes `{task}`, attempt {attempt}"),
            Some(why) => write!(
                f,
                "`{by}` is to undo `{task}`, attempt {attempt}, and waits: {why}"
            ),
        }
    }
}

impl FlowStatus {
    pub(super) fn of(task: &TaskStatus, progress: Option<Progress>) -> Self {
        let name = task.name.strip_prefix(FLOW).unwrap_or(&task.name);
        let mut status = Self {
            flow: task.task,
            name: name.into(),
            promise: task.guarantee,
            state: state_of(task.state),
            steps: Vec::new(),
            output: None,
            error: task.error.clone(),
            failed: None,
            undoing: None,
            not_undone: Vec::new(),
        };
        if let Some(Progress { workflow, record, .. }) = progress {
            status.steps = steps(&workflow, &record);
            status.take(&record.phase);
            if status.state == FlowState::Undoing {
                status.undoing = UndoStatus::of(&workflow, &record);
            }
            if task.state == TaskState::Expired {
                status.not_undone = out_of_time(&workflow, &record);
            }
        }
        if task.state == TaskState::Expired && status.error.is_none() {
            status.error = Some(expired());
        }
        status
    }

    /// The progress knows more than the task that the run is; but the end of that is the end.
    fn take(&mut self, phase: &Phase) {
        match phase {
            Phase::Undoing(undoing) => {
                if !self.state.has_ended() {
                    self.state = FlowState::Undoing;
                    self.not_undone.clone_from(&undoing.not_undone);
                }
                // If it has ended all the same, nobody had the time to bring it to its end.
                if self.error.is_none() {
                    self.error = Some(undoing.why.error.clone());
                    self.failed.clone_from(&undoing.why.task);
                }
            }
            Phase::Ended(Outcome::Done(output)) if self.state == FlowState::Done => {
                self.output = Some(output.clone());
            }
            Phase::Ended(Outcome::Failed { why, not_undone }) if self.state.has_ended() => {
                self.error = Some(why.error.clone());
                self.failed.clone_from(&why.task);
                self.not_undone.clone_from(not_undone);
                if why.error.kind == karman_types::ErrorKind::Cancelled {
                    self.state = FlowState::Cancelled;
                }
            }
            _ => {}
        }
    }
}

const fn state_of(task: TaskState) -> FlowState {
    match task {
        TaskState::Saving | TaskState::Waiting | TaskState::DeadlineUnknown => FlowState::Waiting,
        TaskState::Running | TaskState::Ending | TaskState::Moved => FlowState::Running,
        TaskState::Done => FlowState::Done,
        TaskState::Failed | TaskState::Expired => FlowState::Failed,
        TaskState::Cancelled => FlowState::Cancelled,
        TaskState::Forgotten => FlowState::Forgotten,
    }
}

/// The effects of a run that are still there, or may be, because its time was over.
fn out_of_time(workflow: &Workflow, record: &Record) -> Vec<NotUndone> {
    let known: &[NotUndone] = match &record.phase {
        Phase::Running => &[],
        Phase::Undoing(undoing) => &undoing.not_undone,
        Phase::Ended(Outcome::Failed { not_undone, .. }) => not_undone,
        Phase::Ended(Outcome::Done(_)) => &[],
    };
    let to_undo = record.to_undo(workflow);
    let left = to_undo.into_iter().filter_map(|of| {
        Some(NotUndone {
            task: workflow.tasks().get(of.task)?.name.clone(),
            item: of.item,
            error: expired(),
        })
    });
    known.iter().cloned().chain(left).collect()
}

fn steps(workflow: &Workflow, record: &Record) -> Vec<StepStatus> {
    let (placed, undone) = (placed(record), record.undone(workflow));
    let of = |(place, (task, step)): (usize, (&karman_types::FlowTask, &karman_sched::flow::Step))| {
        let error = step.runs.iter().find_map(|run| match &run.state {
            RunState::Failed(error) | RunState::Stopping(error) => Some(error.clone()),
            _ => None,
        });
        let failed = step
            .runs
            .iter()
            .any(|run| matches!(run.state, RunState::Failed(_)));
        let state = match step.state {
            _ if failed => "failed",
            StepState::Waiting => "waiting",
            StepState::Skipped => "skipped",
            StepState::Running => "running",
            StepState::Done => "done",
        };
        let done = step
            .runs
            .iter()
            .filter(|run| matches!(run.state, RunState::Done(_)));
        StepStatus {
            task: task.name.clone(),
            state: state.into(),
            runs: step.runs.len(),
            done: done.count(),
            undone: undone.iter().filter(|of| of.task == place).count(),
            attempts: step.runs.iter().map(|run| run.attempt).max().unwrap_or(0),
            error,
            node: placed.get(&place).and_then(|(node, _)| *node),
            why: placed.get(&place).map(|(_, why)| why.clone()),
            waits: None,
        }
    };
    let steps = workflow.tasks().iter().zip(&record.steps);
    steps.enumerate().map(of).collect()
}

/// Where each task was last placed, and why.
fn placed(record: &Record) -> HashMap<usize, (Option<NodeId>, String)> {
    let changes = record.history.after(0).map(|(_, change)| &change.what);
    let placed = changes.filter_map(|what| match what {
        What::Placed { task, node, why, .. } => Some((*task, (*node, why.clone()))),
        _ => None,
    });
    placed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_sched::flow::{Failure, Machine, Run, RunId, Undoing};
    use std::sync::Arc;
    use std::time::Duration;

    const RUN: TaskId = TaskId::from_parts(0, 7);

    /// A run whose first task is done and whose second one runs.
    fn halfway() -> Progress {
        let text = "name = 'f'\n[task.a]\nundo = 'un-a'\n[task.b]\nafter = ['a']";
        let workflow = Arc::new(Workflow::from_toml(text).unwrap());
        let machine = Machine::new(RUN, workflow.clone(), Value::Null, Duration::ZERO);
        let mut record = machine.record().clone();
        let run = |state| Run {
            attempt: 1,
            doubtful: false,
            state,
        };
        record.steps[0].state = StepState::Done;
        record.steps[0].runs = vec![run(RunState::Done(Value::Null))];
        record.steps[1].state = StepState::Running;
        record.steps[1].runs = vec![run(RunState::Running)];
        record.effects = vec![RunId {
            task: 0,
            item: 0,
            undo: false,
        }];
        Progress {
            workflow,
            record,
            begun: None,
        }
    }

    fn expired_at(progress: Option<Progress>) -> FlowStatus {
        status_at(TaskState::Expired, progress)
    }

    fn status_at(state: TaskState, progress: Option<Progress>) -> FlowStatus {
        let task = TaskStatus {
            task: RUN,
            name: "flow/f".into(),
            guarantee: Guarantee::Local,
            state,
            nodes: Vec::new(),
            error: None,
            why: None,
        };
        FlowStatus::of(&task, progress)
    }

    #[test]
    fn a_run_whose_time_is_over_says_so_and_what_it_left() {
        let status = expired_at(None);
        assert_eq!((status.state, status.error), (FlowState::Failed, Some(expired())));

        let status = expired_at(Some(halfway()));
        assert_eq!((status.state, status.error), (FlowState::Failed, Some(expired())));
        let left: Vec<&str> = status.not_undone.iter().map(|left| left.task.as_str()).collect();
        assert_eq!(left, ["a"]);
    }

    #[test]
    fn a_run_whose_time_is_over_while_it_is_undone_says_why_it_failed() {
        let mut progress = halfway();
        let error = TaskError::failed("broken");
        progress.record.phase = Phase::Undoing(Undoing {
            why: Failure {
                task: Some("b".into()),
                error: error.clone(),
            },
            left: Some(1),
            attempt: 1,
            running: true,
            stopping: false,
            undone: Vec::new(),
            not_undone: Vec::new(),
        });
        let status = status_at(TaskState::Running, Some(progress.clone()));
        let undoing = status.undoing.unwrap();
        assert_eq!(
            (undoing.task.as_str(), undoing.by.as_str(), undoing.attempt),
            ("a", "un-a", 1)
        );
        let status = expired_at(Some(progress));
        assert_eq!(status.undoing, None);
        assert_eq!((status.error, status.failed.as_deref()), (Some(error), Some("b")));
        assert_eq!(status.not_undone.len(), 1);
        assert_eq!(status.not_undone[0].error, expired());
    }
}
