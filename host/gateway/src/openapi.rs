//! The description of the routes, made from the code that answers them.

use crate::refusal::Speaks;
use crate::target::Target;
use crate::{admin, inference};
use http::StatusCode;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Content, OpenApi as Document, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{Modify, OpenApi, ToSchema};

#[derive(OpenApi)]
#[openapi(
    info(title = "Karman gateway", description = "Inference, tasks and administration for a whole mesh. Open Inference Protocol v2."),
    paths(
        inference::server,
        inference::live,
        inference::ready,
        inference::index,
        inference::model,
        inference::model_ready,
        inference::infer,
        inference::model_version,
        inference::model_version_ready,
        inference::infer_version,
        call,
        accepted,
        withdraw,
        result,
        run_flow,
        flow,
        withdraw_flow,
        why,
        events,
        admin::nodes,
        admin::models,
        admin::tasks,
        admin::flows,
        admin::slos,
        admin::gpu,
        admin::rounds,
        admin::contacts,
        admin::decided,
        admin::errors,
        admin::load,
        admin::drain,
        admin::plugins::installed,
        admin::plugins::deploy,
        admin::plugins::undeploy,
        admin::plugins::allow,
        admin::plugins::disallow,
        admin::invitations::invitations,
        admin::invitations::invite,
        admin::invitations::withdraw,
        healthz,
        readyz,
        metrics,
        described,
        plugin,
        plugin_post,
    ),
    components(schemas(PlainError)),
    modifiers(&Bearer, &Refused),
    security((), ("token" = [])),
)]
struct Api;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut Document) {
        let components = document.components.get_or_insert_default();
        let scheme = Http::builder()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("Biscuit")
            .build();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// What the gateway itself may answer, whichever route is asked for: it refuses before the route is reached.
struct Refused;

/// Why, by status.
const REFUSED: [(&str, &str); 7] = [
    ("401", "It takes a token, or that one does not hold"),
    (
        "403",
        "The token has no right to it; or a page asks, or for a name, that may not without one",
    ),
    ("408", "The body comes too slowly"),
    ("413", "The body is longer than it may be"),
    (
        "429",
        "Too many requests, or tokens that do not hold; `retry-after` says when to come again",
    ),
    ("500", "It failed in the gateway"),
    (
        "503",
        "The gateway is full, or nobody answers who could; `retry-after` may say when to come again",
    ),
];

impl Modify for Refused {
    fn modify(&self, document: &mut Document) {
        for (path, item) in &mut document.paths.paths {
            let target = Target::of(path);
            let operations = [&mut item.get, &mut item.post, &mut item.put, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                let responses = &mut operation.responses.responses;
                // Those who watch over it are let in by whatever name, with whatever token.
                if target != Target::Health {
                    for (status, why) in REFUSED {
                        let response = || RefOr::T(refused(why, target.speaks()));
                        responses.entry(status.to_owned()).or_insert_with(response);
                    }
                }
                for (status, response) in responses {
                    if let RefOr::T(response) = response {
                        explain(status, response);
                    }
                }
            }
        }
    }
}

fn refused(why: &str, speaks: Speaks) -> Response {
    let schema = match speaks {
        Speaks::Inference => "InferenceError",
        Speaks::Plain | Speaks::Grpc => "PlainError",
    };
    let content = Content::new(Some(Ref::from_schema_name(schema)));
    ResponseBuilder::new()
        .description(why)
        .content("application/json", content)
        .build()
}

/// A response that says nothing of itself says what its status does.
fn explain(status: &str, response: &mut Response) {
    if response.description.is_empty() {
        let known: Option<StatusCode> = status.parse().ok();
        let reason = known.and_then(|status| status.canonical_reason());
        response.description = reason.unwrap_or("The caller went away").to_owned();
    }
}

/// An error of tasks, plugins and administration.
#[derive(ToSchema)]
#[allow(
    dead_code,
    reason = "only its schema is used: the one that writes it is `Refusal`"
)]
pub(crate) struct PlainError {
    /// `failed`, `invalid`, `denied`, `unavailable`, `deadline`, `limit`, `cancelled` or `internal`.
    code: String,
    /// What failed, with the value that did.
    message: String,
    /// What to do next.
    hint: Option<String>,
    /// The field that is wrong.
    field: Option<String>,
}

/// A workflow that is to run.
#[derive(ToSchema)]
#[schema(example = look)]
#[allow(
    dead_code,
    reason = "only its schema is used: the one that reads it is the node"
)]
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

/// The description.
pub(crate) fn document() -> Document {
    Api::openapi()
}

// What the node answers is described here: its routes are those of every node, and know of no description.

