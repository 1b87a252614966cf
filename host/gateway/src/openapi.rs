//! The description of the routes, made from the code that answers them.

mod node;

use crate::refusal::Speaks;
use crate::target::Target;
use crate::{admin, inference, routes};
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
        node::call,
        node::accepted,
        node::withdraw,
        node::result,
        node::run_flow,
        node::flow,
        node::withdraw_flow,
        node::why,
        node::events,
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
        routes::healthz,
        routes::readyz,
        routes::metrics,
        routes::described,
        node::plugin,
        node::plugin_post,
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
const REFUSED: [(&str, &str); 8] = [
    ("401", "It takes a token, or that one does not hold"),
    (
        "403",
        "The token has no right to it; or a page asks, or for a name, that may not without one",
    ),
    ("408", "The body comes too slowly"),
    ("413", "The body is longer than it may be"),
    (
        "415",
        "The body is compressed; `accept-encoding` says how it may come",
    ),
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

/// The description.
pub(crate) fn document() -> Document {
    Api::openapi()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::HashSet;

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
    fn every_operation_has_a_name_of_its_own() {
        let mut ids = HashSet::new();
        for (path, methods) in &paths() {
            for (method, operation) in methods.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                assert!(ids.insert(id.clone()), "{method} {path}: `{id}`");
            }
        }
    }

    #[test]
    fn a_run_takes_json_and_bytes_behind_it() {
        let paths = paths();
        for path in [
            "/v2/models/{model}/infer",
            "/v2/models/{model}/versions/{version}/infer",
        ] {
            let operation = &paths[path]["post"];
            for content in [
                &operation["requestBody"]["content"],
                &operation["responses"]["200"]["content"],
            ] {
                for kind in ["application/json", "application/octet-stream"] {
                    assert!(content[kind].is_object(), "{path}: {content}");
                }
            }
            let mut parameters = operation["parameters"].as_array().unwrap().iter();
            assert!(
                parameters.any(|parameter| parameter["name"] == "Inference-Header-Content-Length"),
                "{operation}"
            );
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
