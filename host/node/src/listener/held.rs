//! What the node holds besides plugins, for its operator: models, secrets, and grants by identity.

use super::answer::{Refusal, whole};
use super::extract::{InBody, InPath, InQuery};
use crate::drive::{HeldModel, OnNode};
use crate::node::Node;
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::Json;
use axum::routing::{get, post};
use karman_infer::ModelLimits;
use karman_store::{ModelInfo, Store, StoreError};
use karman_types::{ErrorKind, Grant, GrantSet, TaskError};
use serde::Deserialize;

/// The operator's routes to them. A model's file is as long as the node's limits let it be.
pub(crate) fn router(limits: &ModelLimits) -> Router<Node> {
    let most = DefaultBodyLimit::max(limits.model.as_usize());
    Router::new()
        .route("/grants", get(allowed).post(allow).delete(revoke))
        .route("/models", get(models))
        .route("/models/{name}", post(add_model).layer(most).delete(remove_model))
        .route(
            "/mesh/models/{name}",
            post(add_model_on).layer(most).delete(remove_model_on),
        )
        .route("/secrets", get(secrets))
        .route("/secrets/{name}", post(set_secret).delete(remove_secret))
}

async fn with<T: Send + 'static>(
    node: &Node,
    step: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
) -> Result<Json<T>, Refusal> {
    Ok(Json(node.runtime().home().with(step).await?))
}

#[derive(Deserialize)]
struct Whose {
    identity: String,
}

async fn allowed(
    State(node): State<Node>,
    InQuery(Whose { identity }): InQuery<Whose>,
) -> Result<Json<GrantSet>, Refusal> {
    with(&node, move |store| store.grants().get(&identity)).await
}

async fn allow(
    State(node): State<Node>,
    InQuery(whose): InQuery<Whose>,
    InBody(grants): InBody<Vec<Grant>>,
) -> Result<Json<GrantSet>, Refusal> {
    change(&node, whose.identity, grants, false).await
}

async fn revoke(
    State(node): State<Node>,
    InQuery(whose): InQuery<Whose>,
    InBody(grants): InBody<Vec<Grant>>,
) -> Result<Json<GrantSet>, Refusal> {
    change(&node, whose.identity, grants, true).await
}

/// A plugin that serves is loaded again, so that the change binds from its next call on.
async fn change(
    node: &Node,
    identity: String,
    grants: Vec<Grant>,
    revoke: bool,
) -> Result<Json<GrantSet>, Refusal> {
    let serving = node
        .plugins()
        .list()
        .into_iter()
        .find(|plugin| plugin.identity == identity);
    if let Some(plugin) = serving {
        node.plugins().grant(&plugin.name, &grants, revoke).await?;
        return with(node, move |store| store.grants().get(&identity)).await;
    }
    if !revoke {
        node.plugins().may_be_granted(grants.clone()).await?;
    }
    with(node, move |store| match revoke {
        true => store.grants().revoke(&identity, &grants),
        false => store.grants().allow(&identity, &grants),
    })
    .await
}

async fn models(State(node): State<Node>) -> Result<Json<Vec<HeldModel>>, Refusal> {
    let Json(mut models) = with(&node, |store| {
        let models = store.models().list()?.into_iter();
        Ok(models.map(HeldModel::from).collect::<Vec<_>>())
    })
    .await?;
    for model in &mut models {
        let known = node.runtime().models();
        model.runs_on = Some(known.runs_on(&model.name, model.digest));
        model.refused = known.refused(&model.name, model.digest);
    }
    Ok(Json(models))
}

#[derive(Deserialize)]
struct About {
    #[serde(default)]
    info: String,
}

async fn add_model(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    InQuery(About { info }): InQuery<About>,
    file: Result<Bytes, BytesRejection>,
) -> Result<Json<HeldModel>, Refusal> {
    let (file, info) = (model(&node, file)?, read(&info)?);
    Ok(Json(node.add_model(&name, file, info).await?))
}

#[derive(Deserialize)]
struct AboutOn {
    on: String,
    #[serde(default)]
    info: String,
}

async fn add_model_on(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    InQuery(AboutOn { on, info }): InQuery<AboutOn>,
    file: Result<Bytes, BytesRejection>,
) -> Result<Json<Vec<OnNode<HeldModel>>>, Refusal> {
    let (file, info) = (model(&node, file)?, read(&info)?);
    Ok(Json(node.add_model_on(&on, &name, file, info).await?))
}

async fn remove_model(
    State(node): State<Node>,
    InPath(name): InPath<String>,
) -> Result<Json<HeldModel>, Refusal> {
    Ok(Json(node.remove_model(&name).await?))
}

#[derive(Deserialize)]
struct On {
    on: String,
}

async fn remove_model_on(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    InQuery(On { on }): InQuery<On>,
) -> Result<Json<Vec<OnNode<()>>>, Refusal> {
    Ok(Json(node.remove_model_on(&on, &name).await?))
}

/// The file of a model, as long as the node took when it was started.
fn model(node: &Node, file: Result<Bytes, BytesRejection>) -> Result<Bytes, TaskError> {
    let most = node.runtime().config().models.model;
    whole(file, most).map_err(|error| match error.kind {
        ErrorKind::Limit => {
            TaskError::limit(format!("the model is larger than {most}, which this node takes"))
                .with_field("models.model")
                .with_hint(
                    "raise `models.model` in node.toml and start the node again: it reads it when it starts",
                )
        }
        _ => error,
    })
}

/// What is known of a model, as a JSON object; nothing of nothing.
fn read(info: &str) -> Result<ModelInfo, TaskError> {
    match info {
        "" => Ok(ModelInfo::default()),
        info => serde_json::from_str(info).map_err(|error| {
            TaskError::invalid(format!("`info` is no JSON object: {error}")).with_field("info")
        }),
    }
}

async fn secrets(State(node): State<Node>) -> Result<Json<Vec<String>>, Refusal> {
    with(&node, |store| store.secrets().list()).await
}

async fn set_secret(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    value: Bytes,
) -> Result<Json<()>, Refusal> {
    with(&node, move |store| store.secrets().set(&name, &value)).await
}

async fn remove_secret(
    State(node): State<Node>,
    InPath(name): InPath<String>,
) -> Result<Json<bool>, Refusal> {
    with(&node, move |store| store.secrets().remove(&name)).await
}
