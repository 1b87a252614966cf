//! Why a run has not given its output, and what became of what it had done: by what is stored with it, and nothing else.

use super::lifetime::LIFETIME;
use super::progress::{ENTRY, PROGRESS};
use super::status::{FlowState, FlowStatus, UndoStatus};
use karman_sched::Why;
use karman_sched::flow::NotUndone;
use karman_tasks::Guarantee;
use karman_types::{ErrorKind, TaskError, TaskId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a run of a workflow ended as it did, or is about to.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FlowEnding {
    /// The run.
    pub flow: TaskId,
    /// `undoing`, `failed` or `cancelled`.
    pub state: FlowState,
    /// What ended it, in one word.
    pub cause: FlowCause,
    /// The same in plain words.
    pub why: Why,
    /// The task that it failed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The error, whose `field` names the limit that ended it, if one did; nothing where it was withdrawn before it had begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TaskError>,
    /// The tasks whose effects were taken back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<FlowUndone>,
    /// What is being undone now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoing: Option<UndoStatus>,
    /// Effects that are still there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_undone: Vec<NotUndone>,
}

/// What ended a run of a workflow that has no output.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowCause {
    /// One of its tasks has failed for good, or a limit of the workflow itself was reached: its `deadline`, say.
    Failed,
    /// Somebody has withdrawn it.
    Withdrawn,
    /// More was to be kept of it than its keepers take, or than its node has room for.
    Outgrown,
    /// It had not ended when the time was over that a node has for what it accepts.
    Outlived,
}

/// A task whose effects were taken back.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FlowUndone {
    /// The task.
    pub task: String,
    /// How many of its runs.
    pub runs: usize,
}

impl FlowEnding {
    /// That of a run which fails, has failed, or was withdrawn. Nothing of one that goes on or has its output, or of which nothing is known
    /// any more.
    pub fn of(status: &FlowStatus) -> Option<Self> {
        let over = match status.state {
            FlowState::Undoing => false,
            FlowState::Failed | FlowState::Cancelled => true,
            FlowState::Waiting | FlowState::Running | FlowState::Done | FlowState::Forgotten => return None,
        };
        let cause = FlowCause::of(status);
        let undone = status.steps.iter().filter(|step| step.undone > 0);
        let undone = undone.map(|step| FlowUndone {
            task: step.task.clone(),
            runs: step.undone,
        });
        Some(Self {
            flow: status.flow,
            state: status.state,
            cause,
            why: cause.why(status, over),
            failed: status.failed.clone(),
            error: status.error.clone(),
            undone: undone.collect(),
            undoing: status.undoing.clone(),
            not_undone: status.not_undone.clone(),
        })
    }
}

impl FlowCause {
    fn of(status: &FlowStatus) -> Self {
        let Some(error) = &status.error else {
            return match status.state {
                FlowState::Cancelled => Self::Withdrawn,
                _ => Self::Failed,
            };
        };
        match error.field.as_deref() {
            Some(ENTRY | PROGRESS) => Self::Outgrown,
            Some(LIFETIME) => Self::Outlived,
            // A single task of it that is withdrawn fails.
            _ if error.kind == ErrorKind::Cancelled && status.failed.is_none() => Self::Withdrawn,
            _ => Self::Failed,
        }
    }

    fn why(self, status: &FlowStatus, over: bool) -> Why {
        let ends = if over { "ended" } else { "ends" };
        let what = match self {
            Self::Failed => "it failed",
            Self::Withdrawn => "it was withdrawn",
            Self::Outgrown if status.promise == Guarantee::Kept => "it outgrew its keepers",
            Self::Outgrown => "it outgrew the room of its node",
            Self::Outlived => "it outlived its time",
        };
        let at = status.failed.as_ref().map(|task| format!(" in `{task}`"));
        let because = match (self, &status.error) {
            (Self::Withdrawn, _) if status.steps.is_empty() => "somebody asked for that before it had begun",
            (Self::Withdrawn, _) => "somebody asked for that",
            (_, Some(error)) => error.message.as_str(),
            (_, None) => "of a reason that is known no longer",
        };
        Why::new(
            format!("how `{}` {ends}", status.name),
            format!("{what}{}", at.unwrap_or_default()),
            because,
        )
    }
}

impl fmt::Display for FlowEnding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)?;
        let undone = self
            .undone
            .iter()
            .map(|undone| (undone.task.as_str(), undone.runs));
        let undone: Vec<String> = undone.map(named).collect();
        if !undone.is_empty() {
            write!(f, "; undone: {}", undone.join(", "))?;
        }
        if let Some(undoing) = &self.undoing {
            write!(f, "; {undoing}")?;
        }
        let mut left: Vec<(&str, usize, &TaskError)> = Vec::new();
        for effect in &self.not_undone {
            match left.iter_mut().find(|(task, ..)| *task == effect.task) {
                Some((_, runs, _)) => *runs += 1,
                None => left.push((&effect.task, 1, &effect.error)),
            }
        }
        for (task, runs, error) in left {
            write!(f, "; not undone: {}, because {error}", named((task, runs)))?;
        }
        Ok(())
    }
}

