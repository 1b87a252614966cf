use crate::answer::{self, Answer, There};
use crate::app::App;
use crate::control::{Control, escape};
use crate::input::{CallArgs, Input};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::{HeaderMap, Method, Response, header};
use karman_types::{Limits, TaskError, TaskId, format_duration, parse_duration};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// `karman call`
#[derive(Args, Debug)]
pub(crate) struct Call {
    /// The task's name
    name: String,
    /// A file with the input, or - for standard input
    input: Option<String>,
    #[command(flatten)]
    call: CallArgs,
    /// Do not wait: have the task accepted, and print its id once it is on this node's disk (`local`) or with a majority of the
    /// keepers (`kept`)
    #[arg(long, value_name = "PROMISE")]
    accept: Option<Promise>,
    /// Idempotency key: a repeated call with this key does not run again, and prints the id of the first
    #[arg(long, value_name = "KEY", requires = "accept")]
    key: Option<String>,
    /// Ask a second node as well when the first has not answered after this time: for tasks that may run twice
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    hedge: Option<Duration>,
}

/// What an accepted task is promised.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Promise {
    /// Survives a crash and a power cut of this node
    Local,
    /// Survives the loss of this node: needs keepers, see `karman mesh keepers`
    Kept,
}

impl Promise {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Kept => "kept",
        }
    }
}

impl Call {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        // The node knows the plugin's own limit; here it is enough not to read without end.
        let most = Limits::ceiling().input;
        let input = Input::read(self.input.as_deref(), self.call.content_type.as_deref(), most)?;
        let metadata = self
            .call
            .metadata
            .iter()
            .map(|(key, value)| (format!("karman-meta-{key}"), value.clone()));
        let times = [("karman-within", self.call.within), ("karman-hedge", self.hedge)];
        let times = times
            .into_iter()
            .filter_map(|(name, time)| Some((name.to_owned(), format!("{} us", time?.as_micros()))));
        let headers: Vec<(String, String)> = metadata
            .chain(times)
            .chain(
                self.accept
                    .map(|promise| ("karman-accept".into(), promise.word().into())),
            )
            .chain(
                self.key
                    .iter()
                    .map(|key| ("karman-idempotency-key".into(), key.clone())),
            )
            .chain([("content-type".into(), input.content_type)])
            .collect();
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let path = format!("/tasks/{}", escape(&self.name));
        let called = Control::new(app)?.send(Method::POST, &path, &headers, input.body);
        let hint = || {
            format!(
                "`karman inspect` on the file of `{}` shows what it takes, where its manifest says so",
                self.name
            )
        };
        let answer = called.map_err(|error| answer::refused(error, hint))?;
        match self.accept {
            None => show(app, &answer),
            Some(promise) => accepted(app, &answer, promise),
        }
    }
}

/// Prints the id by which `karman task` knows it.
fn accepted(app: &App, answer: &Response<Bytes>, promise: Promise) -> Result<(), TaskError> {
    let id: Accepted = serde_json::from_slice(answer.body())
        .map_err(|error| TaskError::internal(format!("the node's answer does not read: {error}")))?;
    app.output.result(
        || id.task.to_string(),
        || json!({ "task": id.task, "accepted": promise.word() }),
    )
}

#[derive(Deserialize)]
struct Accepted {
    task: TaskId,
}

/// Prints the answer of a task, and where it ran if that was elsewhere.
///
/// # Errors
/// When standard output cannot be written.
pub(super) fn show(app: &App, answer: &Response<Bytes>) -> Result<(), TaskError> {
    let heads = answer.headers();
    let number = |name: &str| {
        text(heads, name)
            .and_then(|text| text.parse().ok())
            .unwrap_or_default()
    };
    let there = |(node, tier)| There {
        node,
        tier,
        why: text(heads, "karman-why"),
        decision: text(heads, "karman-decision"),
    };
    let there = text(heads, "karman-node")
        .zip(text(heads, "karman-tier"))
        .map(there);
    let answered = Answer {
        content_type: text(heads, header::CONTENT_TYPE.as_str()).unwrap_or_default(),
        body: answer.body(),
        took: Duration::from_micros(number("karman-took-us")),
        memory_peak: number("karman-memory-peak"),
        ran_on: text(heads, "karman-ran-on"),
        there,
    };
    answered.print(&app.output)?;
    if let Some(There { node, tier, .. }) = there
        && !is_here(app, node)
    {
        let node = node.get(..8).unwrap_or(node);
        app.output.note(format!(
            "ran on {node} ({tier})   {}",
            format_duration(answered.took)
        ));
    }
    Ok(())
}

/// Whether this is the node of this folder.
fn is_here(app: &App, node: &str) -> bool {
    let keys = app.keys();
    keys.is_ok_and(|keys| keys.node().id().to_string() == node)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    std::str::from_utf8(headers.get(name)?.as_bytes()).ok()
}
