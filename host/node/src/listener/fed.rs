//! Federated runs, for the operator.

use super::answer::Refusal;
use super::extract::{InBody, InPath, InQuery};
use crate::drive::{FedModel, FedStatus};
use crate::node::Node;
use axum::Router;
use axum::extract::State;
use axum::response::Json;
use axum::routing::{get, post};
use karman_fed::Run;
use karman_types::TaskError;
use serde::Deserialize;
use std::time::Duration;

pub(crate) fn router() -> Router<Node> {
    Router::new()
        .route("/fed", get(list).post(start))
        .route("/fed/{name}", get(one).delete(remove))
        .route("/fed/{name}/model", get(model))
        .route("/fed/{name}/onnx", get(onnx))
        .route("/fed/{name}/stop", post(stop))
}

async fn list(State(node): State<Node>) -> Result<Json<Vec<FedStatus>>, Refusal> {
    Ok(Json(node.fed_runs().await?))
}

#[derive(Deserialize)]
struct Start {
    #[serde(default)]
    again: bool,
}

async fn start(
    State(node): State<Node>,
    InQuery(Start { again }): InQuery<Start>,
    InBody(run): InBody<Run>,
) -> Result<Json<FedStatus>, Refusal> {
    run.check()
        .map_err(|error| TaskError::invalid(error.to_string()))?;
    Ok(Json(node.start_fed(run, again).await?))
}

/// Which events, and how long to wait for the first of them.
#[derive(Deserialize)]
struct After {
    #[serde(default)]
    after: usize,
    #[serde(default)]
    wait_ms: u64,
}

async fn one(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    InQuery(After { after, wait_ms }): InQuery<After>,
) -> Result<Json<FedStatus>, Refusal> {
    let wait = Duration::from_millis(wait_ms);
    Ok(Json(node.fed_run_within(&name, after, wait).await?))
}

async fn remove(State(node): State<Node>, InPath(name): InPath<String>) -> Result<Json<()>, Refusal> {
    Ok(Json(node.remove_fed(&name).await?))
}

async fn model(State(node): State<Node>, InPath(name): InPath<String>) -> Result<Json<FedModel>, Refusal> {
    Ok(Json(node.fed_model(&name).await?))
}

/// The file of the model that it began with, with what was learnt.
async fn onnx(State(node): State<Node>, InPath(name): InPath<String>) -> Result<Vec<u8>, Refusal> {
    Ok(node.fed_onnx(&name).await?)
}

async fn stop(State(node): State<Node>, InPath(name): InPath<String>) -> Result<Json<()>, Refusal> {
    node.stop_fed(&name).await?;
    Ok(Json(()))
}
