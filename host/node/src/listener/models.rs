//! How models are run, for the operator: profiles, plans over several nodes, and one run.

use super::answer::Refusal;
use super::extract::{InBody, InPath, InQuery};
use crate::drive::{InsideOrder, InsidePlan, LinkMeasure, ModelInParts, NodeProfile, SplitOrder, SplitPlan};
use crate::inference::binary::{HEADER_LENGTH, WireBody};
use crate::inference::{
    InferParameters, InferRequest, InferResponse, InferTensor, MOST_REQUEST, chosen, each_once,
};
use crate::node::Node;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post, put};
use http::header::CONTENT_TYPE;
use karman_types::TaskError;
use serde::Deserialize;
use std::time::Instant;

pub(crate) fn router() -> Router<Node> {
    let most = DefaultBodyLimit::max(MOST_REQUEST.as_usize());
    Router::new()
        .route("/models/{name}/profile", get(profile).post(profile_again))
        .route("/models/{name}/plan", get(planned).post(plan).delete(unplan))
        .route("/models/{name}/inside", post(plan_inside))
        .route("/models/{name}/links", put(state_links))
        .route("/models/{name}/run", post(run).layer(most))
}

async fn profile(
    State(node): State<Node>,
    InPath(name): InPath<String>,
) -> Result<Json<NodeProfile>, Refusal> {
    Ok(Json(node.profile_model(&name).await?))
}

async fn profile_again(
    State(node): State<Node>,
    InPath(name): InPath<String>,
) -> Result<Json<NodeProfile>, Refusal> {
    Ok(Json(node.profile_model_again(&name).await?))
}

async fn plan(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    InBody(order): InBody<SplitOrder>,
) -> Result<Json<SplitPlan>, Refusal> {
    Ok(Json(node.plan_model(&name, &order).await?))
}

async fn plan_inside(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    InBody(order): InBody<InsideOrder>,
) -> Result<Json<InsidePlan>, Refusal> {
    Ok(Json(node.plan_inside(&name, &order).await?))
}

/// How it is run in parts now; nothing where it is run here alone.
async fn planned(State(node): State<Node>, InPath(name): InPath<String>) -> Json<Option<ModelInParts>> {
    let mut models = node.models_in_parts().into_iter();
    Json(models.find(|model| model.model == name))
}

/// Whether it ran in parts until now.
async fn unplan(State(node): State<Node>, InPath(name): InPath<String>) -> Result<Json<bool>, Refusal> {
    Ok(Json(node.unsplit_model(&name).await?))
}

/// From now on the plan goes by these links, not by what is measured.
async fn state_links(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    InBody(links): InBody<Vec<LinkMeasure>>,
) -> Result<Json<()>, Refusal> {
    Ok(Json(node.state_links(&name, &links).await?))
}

/// How a run is answered.
#[derive(Deserialize)]
struct Answered {
    /// Whether outputs that do not say otherwise come as bytes behind the JSON, whatever the request says: JSON has neither NaN nor infinity.
    #[serde(default)]
    binary: bool,
}

async fn run(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    InQuery(Answered { binary }): InQuery<Answered>,
    InBody(request): InBody<InferRequest>,
) -> Result<Response, Refusal> {
    request.check()?;
    let wanted = || request.outputs.iter().map(|wanted| &wanted.name);
    each_once(wanted())?;
    let inputs = request
        .inputs
        .iter()
        .map(InferTensor::read)
        .collect::<Result<_, _>>()?;
    let started = Instant::now();
    let within = request.parameters.within();
    let running = node.run_model(&name, inputs, within);
    let ran = match within {
        None => running.await?,
        Some(within) => tokio::time::timeout(within, running).await.map_err(|_| {
            TaskError::deadline(format!("`{name}` did not finish within {within:.0?}")).with_field("timeout")
        })??,
    };
    let took = started.elapsed();
    let as_bytes = |name: &str| {
        let wanted = request.outputs.iter().find(|wanted| wanted.name == name);
        let said = wanted.and_then(|wanted| wanted.parameters.binary_data);
        said.unwrap_or(binary || request.parameters.binary_data_output)
    };
    let (mut outputs, mut behind) = (Vec::new(), Vec::new());
    for (name, tensor) in chosen(ran.results, wanted())? {
        if !as_bytes(&name) {
            outputs.push(InferTensor::write(&name, &tensor));
            continue;
        }
        let bytes = tensor.to_bytes();
        outputs.push(InferTensor::announce(&name, &tensor, Some(bytes.len() as u64)));
        behind.push(bytes);
    }
    let response = InferResponse {
        model_name: name,
        model_version: None,
        id: request.id,
        parameters: InferParameters {
            legs: ran.legs,
            decision: None,
            took_us: Some(took.as_micros() as u64),
        },
        outputs,
    };
    let json = serde_json::to_vec(&response).map_err(|error| TaskError::internal(error.to_string()))?;
    let body = WireBody::of(json, behind);
    let length = body
        .header_length
        .map(|length| [(HEADER_LENGTH, length.to_string())]);
    let kind = [(CONTENT_TYPE, body.content_type)];
    Ok((kind, length, body.bytes).into_response())
}