/// Runs a task: the body is its input, the response's body its output. With `karman-accept` it is accepted instead.
#[utoipa::path(post, path = "/tasks/{name}", tag = "tasks",
    params(("name" = String, Path, description = "The task"),
        ("karman-within" = Option<String>, Header, description = "The longest time, as `200 ms`"),
        ("karman-accept" = Option<String>, Header, description = "`local` or `kept`: answer when it is on the disk"),
        ("karman-idempotency-key" = Option<String>, Header, description = "Equal for requests that ask for the same effect")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses(
    (status = 200, description = "The output"), (status = 202, description = "Accepted; `location` says where its result will be"),
    (status = 400, body = PlainError), (status = 401, body = PlainError), (status = 403, body = PlainError),
    (status = 404, body = PlainError), (status = 408, body = PlainError), (status = 413, body = PlainError), (status = 422, body = PlainError),
    (status = 429, body = PlainError), (status = 499, body = PlainError), (status = 503, body = PlainError),
    (status = 504, body = PlainError)))]
#[allow(dead_code, reason = "its attribute is the description")]
fn call() {}

/// How far an accepted task is.
#[utoipa::path(get, path = "/accepted/{task}", tag = "tasks", params(("task" = String, Path)), responses(
    (status = 200, description = "Its status"), (status = 400, body = PlainError), (status = 401, body = PlainError),
    (status = 403, body = PlainError), (status = 404, body = PlainError), (status = 503, body = PlainError)))]
#[allow(dead_code, reason = "its attribute is the description")]
fn accepted() {}

/// Withdraws an accepted task, or forgets its result.
#[utoipa::path(delete, path = "/accepted/{task}", tag = "tasks", params(("task" = String, Path)), responses(
    (status = 200, description = "Its status"), (status = 400, body = PlainError), (status = 401, body = PlainError),
    (status = 403, body = PlainError), (status = 404, body = PlainError), (status = 503, body = PlainError)))]
#[allow(dead_code, reason = "its attribute is the description")]
fn withdraw() {}

/// The result of an accepted task as the task answered it.
#[utoipa::path(get, path = "/accepted/{task}/result", tag = "tasks",
    params(("task" = String, Path), ("wait" = Option<String>, Query, description = "How long to wait for it, as `10 s`")), responses(
    (status = 200, description = "The result"), (status = 202, description = "None yet; its status"),
    (status = 400, body = PlainError), (status = 401, body = PlainError), (status = 403, body = PlainError),
    (status = 404, body = PlainError), (status = 422, body = PlainError), (status = 499, body = PlainError),
    (status = 503, body = PlainError), (status = 504, body = PlainError)))]
#[allow(dead_code, reason = "its attribute is the description")]
fn result() {}

/// Runs a workflow: it is accepted, and goes on when this node does. Takes a right to workflows of its name.
#[utoipa::path(post, path = "/flows", tag = "workflows",
    params(("karman-accept" = Option<String>, Header, description = "`local` or `kept`: answer when it is on the disk"),
        ("karman-idempotency-key" = Option<String>, Header, description = "Equal for requests that ask for the same effect")),
    request_body = FlowRequest, responses(
    (status = 202, description = "Accepted; `location` says where it can be looked at"),
    (status = 400, body = PlainError), (status = 401, body = PlainError), (status = 403, body = PlainError),
    (status = 413, body = PlainError), (status = 429, body = PlainError), (status = 503, body = PlainError)))]
#[allow(dead_code, reason = "its attribute is the description")]
fn run_flow() {}

/// How far a run of a workflow is, and what came out of it.
#[utoipa::path(get, path = "/flows/{run}", tag = "workflows",
    params(("run" = String, Path), ("wait" = Option<String>, Query, description = "How long to wait for its end, as `10 s`")), responses(
    (status = 200, description = "Its status"), (status = 400, body = PlainError), (status = 401, body = PlainError),
    (status = 403, body = PlainError), (status = 404, body = PlainError), (status = 503, body = PlainError)))]
#[allow(dead_code, reason = "its attribute is the description")]
fn flow() {}

/// Withdraws a run that has not ended, and forgets the result of one that has.
#[utoipa::path(delete, path = "/flows/{run}", tag = "workflows", params(("run" = String, Path)), responses(
    (status = 200, description = "Its status"), (status = 400, body = PlainError), (status = 401, body = PlainError),
    (status = 403, body = PlainError), (status = 404, body = PlainError), (status = 503, body = PlainError)))]
#[allow(dead_code, reason = "its attribute is the description")]
fn withdraw_flow() {}

