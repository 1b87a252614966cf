use super::Workflow;
use crate::KeyError;

/// A workflow that does not hold together.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkflowError {
    /// The text does not read.
    #[error("workflow: {0}")]
    Key(#[from] KeyError),
    /// A text that is too long to be read.
    #[error(
        "workflow: {bytes} bytes are more than the {} that are read",
        Workflow::MAX_TEXT
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// More tasks or edges than there may be.
    #[error("workflow: {count} {what} are more than the {most} that there may be")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// There is nothing to do.
    #[error("workflow: it has no task; add a table `[task.NAME]`")]
    Empty,
    /// A name that none can have.
    #[error("workflow: {field}: `{name}` is not 1 to 64 lower-case letters, digits and hyphens")]
    Name {
        /// What is called so.
        field: String,
        /// The name.
        name: String,
    },
    /// A task is named that is not there.
    #[error("workflow: {field}: there is no task `{name}`{}", nearest.as_ref().map(|n| format!("; did you mean `{n}`?")).unwrap_or_default())]
    UnknownTask {
        /// Where it is named.
        field: String,
        /// The name.
        name: String,
        /// The task whose name is spelt most alike, if any is close.
        nearest: Option<String>,
    },
    /// Two edges between the same tasks.
    #[error(
        "workflow: there are two edges from `{from}` to `{to}`: make them one, with `any` of both predicates"
    )]
    RepeatedEdge {
        /// The task that gives.
        from: String,
        /// The task that takes.
        to: String,
    },
    /// Tasks that wait for each other.
    #[error("workflow: these tasks wait for each other: {}; a workflow has no cycle", tasks.join(" → "))]
    Cycle {
        /// Along the edges; the first comes after the last.
        tasks: Vec<String>,
    },
    /// No way leads to a task from where the workflow starts.
    #[error("workflow: no edge leads to `{task}`: add one, or name it in `start`")]
    Unreachable {
        /// The first of them.
        task: String,
    },
    /// A value outside its bounds.
    #[error("workflow: `{field}` {problem}")]
    Value {
        /// The field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// A field that has a value outside its bounds.
pub(super) fn value(field: String, problem: &str) -> WorkflowError {
    let problem = problem.into();
    WorkflowError::Value { field, problem }
}
