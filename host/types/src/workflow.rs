//! A workflow: what `flow.toml` says, checked.

mod check;
mod error;
mod file;
mod links;
mod predicate;

pub use error::WorkflowError;
pub use predicate::{Comparison, FieldPath, Predicate, PredicateError, Scalar};

use crate::{DataContract, Slo, from_toml};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A DAG of tasks, with what is to hold on its edges. Only a checked one exists, also when it comes over the wire: it has at
/// least one task, no cycle, and a way to every task.
///
/// ```
/// use karman_types::Workflow;
///
/// let flood = Workflow::from_toml(r#"
///     name = "flood"
///     deadline = "8 min"
///
///     [task.capture]
///     run = "space/capture"
///
///     [task.segment]
///     after = ["capture"]
///     each = "tiles"            # one run for each tile, their outputs as a list
///     retries = 2
///     timeout = "5 s"
///     undo = "discard-mask"     # what takes its effect back if the workflow fails
///
///     [task.alert]
///     [task.archive]
///
///     [[edge]]
///     from = "segment"
///     to = "alert"
///     when = { field = "0.water", at-least = 0.2 }
///
///     [[edge]]
///     from = "segment"
///     to = "archive"
///     default = true            # where no other edge of `segment` is taken
/// "#)?;
/// let names: Vec<_> = flood.tasks().iter().map(|task| task.name.as_str()).collect();
/// assert_eq!(names, ["capture", "segment", "alert", "archive"]);
/// # Ok::<(), karman_types::WorkflowError>(())
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "file::File", into = "file::File")]
pub struct Workflow {
    name: String,
    deadline: Option<Duration>,
    slo: Option<Slo>,
    select: Option<String>,
    tasks: Vec<FlowTask>,
    edges: Vec<Edge>,
    /// For each task, its edges by their place in `edges`.
    into: Vec<Vec<usize>>,
    from: Vec<Vec<usize>>,
}

/// One task of a workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowTask {
    /// What the workflow calls it.
    pub name: String,
    /// What runs: the name by which a node finds providers. Default: [`Self::name`]; of a task that names a capability, that.
    pub run: String,
    /// Its capability, where the implementation is chosen anew for every request, within the [`Slo`] of the workflow:
    /// `vision/classification/digits`. Default: any provider of [`Self::run`].
    pub capability: Option<String>,
    /// What goes into each run of it, checked before. Default: anything.
    pub inputs: DataContract,
    /// What comes out of each run of it, checked after. Default: anything.
    pub outputs: DataContract,
    /// The list in its input, each item of which is the input of a run of its own; the output is the list of theirs. Default: it
    /// runs once.
    pub each: Option<FieldPath>,
    /// How many of these runs there are at once. Default 16.
    pub at_once: u32,
    /// How often a run that failed is tried again. Default 0.
    pub retries: u32,
    /// The pause before the first retry; it doubles with each further one, up to 30 s. Default 100 ms.
    pub pause: Duration,
    /// How long one attempt may take. Default: as long as the task's own limit.
    pub timeout: Option<Duration>,
    /// How long after the workflow's start it must have ended. Default: the workflow's deadline.
    pub deadline: Option<Duration>,
    /// What runs to take its effect back when the workflow fails after it. It gets `input` and `output` of the run as a table, and
    /// must bear that there is nothing to take back. One attempt at that may take [`Self::timeout`], else
    /// [`Workflow::UNDO_TIMEOUT`]. Default: nothing.
    pub undo: Option<String>,
    /// What each run of it gets besides its input.
    pub with: BTreeMap<String, Scalar>,
}

/// A dependency: one task's output is another one's input.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// The task that gives, by its place in [`Workflow::tasks`].
    pub from: usize,
    /// The task that takes.
    pub to: usize,
    /// What must hold of the output. Default: nothing, the edge is always taken.
    pub when: Option<Predicate>,
    /// Taken when no edge with a predicate from the same task is.
    pub default: bool,
}

impl Workflow {
    /// The most bytes of a text that is read.
    pub const MAX_TEXT: usize = 1 << 20;
    /// The most tasks of one workflow.
    pub const MAX_TASKS: usize = 1_000;
    /// The most edges of one workflow.
    pub const MAX_EDGES: usize = 10_000;
    /// The most items of a list that a task fans out over.
    pub const MAX_ITEMS: usize = 1_000;
    /// The longest pause between two attempts.
    pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);
    /// How long an attempt at undoing a task without a `timeout` may take.
    pub const UNDO_TIMEOUT: Duration = Duration::from_secs(600);

    /// Reads and checks a `flow.toml`.
    ///
    /// # Errors
    /// [`WorkflowError`] names the task, edge or key that is wrong, with the nearest known one where it is misspelt.
    pub fn from_toml(text: &str) -> Result<Self, WorkflowError> {
        if text.len() > Self::MAX_TEXT {
            return Err(WorkflowError::TooLong { bytes: text.len() });
        }
        Self::try_from(from_toml::<file::File>(text)?)
    }

    /// The same workflow as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(&file::File::from(self.clone())).expect("a workflow has only string keys")
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long it may take from start to end.
    pub const fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// What the user wants of it, where implementations are chosen.
    pub const fn slo(&self) -> Option<&Slo> {
        self.slo.as_ref()
    }

    /// The policy that chooses the implementation of a task: a built-in one, or the plugin that brings it. Default: that of the node.
    pub fn select(&self) -> Option<&str> {
        self.select.as_deref()
    }

    /// The same workflow within other limits.
    ///
    /// # Errors
    /// When a limit is out of its bounds, or binds nothing: no task names a `capability`.
    pub fn with_slo(self, slo: Slo) -> Result<Self, WorkflowError> {
        let slo = Some(slo);
        Self::try_from(file::File {
            slo,
            ..file::File::from(self)
        })
    }

    /// Its tasks, each after those it waits for; those that could stand in either order by name.
    pub fn tasks(&self) -> &[FlowTask] {
        &self.tasks
    }

    /// The place of a task in [`Self::tasks`].
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.tasks.iter().position(|task| task.name == name)
    }

    /// Its edges.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The edges into a task, as places in [`Self::edges`].
    pub fn edges_into(&self, task: usize) -> &[usize] {
        &self.into[task]
    }

    /// The edges from a task, as places in [`Self::edges`].
    pub fn edges_from(&self, task: usize) -> &[usize] {
        &self.from[task]
    }

    /// For each task how many tasks the longest way to it has: 0 for the first ones.
    pub fn levels(&self) -> Vec<usize> {
        let mut levels = vec![0; self.tasks.len()];
        for task in 0..self.tasks.len() {
            let before = self.into[task]
                .iter()
                .map(|&edge| levels[self.edges[edge].from] + 1);
            levels[task] = before.max().unwrap_or(0);
        }
        levels
    }
}