/// Who did each task of a run that names a capability, and why.
#[utoipa::path(get, path = "/flows/{run}/why", tag = "workflows", params(("run" = String, Path)), responses(
    (status = 200, description = "What was decided"), (status = 400, body = PlainError), (status = 401, body = PlainError),
    (status = 403, body = PlainError)))]
#[allow(dead_code, reason = "its attribute is the description")]
fn why() {}

/// What happens to a run of a workflow, as server-sent events: what has happened so far, then what happens, until it has ended. `begun`,
/// `item`, `retried`, `failed`, `skipped` and `done` are of its tasks, `undoing`, `undone` and `not-undone` of a failure, `brief` says that
/// single items are left out from there on, and the last one is `ended`, with the status. `cut` says why the events stop before that.
#[utoipa::path(get, path = "/flows/{run}/events", tag = "workflows",
    params(("run" = String, Path),
        ("last-event-id" = Option<String>, Header, description = "The id of the last event that is known: what came after it is told")),
    responses(
    (status = 200, description = "The events", body = String, content_type = "text/event-stream"),
    (status = 204, description = "Its end is known already"), (status = 400, body = PlainError), (status = 401, body = PlainError),
    (status = 403, body = PlainError), (status = 404, body = PlainError), (status = 503, body = PlainError)))]
#[allow(dead_code, reason = "its attribute is the description")]
fn events() {}

/// Whether the process runs.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "It runs")))]
#[allow(dead_code, reason = "its attribute is the description")]
fn healthz() {}

/// Whether the gateway answers.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, description = "It does"), (status = 503, description = "Not yet, or no more")))]
#[allow(dead_code, reason = "its attribute is the description")]
fn readyz() {}

/// What is measured, in the text format of OpenMetrics.
#[utoipa::path(get, path = "/metrics", tag = "health", responses(
    (status = 200, description = "Measurements", content_type = "application/openmetrics-text"),
    (status = 401, body = PlainError), (status = 403, body = PlainError)))]
#[allow(dead_code, reason = "its attribute is the description")]
fn metrics() {}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "health", responses((status = 200, description = "OpenAPI, in JSON")))]
#[allow(dead_code, reason = "its attribute is the description")]
fn described() {}

/// Asks an HTTP plugin, which sees the path below its name, however many parts it has. Any other method reaches it, too. It does not get
/// the token.
#[utoipa::path(get, path = "/http/{name}/{path}", tag = "plugins",
    params(("name" = String, Path, description = "The plugin"), ("path" = String, Path, description = "The path that it sees")),
    responses((status = "default", description = "What the plugin answers"), (status = 404, body = PlainError)))]
#[allow(dead_code, reason = "its attribute is the description")]
fn plugin() {}

/// Sends a body to an HTTP plugin.
#[utoipa::path(post, path = "/http/{name}/{path}", tag = "plugins",
    params(("name" = String, Path, description = "The plugin"), ("path" = String, Path, description = "The path that it sees")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = "default", description = "What the plugin answers"), (status = 404, body = PlainError)))]
#[allow(dead_code, reason = "its attribute is the description")]
fn plugin_post() {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn paths() -> serde_json::Map<String, Value> {
        let document = serde_json::to_value(document()).unwrap();
        document["paths"].as_object().unwrap().clone()
    }

    #[test]
    fn every_route_of_the_gateway_is_described() {
        let paths = paths();
        let files = [
            include_str!("routes.rs"),
            include_str!("inference/rest.rs"),
            include_str!("admin/mod.rs"),
            include_str!("admin/plugins.rs"),
            include_str!("admin/invitations.rs"),
        ];
        for file in files {
            for route in file.split(".route(").skip(1) {
                let path = route.split('"').nth(1).unwrap();
                assert!(paths.contains_key(path), "{path}");
            }
        }
    }

    #[test]
    fn what_the_gateway_refuses_is_described_for_every_route() {
        let paths = paths();
        for (path, methods) in &paths {
            for (method, operation) in methods.as_object().unwrap() {
                let responses = operation["responses"].as_object().unwrap();
                for (status, response) in responses {
                    let says = response["description"].as_str();
                    assert!(
                        says.is_some_and(|says| !says.is_empty()),
                        "{method} {path}: {status}"
                    );
                }
                let refused = REFUSED.iter().all(|(status, _)| responses.contains_key(*status));
                let is_health = Target::of(path) == Target::Health;
                assert!(refused != is_health, "{method} {path}: {responses:?}");
            }
        }
        let index = &paths["/v2/repository/index"]["post"]["responses"]["401"];
        let schema = &index["content"]["application/json"]["schema"]["$ref"];
        assert_eq!(schema, "#/components/schemas/InferenceError");
    }
}
