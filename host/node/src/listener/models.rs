//! How models are run, for the operator: profiles, plans over several nodes, and one run.

use super::answer::Refusal;
use super::extract::{InBody, InPath};
use crate::drive::{InsideOrder, InsidePlan, LinkMeasure, ModelInParts, NodeProfile, SplitOrder, SplitPlan};
use crate::inference::{InferParameters, InferRequest, InferResponse, InferTensor, MOST_REQUEST};
use crate::node::Node;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::Json;
use axum::routing::{get, post, put};
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

async fn run(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    InBody(request): InBody<InferRequest>,
) -> Result<Json<InferResponse>, Refusal> {
    let inputs = request
        .inputs
        .iter()
        .map(InferTensor::read)
        .collect::<Result<_, _>>()?;
    let started = Instant::now();
    let ran = node.run_model(&name, inputs).await?;
    let took = started.elapsed();
    let outputs = ran
        .results
        .iter()
        .map(|(name, tensor)| InferTensor::write(name, tensor));
    Ok(Json(InferResponse {
        model_name: name,
        model_version: None,
        id: request.id,
        parameters: InferParameters {
            legs: ran.legs,
            decision: None,
            took_us: Some(took.as_micros() as u64),
        },
        outputs: outputs.collect(),
    }))
}
