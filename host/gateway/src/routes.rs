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
use axum::response::Response;
use axum::routing::get;
use http::{StatusCode, Uri};
use karman_node::Node;
use karman_types::TaskError;
use std::sync::Arc;

/// Everything but gRPC and HTTP plugins.
pub(crate) fn router(
    node: &Node,
    inference: &Inference,
    metrics: &Arc<Metrics>,
    decisions: &Arc<Decisions>,
) -> Router {
    let (ready, measured, shown) = (node.clone(), node.clone(), metrics.clone());
    let description = document().to_json().unwrap_or_default();
    let json = [(http::header::CONTENT_TYPE, "application/json")];
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route(
            "/readyz",
            get(move || {
                let is_ready = ready.is_ready();
                async move {
                    match is_ready {
                        true => (StatusCode::OK, "ready\n"),
                        false => (StatusCode::SERVICE_UNAVAILABLE, "starting or stopping\n"),
                    }
                }
            }),
        )
        .route(
            "/metrics",
            get(move || {
                let shown = shown.show(&measured);
                async move { shown }
            }),
        )
        .route(
            "/openapi.json",
            get(move || {
                let description = description.clone();
                async move { (json, description) }
            }),
        )
        .merge(inference::router(inference.clone()))
        .merge(dashboard::router())
        .merge(node.work_routes())
        .merge(admin::router(node.clone(), decisions.clone(), metrics.clone()))
        .method_not_allowed_fallback(|uri: Uri| async move { told(&other_method(), &uri) })
        .fallback(|uri: Uri| async move { told(&unknown(), &uri) })
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
