//! Everything that is a route, and its description.

use crate::decisions::Decisions;
use crate::inference::{self, Inference};
use crate::metrics::Metrics;
use crate::openapi::document;
use crate::pipeline::unknown;
use crate::refusal::Refusal;
use crate::target::Target;
use crate::{admin, dashboard};
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{StatusCode, Uri};
use karman_node::{Node, health};
use karman_types::TaskError;
use std::sync::Arc;

/// What the gateway's own routes answer from.
#[derive(Clone)]
struct Own {
    node: Node,
    metrics: Arc<Metrics>,
    /// All routes, as OpenAPI in JSON.
    description: Bytes,
}

/// Everything but gRPC and HTTP plugins.
pub(crate) fn router(
    node: &Node,
    inference: &Inference,
    measured: &Arc<Metrics>,
    decisions: &Arc<Decisions>,
) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(described))
        .with_state(Own {
            node: node.clone(),
            metrics: measured.clone(),
            description: document().to_json().unwrap_or_default().into(),
        })
        .merge(inference::router(inference.clone()))
        .merge(dashboard::router())
        .merge(node.work_routes())
        .merge(admin::router(node.clone(), decisions.clone(), measured.clone()))
        .method_not_allowed_fallback(|uri: Uri| async move { told(&other_method(), &uri) })
        .fallback(|uri: Uri| async move { told(&unknown(), &uri) })
}

/// Whether the process runs, and need not be started again.
#[utoipa::path(get, path = "/healthz", tag = "health", responses(
    (status = 200, description = "It runs"), (status = 503, description = "It has to be started again, and why")))]
async fn healthz(State(own): State<Own>) -> (StatusCode, String) {
    health("ok", own.node.not_live())
}

/// Whether the gateway answers.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, description = "It does"), (status = 503, description = "Not yet, or no more")))]
async fn readyz(State(own): State<Own>) -> (StatusCode, String) {
    health("ready", own.node.not_ready())
}

/// What is measured, in the text format of OpenMetrics.
#[utoipa::path(get, path = "/metrics", tag = "health", responses(
    (status = 200, description = "Measurements", content_type = "application/openmetrics-text")))]
async fn metrics(State(own): State<Own>) -> Response {
    own.metrics.show(&own.node)
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "health", responses((status = 200, description = "OpenAPI, in JSON")))]
async fn described(State(own): State<Own>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], own.description)
}

/// A path that is there, asked by a method that it does not take; the router says in `allow` which it does.
fn other_method() -> Refusal {
    let error = TaskError::invalid("this path takes another method").with_field("method");
    let error = error.with_hint("the header `allow` names those that it takes");
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, error)
}

fn told(refusal: &Refusal, uri: &Uri) -> Response {
    refusal.response(Target::of(uri.path()).speaks())
}
