//! How a workflow stands in a file.

use super::{Edge, FieldPath, FlowTask, Predicate, Scalar, Workflow};
use crate::{DataContract, Slo, serde_duration};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) name: String,
    #[serde(default, with = "optional_duration", skip_serializing_if = "Option::is_none")]
    pub(super) deadline: Option<Duration>,
    /// The tasks with no edge into them, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) start: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slo: Option<Slo>,
    /// The policy by which who does a task is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) select: Option<String>,
    #[serde(default)]
    pub(super) task: BTreeMap<String, TaskTable>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) edge: Vec<EdgeTable>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TaskTable {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) capability: Option<String>,
    #[serde(default, skip_serializing_if = "DataContract::is_empty")]
    pub(super) inputs: DataContract,
    #[serde(default, skip_serializing_if = "DataContract::is_empty")]
    pub(super) outputs: DataContract,
    /// Tasks with an edge to this one that is always taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) after: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) each: Option<FieldPath>,
    #[serde(default = "at_once")]
    pub(super) at_once: u32,
    #[serde(default)]
    pub(super) retries: u32,
    #[serde(default = "pause", with = "serde_duration")]
    pub(super) pause: Duration,
    #[serde(default, with = "optional_duration", skip_serializing_if = "Option::is_none")]
    pub(super) timeout: Option<Duration>,
    #[serde(default, with = "optional_duration", skip_serializing_if = "Option::is_none")]
    pub(super) deadline: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) undo: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) with: BTreeMap<String, Scalar>,
}

const fn at_once() -> u32 {
    16
}

const fn pause() -> Duration {
    Duration::from_millis(100)
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct EdgeTable {
    pub(super) from: String,
    pub(super) to: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) when: Option<Predicate>,
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

mod optional_duration {
    use super::serde_duration;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::time::Duration;

    #[derive(Deserialize, Serialize)]
    struct Written(#[serde(with = "serde_duration")] Duration);

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(Written).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Written>::deserialize(deserializer)?.map(|written| written.0))
    }
}
