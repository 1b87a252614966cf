use super::call;
use crate::app::App;
use crate::control::Control;
use crate::output::table;
use bytes::Bytes;
use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use karman_node::{TaskState, TaskStatus};
use karman_types::{TaskError, TaskId, format_duration, parse_duration};
use serde_json::json;
use std::time::{Duration, Instant};

/// How long one question waits at the node.
const ONE_WAIT: Duration = Duration::from_secs(30);

/// `karman task`
#[derive(Args, Debug)]
pub(crate) struct Task {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// The accepted tasks that this node holds
    #[command(after_help = "Examples:\n  karman task list\n  karman task list --json")]
    List,
    /// Show the state of a task
    #[command(
        after_help = "Examples:\n  karman task status 01JD7W2Z0Q8V5M3N9K4T6B1XAC\n  karman task status 01JD7W2Z0Q8V5M3N9K4T6B1XAC --json"
    )]
    Status(One),
    /// Print the result of a task
    #[command(
        after_help = "Examples:\n  karman task result 01JD7W2Z0Q8V5M3N9K4T6B1XAC --wait 30s\n  karman task result 01JD7W2Z0Q8V5M3N9K4T6B1XAC --forget"
    )]
    Result(Outcome),
    /// Cancel a task
    #[command(
        after_help = "Examples:\n  karman task cancel 01JD7W2Z0Q8V5M3N9K4T6B1XAC\n  karman task cancel 01JD7W2Z0Q8V5M3N9K4T6B1XAC --json"
    )]
    Cancel(One),
}

#[derive(Args, Debug)]
struct One {
    /// The id that `karman call --accept` printed
    task: TaskId,
}

#[derive(Args, Debug)]
struct Outcome {
    #[command(flatten)]
    of: One,
    /// How long to wait for it
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    wait: Duration,
    /// Let the node forget it afterwards
    #[arg(long)]
    forget: bool,
}

impl Task {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        let control = Control::new(app)?;
        match &self.verb {
            Verb::List => list(app, &control.get::<Vec<TaskStatus>>("/accepted")?),
            Verb::Status(one) => print(app, &control.get(&one.path())?),
            Verb::Result(verb) => verb.run(app, &control),
            Verb::Cancel(one) => one.cancel(app, &control),
        }
    }
}

impl One {
    fn path(&self) -> String {
        format!("/accepted/{}", self.task)
    }

    fn cancel(&self, app: &App, control: &Control) -> Result<(), TaskError> {
        let path = format!("{}?withdraw=true", self.path());
        let status: TaskStatus = control.order(Method::DELETE, &path, Bytes::new())?;
        // It ends as soon as that is on the disk; what runs of it is stopped.
        let words = || format!("{}   {}   withdrawn", status.task, status.name);
        app.output.result(words, || json!(status))
    }
}

impl Outcome {
    fn run(&self, app: &App, control: &Control) -> Result<(), TaskError> {
        let started = Instant::now();
        let answer = loop {
            let left = self.wait.saturating_sub(started.elapsed());
            let wait = left.min(ONE_WAIT).as_millis();
            let path = format!("{}/result?wait={wait}ms", self.of.path());
            let answer = control.send(Method::GET, &path, &[], Bytes::new())?;
            if answer.status() != StatusCode::ACCEPTED {
                break answer;
            }
            if started.elapsed() >= self.wait {
                let status: TaskStatus = control.get(&self.of.path())?;
                let (task, state) = (self.of.task, word(status.state));
                let (within, hint) = match self.wait.is_zero() {
                    true => (String::new(), "wait for it with --wait"),
                    false => (
                        format!(" within {}", format_duration(self.wait)),
                        "wait longer with --wait",
                    ),
                };
                let why = status.why.map(|why| format!(", {why}")).unwrap_or_default();
                let says = format!("task {task} has not ended{within}: {state}{why}");
                return Err(TaskError::deadline(says).with_hint(hint));
            }
        };
        call::show(app, &answer)?;
        if self.forget {
            control.order::<TaskStatus>(Method::DELETE, &self.of.path(), Bytes::new())?;
        }
        Ok(())
    }
}

fn print(app: &App, status: &TaskStatus) -> Result<(), TaskError> {
    app.output.result(|| row(status).join("   "), || json!(status))
}

fn list(app: &App, tasks: &[TaskStatus]) -> Result<(), TaskError> {
    if app.output.json {
        return tasks.iter().try_for_each(|task| app.output.line(json!(task)));
    }
    let head = ["TASK", "NAME", "STATE", ""].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(tasks.iter().map(row)).collect();
    app.output.line(table(&rows))
}

fn row(status: &TaskStatus) -> Vec<String> {
    let nodes: Vec<String> = status.nodes.iter().map(|node| node.short()).collect();
    let more = match (&status.error, nodes.is_empty()) {
        (Some(error), _) => error.message.clone(),
        (None, true) => status.why.clone().unwrap_or_default(),
        (None, false) => format!("on {}", nodes.join(", ")),
    };
    vec![
        status.task.to_string(),
        status.name.clone(),
        word(status.state).into(),
        more,
    ]
}

const fn word(state: TaskState) -> &'static str {
    match state {
        TaskState::Saving => "saving",
        TaskState::DeadlineUnknown => "deadline unknown",
        TaskState::Waiting => "waiting",
        TaskState::Running => "running",
        TaskState::Ending => "ending",
        TaskState::Done => "done",
        TaskState::Failed => "failed",
        TaskState::Expired => "expired",
        TaskState::Cancelled => "cancelled",
        TaskState::Forgotten => "forgotten",
        TaskState::Moved => "moved",
    }
}
