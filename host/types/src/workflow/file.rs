//! How a workflow stands in a file.

use super::{Edge, FieldPath, FlowTask, Predicate, Scalar, Workflow};
use crate::{DataContract, Slo, serde_duration, serde_optional_duration};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A graph of tasks, and what is to hold on its edges.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    /// What people call it.
    pub(super) name: String,
    /// How long after its start it must have ended. Default: no bound of its own.
    #[serde(
        default,
        with = "serde_optional_duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) deadline: Option<Duration>,
    /// The tasks with no edge into them, where there are several. Default: the one there is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) start: Vec<String>,
    /// What is wanted of its runs. Default: nothing is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slo: Option<Slo>,
    /// The policy by which who does a task is chosen. Default: that of `[policies]` in `node.toml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) select: Option<String>,
    /// Its tasks, by name.
    #[serde(default)]
    pub(super) task: BTreeMap<String, TaskTable>,
    /// Edges with conditions; those that are always taken can be written as `after`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) edge: Vec<EdgeTable>,
}

/// One task of a workflow.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TaskTable {
    /// What runs: the name by which nodes find who offers it. Default: the name of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<String>,
    /// What it does, in place of `run`: who does it is chosen anew for each run, within `[slo]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) capability: Option<String>,
    /// What goes into each run of it, checked before. Default: anything.
    #[serde(default, skip_serializing_if = "DataContract::is_empty")]
    pub(super) inputs: DataContract,
    /// What comes out of each run of it, checked after. Default: anything.
    #[serde(default, skip_serializing_if = "DataContract::is_empty")]
    pub(super) outputs: DataContract,
    /// Tasks with an edge to this one that is always taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) after: Vec<String>,
    /// The list in its input, each item of which is the input of a run of its own; the output is the list of theirs. Default: it
    /// runs once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) each: Option<FieldPath>,
    /// How many of these runs there are at once. Default 16.
    #[serde(default = "at_once")]
    pub(super) at_once: u32,
    /// How often a run that failed is tried again. Default 0.
    #[serde(default)]
    pub(super) retries: u32,
    /// The pause before the first retry; it doubles with each further one, up to 30 s. Default 100 ms.
    #[serde(default = "pause", with = "serde_duration")]
    pub(super) pause: Duration,
    /// How long one attempt may take. Default: as long as the limit of the plugin.
    #[serde(
        default,
        with = "serde_optional_duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) timeout: Option<Duration>,
    /// How long after the start of the workflow it must have ended. Default: the deadline of the workflow.
    #[serde(
        default,
        with = "serde_optional_duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) deadline: Option<Duration>,
    /// What runs to take its effect back when the workflow fails after it. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) undo: Option<String>,
    /// What each run of it gets besides its input, as metadata of the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) with: BTreeMap<String, Scalar>,
}

const fn at_once() -> u32 {
    16
}

const fn pause() -> Duration {
    Duration::from_millis(100)
}

/// The output of one task is the input of another.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct EdgeTable {
    /// The task that gives.
    pub(super) from: String,
    /// The task that takes.
    pub(super) to: String,
    /// What must hold of the output. Default: nothing, the edge is always taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) when: Option<Predicate>,
    /// Whether it is taken when no other edge of the same task is. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) default: bool,
}

impl From<Workflow> for File {
    fn from(workflow: Workflow) -> Self {
        let name_of = |task: usize| workflow.tasks[task].name.clone();
        let edge = |edge: &Edge| EdgeTable {
            from: name_of(edge.from),
            to: name_of(edge.to),
            when: edge.when.clone(),
            default: edge.default,
        };
        let starts = (0..workflow.tasks.len()).filter(|&task| workflow.into[task].is_empty());
        Self {
            start: starts.map(name_of).collect(),
            edge: workflow.edges.iter().map(edge).collect(),
            name: workflow.name,
            deadline: workflow.deadline,
            slo: workflow.slo,
            select: workflow.select,
            task: workflow.tasks.into_iter().map(table).collect(),
        }
    }
}

fn table(task: FlowTask) -> (String, TaskTable) {
    let table = TaskTable {
        run: Some(task.run).filter(|_| task.capability.is_none()),
        capability: task.capability,
        inputs: task.inputs,
        outputs: task.outputs,
        after: Vec::new(),
        each: task.each,
        at_once: task.at_once,
        retries: task.retries,
        pause: task.pause,
        timeout: task.timeout,
        deadline: task.deadline,
        undo: task.undo,
        with: task.with,
    };
    (task.name, table)
}