/// A task, and how many of its runs, unless that is one.
fn named((task, runs): (&str, usize)) -> String {
    match runs {
        1 => format!("`{task}`"),
        runs => format!("`{task}` ({runs} runs)"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::lifetime::{expired, outlived};
    use super::super::progress::too_long;
    use super::super::status::StepStatus;
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn status(state: FlowState, error: Option<TaskError>, failed: Option<&str>) -> FlowStatus {
        let step = |task: &str, runs, undone| StepStatus {
            task: task.into(),
            state: "done".into(),
            runs,
            done: runs,
            undone,
            attempts: 1,
            error: None,
            node: None,
            why: None,
            waits: None,
        };
        FlowStatus {
            flow: TaskId::from_parts(0, 7),
            name: "f".into(),
            promise: Guarantee::Kept,
            state,
            steps: vec![step("a", 1, 1), step("b", 16, 16), step("c", 1, 0)],
            output: None,
            error,
            failed: failed.map(Into::into),
            undoing: None,
            not_undone: Vec::new(),
        }
    }

    fn told(status: &FlowStatus) -> (FlowCause, String) {
        let ending = FlowEnding::of(status).unwrap();
        (ending.cause, ending.to_string())
    }

    #[test]
    fn a_run_that_outgrew_its_keepers_says_so_with_the_limit() {
        let outgrown = status(FlowState::Failed, Some(too_long(64 << 10)), Some("c"));
        let says = "how `f` ended: it outgrew its keepers in `c` because more is to be kept of the run than the limit \
            `keepers.entry` (64 KiB) allows; undone: `a`, `b` (16 runs)";
        assert_eq!(told(&outgrown), (FlowCause::Outgrown, says.into()));
        let ending = serde_json::to_value(FlowEnding::of(&outgrown).unwrap()).unwrap();
        assert_eq!(ending["cause"], "outgrown");
        assert_eq!(ending["error"]["field"], "keepers.entry");
        assert_eq!(
            ending["undone"],
            json!([{ "task": "a", "runs": 1 }, { "task": "b", "runs": 16 }])
        );
    }

    #[test]
    fn a_run_that_outlived_its_time_says_so_with_the_limit() {
        let run = status(FlowState::Undoing, Some(outlived(Duration::from_secs(20))), None);
        let says = "how `f` ends: it outlived its time because the run has not ended in time: what a node accepts lives for \
            `tasks.lifetime` (20 s), and the end of that is for undoing; undone: `a`, `b` (16 runs)";
        assert_eq!(told(&run), (FlowCause::Outlived, says.into()));
        // The same where nobody coordinated it.
        let (cause, says) = told(&status(FlowState::Failed, Some(expired()), None));
        assert!(
            cause == FlowCause::Outlived && says.contains("before anybody could end it"),
            "{says}"
        );
    }

    #[test]
    fn a_run_that_was_withdrawn_is_told_from_one_whose_task_was() {
        let error = || Some(TaskError::cancelled("the workflow was withdrawn"));
        let withdrawn = status(FlowState::Cancelled, error(), None);
        let says =
            "how `f` ended: it was withdrawn because somebody asked for that; undone: `a`, `b` (16 runs)";
        assert_eq!(told(&withdrawn), (FlowCause::Withdrawn, says.into()));
        let unbegun = FlowStatus {
            steps: Vec::new(),
            ..status(FlowState::Cancelled, None, None)
        };
        assert!(told(&unbegun).1.ends_with("before it had begun"));
        let (cause, says) = told(&status(FlowState::Cancelled, error(), Some("c")));
        assert!(
            cause == FlowCause::Failed && says.contains("it failed in `c`"),
            "{says}"
        );
    }

    #[test]
    fn what_could_not_be_undone_is_told_once_for_each_task() {
        let left = |task: &str, item| NotUndone {
            task: task.into(),
            item,
            error: TaskError::failed("it broke"),
        };
        let failed = FlowStatus {
            not_undone: vec![left("c", 0), left("b", 3), left("b", 5)],
            ..status(FlowState::Failed, Some(TaskError::failed("no road")), Some("c"))
        };
        let (cause, says) = told(&failed);
        let ends = "because no road; undone: `a`, `b` (16 runs); not undone: `c`, because it broke; not undone: `b` (2 runs), because it broke";
        assert!(cause == FlowCause::Failed && says.ends_with(ends), "{says}");
    }

    #[test]
    fn what_is_being_undone_is_told_with_what_it_waits_for() {
        let undoing = UndoStatus {
            task: "b".into(),
            item: 0,
            by: "nosuch".into(),
            attempt: 2,
            waits: Some("no node in reach offers `nosuch`".into()),
        };
        let mut run = status(FlowState::Undoing, Some(TaskError::failed("no road")), Some("c"));
        run.undoing = Some(undoing);
        let (_, says) = told(&run);
        let ends = "; `nosuch` is to undo `b`, attempt 2, and waits: no node in reach offers `nosuch`";
        assert!(says.ends_with(ends), "{says}");
    }

    #[test]
    fn of_a_run_that_goes_on_or_has_its_output_there_is_nothing_to_tell() {
        for state in [
            FlowState::Waiting,
            FlowState::Running,
            FlowState::Done,
            FlowState::Forgotten,
        ] {
            assert_eq!(FlowEnding::of(&status(state, None, None)), None, "{state:?}");
        }
    }
}
