//! Workflows over HTTP: running them, how far they are, and withdrawing them. Whoever knows the id of a run may ask: it is as good as
//! random. Only the operator sees them all.

use super::answer::{Refusal, whole};
use super::events::events;
use super::extract::{InBody, InPath, InQuery};
use super::public::accepting;
use super::tasks::{Removal, Wait, read};
use crate::drive::{FlowOrder, FlowStatus, MeasureOrder, Measured};
use crate::node::Node;
use crate::services::apart;
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use karman_sched::log::Told;
use karman_tasks::Guarantee;
use karman_types::Limits;
use serde_json::json;

/// What anyone may ask.
pub(crate) fn router() -> Router<Node> {
    Router::new()
        .route("/flows", post(run))
        .route("/flows/{run}", get(status).delete(remove))
        .route("/flows/{run}/why", get(why))
        .route("/flows/{run}/events", get(events))
        .layer(DefaultBodyLimit::max(Limits::ceiling().input.as_usize()))
}

/// What the operator may ask besides.
pub(crate) fn operator() -> Router<Node> {
    router()
        .route("/flows", get(list))
        .route("/flows/measure", post(measure))
        .route("/decisions", get(decisions))
        .layer(DefaultBodyLimit::max(Limits::ceiling().input.as_usize()))
}

async fn measure(
    State(node): State<Node>,
    InBody(order): InBody<MeasureOrder>,
) -> Result<Json<Vec<Measured>>, Refusal> {
    Ok(Json(node.tasks().measure(order).await?))
}

/// The log of decisions in CBOR, as `karman replay` reads it.
async fn decisions(State(node): State<Node>) -> Result<Response, Refusal> {
    let log = node.tasks().decisions().written().await?;
    Ok(([(header::CONTENT_TYPE, "application/cbor")], log).into_response())
}

/// Why a run was served by whom it was.
async fn why(State(node): State<Node>, InPath(run): InPath<String>) -> Result<Json<Vec<Told>>, Refusal> {
    let told = node.tasks().decisions().told(read(&run)?);
    Ok(Json(told.await?))
}

/// `POST /flows`: the body is `{"workflow": …, "input": …}`, the workflow a `flow.toml` in a text, or the same keys in JSON. The
/// answer is the id of the run, once it is durable: on this disk, or with the keepers where the header `karman-accept` says `kept`.
async fn run(
    State(node): State<Node>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refusal> {
    let body = whole(body, Limits::ceiling().input)?;
    let order = apart(body.len(), move || FlowOrder::read(&body)).await?;
    let (promise, key) = accepting(&headers)?;
    let promise = promise.unwrap_or(Guarantee::Local);
    let run = node.tasks().run_flow(&order, promise, key).await?;
    let place = [(header::LOCATION, format!("/flows/{run}"))];
    Ok((StatusCode::ACCEPTED, place, Json(json!({ "flow": run }))).into_response())
}

async fn list(State(node): State<Node>) -> Result<Json<Vec<FlowStatus>>, Refusal> {
    Ok(Json(node.tasks().flows().await))
}

async fn status(
    State(node): State<Node>,
    InPath(run): InPath<String>,
    InQuery(wait): InQuery<Wait>,
) -> Result<Json<FlowStatus>, Refusal> {
    let status = node.tasks().flow_within(read(&run)?, wait.time()?);
    Ok(Json(status.await?))
}

/// Withdraws a run that has not ended; forgets the result of one that has, unless it is only to be withdrawn.
async fn remove(
    State(node): State<Node>,
    InPath(run): InPath<String>,
    InQuery(Removal { withdraw }): InQuery<Removal>,
) -> Result<Json<FlowStatus>, Refusal> {
    let (run, tasks) = (read(&run)?, node.tasks());
    Ok(Json(match withdraw {
        true => tasks.withdraw_flow(run).await?,
        false => tasks.remove_flow(run).await?,
    }))
}
