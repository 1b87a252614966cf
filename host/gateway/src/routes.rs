//! Everything that is a route, and its description.

use crate::dashboard;
use crate::inference::{self, Inference};
use crate::metrics::Metrics;
use crate::openapi::document;
use crate::pipeline::unknown;
use crate::target::Target;
use axum::Router;
use axum::routing::get;
use http::{StatusCode, Uri};
use karman_node::Node;
use std::sync::Arc;

/// Everything but gRPC and HTTP plugins.
pub(crate) fn router(node: &Node, inference: &Inference, metrics: &Arc<Metrics>) -> Router {
    let (ready, measured, metrics) = (node.clone(), node.clone(), metrics.clone());
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
                let shown = metrics.show(&measured);
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
        .fallback(|uri: Uri| async move { unknown().response(Target::of(uri.path()).speaks()) })
}
