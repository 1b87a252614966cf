use super::{History, RunId};
use karman_types::{FlowTask, TaskError, TaskId, Workflow};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// All that a coordinator has to know of a run of a workflow to carry it on, besides the workflow itself.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Record {
    /// The run: every key begins with it.
    pub id: TaskId,
    /// What went into it.
    pub input: Value,
    /// How long ago it had started when this was written.
    pub elapsed: Duration,
    /// How far each task is, in the order of [`Workflow::tasks`].
    pub steps: Vec<Step>,
    /// The runs that had or may have had an effect, in the order in which they ended.
    pub effects: Vec<RunId>,
    /// How far the whole is.
    pub phase: Phase,
    /// What has happened.
    pub history: History,
}

/// The phase of a run of a workflow.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Phase {
    /// Tasks run.
    Running,
    /// It has failed, and its effects are being undone.
    Undoing(Undoing),
    /// It has ended.
    Ended(Outcome),
}

/// The progress of undoing a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Undoing {
    /// Why.
    pub why: Failure,
    /// How many of [`Record::effects`], from the first, are not undone yet; nothing while attempts are being stopped.
    pub left: Option<usize>,
    /// The attempt at undoing the last of these.
    pub attempt: u32,
    /// Whether that attempt runs; if not, it waits for its pause to be over.
    pub running: bool,
    /// Whether it is being stopped, because it has taken too long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
    /// What has been undone, in this order.
    pub undone: Vec<RunId>,
    /// What could not be undone.
    pub not_undone: Vec<NotUndone>,
}

/// Why a workflow failed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Failure {
    /// The task that failed, if it was one.
    pub task: Option<String>,
    /// How.
    pub error: TaskError,
}

/// An effect that is still there although the workflow failed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NotUndone {
    /// The name of the task.
    pub task: String,
    /// The item of its list.
    pub item: usize,
    /// Why the undoing failed.
    pub error: TaskError,
}

/// The outcome of a run of a workflow.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Outcome {
    /// With the output of its last task, or a table of them by name where there are several.
    Done(Value),
    /// It failed; effects of tasks that can be undone are undone, except for some.
    Failed {
        /// Why.
        why: Failure,
        /// What could not be undone.
        not_undone: Vec<NotUndone>,
    },
}

/// The progress of a task.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Step {
    /// In one word.
    pub state: StepState,
    /// Its runs: one, or one for each item of its list; none before it begins.
    pub runs: Vec<Run>,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum StepState {
    /// Not every edge into it is decided.
    Waiting,
    /// No edge into it was taken.
    Skipped,
    /// It has begun.
    Running,
    /// All its runs have given their output.
    Done,
}

/// The progress of one run of a task.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// The number of the latest attempt; 0 before the first.
    pub attempt: u32,
    /// An attempt may have had its effect although it did not answer with an output.
    pub doubtful: bool,
    /// Where it stands.
    pub state: RunState,
}

/// The state of one run of a task.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum RunState {
    /// It has not begun, because as many run as may at once.
    Waiting,
    /// An attempt runs.
    Running,
    /// An attempt is being stopped, for this reason.
    Stopping(TaskError),
    /// An attempt failed, and the next one comes after a pause.
    Pausing,
    /// This is its output.
    Done(Value),
    /// It has failed for good.
    Failed(TaskError),
}

impl RunState {
    /// Whether an attempt may run.
    pub(super) const fn is_live(&self) -> bool {
        matches!(self, Self::Running | Self::Stopping(_))
    }
}

impl Record {
    pub(super) fn new(id: TaskId, workflow: &Workflow, input: Value) -> Self {
        let step = Step {
            state: StepState::Waiting,
            runs: Vec::new(),
        };
        Self {
            id,
            input,
            elapsed: Duration::ZERO,
            steps: vec![step; workflow.tasks().len()],
            effects: Vec::new(),
            phase: Phase::Running,
            history: History::default(),
        }
    }

    /// How it ended, if it has.
    pub const fn outcome(&self) -> Option<&Outcome> {
        match &self.phase {
            Phase::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// The runs that had, or may yet have, an effect that would have to be undone from here on: nothing once the run has ended.
    pub fn to_undo(&self, workflow: &Workflow) -> BTreeSet<RunId> {
        let left = match &self.phase {
            Phase::Running => self.effects.len(),
            Phase::Undoing(undoing) => undoing.left.unwrap_or(self.effects.len()),
            Phase::Ended(_) => return BTreeSet::new(),
        };
        let in_doubt = |run: &Run| run.state.is_live() || (run.doubtful && run.state == RunState::Pausing);
        let open = self.runs().filter(|(_, run)| in_doubt(run));
        let effects = self.effects.iter().take(left).copied();
        let has_undo = |of: &RunId| {
            let task = workflow.tasks().get(of.task);
            task.is_some_and(|task| task.undo.is_some())
        };
        effects.chain(open.map(|(of, _)| of)).filter(has_undo).collect()
    }

    /// What is being undone now, and how far that is.
    pub fn being_undone(&self) -> Option<(RunId, &Undoing)> {
        let Phase::Undoing(undoing) = &self.phase else {
            return None;
        };
        let last = undoing.left?.checked_sub(1).filter(|_| undoing.attempt > 0)?;
        let of = *self.effects.get(last)?;
        Some((RunId { undo: true, ..of }, undoing))
    }

    /// The runs whose effects were taken back, in the order in which these had come about.
    pub fn undone(&self, workflow: &Workflow) -> Vec<RunId> {
        let tasks = workflow.tasks();
        match &self.phase {
            Phase::Running | Phase::Ended(Outcome::Done(_)) => Vec::new(),
            Phase::Undoing(undoing) => undoing.undone.iter().rev().copied().collect(),
            // All that can be undone was tried by then.
            Phase::Ended(Outcome::Failed { not_undone, .. }) => {
                let is_left = |of: &RunId, task: &FlowTask| {
                    let mut left = not_undone.iter();
                    left.any(|left| left.task == task.name && left.item == of.item)
                };
                let is_undone = |of: &&RunId| {
                    let task = tasks.get(of.task);
                    task.is_some_and(|task| task.undo.is_some() && !is_left(of, task))
                };
                self.effects.iter().filter(is_undone).copied().collect()
            }
        }
    }

    /// The output of a task that is done: of its only run, or the list of all.
    pub(super) fn output(&self, workflow: &Workflow, task: usize) -> Option<Value> {
        let step = &self.steps[task];
        if step.state != StepState::Done {
            return None;
        }
        let mut outputs = step.runs.iter().filter_map(|run| match &run.state {
            RunState::Done(output) => Some(output.clone()),
            _ => None,
        });
        match workflow.tasks()[task].each {
            Some(_) => Some(outputs.collect()),
            None => outputs.next(),
        }
    }

    /// Every run that there is.
    pub(super) fn runs(&self) -> impl Iterator<Item = (RunId, &Run)> {
        self.steps.iter().enumerate().flat_map(|(task, step)| {
            let run = move |(item, run)| {
                (
                    RunId {
                        task,
                        item,
                        undo: false,
                    },
                    run,
                )
            };
            step.runs.iter().enumerate().map(run)
        })
    }
}
