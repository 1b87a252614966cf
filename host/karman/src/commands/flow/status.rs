use crate::app::App;
use crate::control::Control;
use crate::output::table;
use clap::Args;
use karman_node::{FlowState, FlowStatus, StepStatus};
use karman_sched::flow::NotUndone;
use karman_types::{ErrorKind, TaskError, TaskId, parse_duration};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long one question waits at the node, and the first one of somebody who watches: what a run waits for is known soon.
const ONE_WAIT: Duration = Duration::from_secs(30);
const FIRST_WAIT: Duration = Duration::from_secs(2);

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
        print(app, &follow(&Control::new(app)?, self.flow, self.wait)?)
    }
}

pub(super) fn path(flow: TaskId) -> String {
    format!("/flows/{flow}")
}

/// How far a run is, when it has ended or this time is over.
fn follow(control: &Control, flow: TaskId, patience: Duration) -> Result<FlowStatus, TaskError> {
    let started = Instant::now();
    loop {
        let left = patience.saturating_sub(started.elapsed());
        let wait = left.min(ONE_WAIT);
        let status = ask(control, flow, wait)?;
        if status.state.has_ended() || left <= wait {
            return Ok(status);
        }
    }
}

/// How a run ended, once it has. What it waits for until then is said once.
pub(super) fn watch(app: &App, control: &Control, flow: TaskId) -> Result<FlowStatus, TaskError> {
    let (mut wait, mut said) = (FIRST_WAIT, Vec::new());
    loop {
        let status = ask(control, flow, wait)?;
        if status.state.has_ended() {
            return Ok(status);
        }
        let waits = waits(&status);
        waits
            .iter()
            .filter(|waits| !said.contains(*waits))
            .for_each(|waits| app.output.note(waits));
        (wait, said) = (ONE_WAIT, waits);
    }
}

fn ask(control: &Control, flow: TaskId, wait: Duration) -> Result<FlowStatus, TaskError> {
    control.get(&format!("{}?wait={}ms", path(flow), wait.as_millis()))
}

/// What keeps a run from its end, as far as that is known.
pub(crate) fn waits(status: &FlowStatus) -> Vec<String> {
    let steps = status.steps.iter();
    let steps = steps.filter_map(|step| Some(format!("`{}` waits: {}", step.task, step.waits.as_ref()?)));
    let undoing = status.undoing.iter().filter(|undoing| undoing.waits.is_some());
    steps.chain(undoing.map(ToString::to_string)).collect()
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
            app.output.note(not_undone(left));
        }
        // The notes are for people.
        if app.output.json {
            app.output.line(json!(status))?;
        }
        let why = || format!("`karman why {}` tells how it ended", status.flow);
        return Err(TaskError {
            message,
            hint: Some(error.hint.clone().unwrap_or_else(why)),
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
            lines.extend(status.undoing.iter().map(ToString::to_string));
            lines.extend(status.not_undone.iter().map(not_undone));
            if let Some(output) = &status.output {
                lines.push(output.to_string());
            }
            lines.join("\n")
        },
        || json!(status),
    )
}

fn not_undone(left: &NotUndone) -> String {
    let NotUndone { task, item, error } = left;
    format!("`{task}` (item {item}) is not undone: {error}")
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

/// Why a step failed, or waits; else where a policy placed it, and why.
fn note(step: &StepStatus) -> String {
    if let (None, Some(waits)) = (&step.error, &step.waits) {
        return waits.clone();
    }
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
