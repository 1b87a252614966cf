use crate::app::App;
use crate::control::Control;
use crate::output::table;
use clap::Args;
use karman_node::{FlowState, FlowStatus, StepStatus};
use karman_types::{ErrorKind, TaskError, TaskId, parse_duration};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long one question waits at the node.
const ONE_WAIT: Duration = Duration::from_secs(30);

/// `karman flow status`
#[derive(Args, Debug)]
pub(super) struct Status {
    /// The id that `karman flow run` printed
    flow: TaskId,
    /// How long to wait for its end
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    wait: Duration,
}

impl Status {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        print(app, &follow(&Control::new(app)?, self.flow, Some(self.wait))?)
    }
}

pub(super) fn path(flow: TaskId) -> String {
    format!("/flows/{flow}")
}

/// How far a run is, when it has ended or this time is over.
pub(super) fn follow(
    control: &Control,
    flow: TaskId,
    patience: Option<Duration>,
) -> Result<FlowStatus, TaskError> {
    let started = Instant::now();
    loop {
        let left = patience.map(|patience| patience.saturating_sub(started.elapsed()));
        let wait = left.unwrap_or(ONE_WAIT).min(ONE_WAIT);
        let status: FlowStatus = control.get(&format!("{}?wait={}ms", path(flow), wait.as_millis()))?;
        if status.state.has_ended() || left.is_some_and(|left| left <= wait) {
            return Ok(status);
        }
    }
}

/// Prints what came out of a run.
///
/// # Errors
/// Why it failed.
pub(super) fn ended(app: &App, status: &FlowStatus) -> Result<(), TaskError> {
    if let Some(error) = &status.error {
        let message = match &status.failed {
            Some(task) => format!("run {} failed in `{task}`: {}", status.flow, error.message),
            None => format!("run {}: {}", status.flow, error.message),
        };
        for left in &status.not_undone {
            app.output.note(format!(
                "`{}` (item {}) is not undone: {}",
                left.task, left.item, left.error
            ));
        }
        // The notes are for people.
        if app.output.json {
            app.output.line(json!(status))?;
        }
        return Err(TaskError {
            message,
            ..error.clone()
        });
    }
    match (&status.output, status.state) {
        (Some(output), _) => app.output.result(
            || match output {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            },
            || json!({ "flow": status.flow, "output": output }),
        ),
        (None, state) => Err(TaskError::new(
            ErrorKind::Unavailable,
            format!(
                "run {} is {}, and its output is kept no longer",
                status.flow,
                word(state)
            ),
        )
        .with_hint("run it again; see `result-retention` and `results-bytes` under [tasks] in node.toml")),
    }
}

pub(super) fn print(app: &App, status: &FlowStatus) -> Result<(), TaskError> {
    app.output.result(
        || {
            let mut lines = vec![row(status).join("   ").trim_end().to_owned()];
            if !status.steps.is_empty() {
                lines.push(steps(&status.steps));
            }
            if let Some(output) = &status.output {
                lines.push(output.to_string());
            }
            lines.join("\n")
        },
        || json!(status),
    )
}

fn steps(steps: &[StepStatus]) -> String {
    let head = ["  TASK", "STATE", "RUNS", "ATTEMPTS", ""]
        .map(str::to_owned)
        .to_vec();
    let row = |step: &StepStatus| {
        vec![
            format!("  {}", step.task),
            step.state.clone(),
            format!("{}/{}", step.done, step.runs),
            step.attempts.to_string(),
            note(step),
        ]
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(steps.iter().map(row)).collect();
    table(&rows)
}

/// Why a step failed; else where a policy placed it, and why.
fn note(step: &StepStatus) -> String {
    match (&step.error, &step.node, &step.why) {
        (Some(error), ..) => error.to_string(),
        (None, Some(node), Some(why)) => format!("on {}: {why}", node.short()),
        (None, _, why) => why.clone().unwrap_or_default(),
    }
}

pub(super) fn row(status: &FlowStatus) -> Vec<String> {
    let more = match (&status.error, &status.failed) {
        (Some(error), Some(task)) => format!("`{task}`: {error}"),
        (Some(error), None) => error.to_string(),
        (None, _) => {
            let running = status.steps.iter().filter(|step| step.state == "running");
            running
                .map(|step| step.task.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        }
    };
    vec![
        status.flow.to_string(),
        status.name.clone(),
        word(status.state).into(),
        more,
    ]
}

pub(super) const fn word(state: FlowState) -> &'static str {
    match state {
        FlowState::Waiting => "waiting",
        FlowState::Running => "running",
        FlowState::Undoing => "undoing",
        FlowState::Done => "done",
        FlowState::Failed => "failed",
        FlowState::Cancelled => "cancelled",
        FlowState::Forgotten => "forgotten",
    }
}
