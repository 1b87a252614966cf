//! What the node answers: its routes are those of every node, and know of no description.
#![allow(
    dead_code,
    reason = "the attributes are the description, and types are there for their schema"
)]

use super::PlainError;
use utoipa::ToSchema;

/// A workflow that is to run.
#[derive(ToSchema)]
#[schema(example = look)]
struct FlowRequest {
    /// What runs: a `flow.toml` in a text; an object with the same keys is taken, too.
    workflow: String,
    /// What goes into its first tasks.
    input: Option<serde_json::Value>,
}

/// A workflow of one task, which a model does.
fn look() -> serde_json::Value {
    let row = [0.0, 0.25, 1.0, 0.5, 0.5, 1.0, 0.25, 0.0];
    let image = serde_json::json!([[vec![row; 8]]]);
    let workflow = "name = 'look'\n[task.classify]\nrun = 'model/digits-s'\n";
    serde_json::json!({ "workflow": workflow, "input": { "image": image } })
}

/// Runs a task: the body is its input, the response's body its output. With `karman-accept` it is accepted instead.
#[utoipa::path(post, path = "/tasks/{name}", tag = "tasks",
    params(("name" = String, Path, description = "The task"),
        ("karman-within" = Option<String>, Header, description = "The longest time, as `200 ms`"),
        ("karman-hedge" = Option<String>, Header, description = "After this time without an answer a second node is asked as well, as `50 ms`"),
        ("karman-accept" = Option<String>, Header, description = "`local` or `kept`: answer when it is on the disk"),
        ("karman-idempotency-key" = Option<String>, Header, description = "Equal for requests that ask for the same effect")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses(
    (status = 200, description = "The output"), (status = 202, description = "Accepted; `location` says where its result will be"),
    (status = 400, body = PlainError), (status = 404, body = PlainError), (status = 422, body = PlainError), (status = 499, body = PlainError),
    (status = 504, body = PlainError)))]
fn call() {}

/// How far an accepted task is.
#[utoipa::path(get, path = "/accepted/{task}", tag = "tasks", params(("task" = String, Path)), responses(
    (status = 200, description = "Its status"), (status = 400, body = PlainError), (status = 404, body = PlainError)))]
fn accepted() {}

/// Withdraws an accepted task, or forgets its result.
#[utoipa::path(delete, path = "/accepted/{task}", tag = "tasks",
    params(("task" = String, Path),
        ("withdraw" = Option<bool>, Query, description = "Refuse what has ended: its result stays")), responses(
    (status = 200, description = "Its status"), (status = 400, body = PlainError), (status = 404, body = PlainError)))]
fn withdraw() {}

/// The result of an accepted task as the task answered it.
#[utoipa::path(get, path = "/accepted/{task}/result", tag = "tasks",
    params(("task" = String, Path), ("wait" = Option<String>, Query, description = "How long to wait for it, as `10 s`")), responses(
    (status = 200, description = "The result"), (status = 202, description = "None yet; its status"),
    (status = 400, body = PlainError), (status = 404, body = PlainError), (status = 422, body = PlainError), (status = 499, body = PlainError),
    (status = 504, body = PlainError)))]
fn result() {}

/// Runs a workflow: it is accepted, and goes on when this node does. Takes a right to workflows of its name.
#[utoipa::path(post, path = "/flows", tag = "workflows",
    params(("karman-accept" = Option<String>, Header, description = "`local` or `kept`: answer when it is on the disk"),
        ("karman-idempotency-key" = Option<String>, Header, description = "Equal for requests that ask for the same effect")),
    request_body = FlowRequest, responses(
    (status = 202, description = "Accepted; `location` says where it can be looked at"),
    (status = 400, body = PlainError)))]
fn run_flow() {}

/// How far a run of a workflow is, and what came out of it.
#[utoipa::path(get, path = "/flows/{run}", tag = "workflows",
    params(("run" = String, Path), ("wait" = Option<String>, Query, description = "How long to wait for its end, as `10 s`")), responses(
    (status = 200, description = "Its status"), (status = 400, body = PlainError), (status = 404, body = PlainError)))]
fn flow() {}

/// Withdraws a run that has not ended, and forgets the result of one that has.
#[utoipa::path(delete, path = "/flows/{run}", tag = "workflows",
    params(("run" = String, Path),
        ("withdraw" = Option<bool>, Query, description = "Refuse what has ended: its result stays")), responses(
    (status = 200, description = "Its status"), (status = 400, body = PlainError), (status = 404, body = PlainError)))]
fn withdraw_flow() {}

/// Who did each task of a run that names a capability, where the others were placed by a policy, and why.
#[utoipa::path(get, path = "/flows/{run}/why", tag = "workflows", params(("run" = String, Path)), responses(
    (status = 200, description = "What was decided"), (status = 400, body = PlainError)))]
fn why() {}

/// What happens to a run of a workflow, as server-sent events: what has happened so far, then what happens, until it has ended. `begun`,
/// `placed`, `item`, `retried`, `failed`, `skipped` and `done` are of its tasks, `undoing`, `undone` and `not-undone` of a failure, `brief` says that
/// single items are left out from there on, and the last one is `ended`, with the status. `cut` says why the events stop before that.
#[utoipa::path(get, path = "/flows/{run}/events", tag = "workflows",
    params(("run" = String, Path),
        ("last-event-id" = Option<String>, Header, description = "The id of the last event that is known: what came after it is told")),
    responses(
    (status = 200, description = "The events", body = String, content_type = "text/event-stream"),
    (status = 204, description = "Its end is known already"), (status = 400, body = PlainError), (status = 404, body = PlainError)))]
fn events() {}

/// Asks an HTTP plugin, which sees the path below its name, however many parts it has. Any other method reaches it, too. It does not get
/// the token.
#[utoipa::path(get, path = "/http/{name}/{path}", tag = "plugins",
    params(("name" = String, Path, description = "The plugin"), ("path" = String, Path, description = "The path that it sees")),
    responses((status = "default", description = "What the plugin answers"), (status = 404, body = PlainError)))]
fn plugin() {}

/// Sends a body to an HTTP plugin.
#[utoipa::path(post, path = "/http/{name}/{path}", tag = "plugins",
    params(("name" = String, Path, description = "The plugin"), ("path" = String, Path, description = "The path that it sees")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = "default", description = "What the plugin answers"), (status = 404, body = PlainError)))]
fn plugin_post() {}
