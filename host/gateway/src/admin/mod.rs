//! How the mesh is run, for those with the right `admin`: nodes, models, plugins, invitations, tasks, workflows, federated rounds,
//! objectives, contacts, GPU, what was decided lately, what went wrong. Also what the dashboard shows.

pub(crate) mod invitations;
mod may_manage;
pub(crate) mod plugins;
mod rounds;

use crate::decisions::{Decided, Decisions};
use crate::metrics::{Load, Metrics};
use crate::refusal::Refusal;
use axum::Router;
use axum::extract::State;
use axum::response::Json;
use axum::routing::{get, post};
use karman_node::{
    ContactsAhead, FlowStatus, GpuUse, LogEvent, ModelInParts, Node, NodeStatus, PeerStatus, SloHour,
    TaskStatus,
};
use karman_types::{NodeId, Offer, TaskError};
use rounds::{Rounds, RunRounds};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Events that are shown at most.
const MOST_EVENTS: usize = 200;
/// Runs of workflows that are shown at most.
const MOST_FLOWS: usize = 50;
/// Contacts that are shown at most.
const MOST_CONTACTS: usize = 500;
/// How far ahead contacts are shown.
const AHEAD: Duration = Duration::from_secs(12 * 3600);

/// What the routes work with.
#[derive(Clone)]
struct Admin {
    node: Node,
    decisions: Arc<Decisions>,
    metrics: Arc<Metrics>,
    rounds: Arc<Rounds>,
}

/// The nodes of the mesh as this one sees them.
#[derive(Serialize)]
struct Nodes {
    /// This node.
    here: NodeStatus,
    /// What it offers.
    offer: Offer,
    /// The others that it has met.
    peers: Vec<PeerStatus>,
}

/// The models of the nodes in reach.
#[derive(Serialize)]
struct Models {
    /// Who has each, this node first, then by distance.
    held: BTreeMap<String, Vec<NodeId>>,
    /// Those of this node that are run in parts.
    in_parts: Vec<ModelInParts>,
}

/// The routes.
pub(crate) fn router(node: Node, decisions: Arc<Decisions>, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/admin/nodes", get(nodes))
        .route("/admin/models", get(models))
        .route("/admin/tasks", get(tasks))
        .route("/admin/flows", get(flows))
        .route("/admin/slos", get(slos))
        .route("/admin/rounds", get(rounds))
        .route("/admin/gpu", get(gpu))
        .route("/admin/contacts", get(contacts))
        .route("/admin/decisions", get(decided))
        .route("/admin/errors", get(errors))
        .route("/admin/load", get(load))
        .route("/admin/drain", post(drain))
        .merge(plugins::router())
        .merge(invitations::router())
        .with_state(Admin {
            node,
            decisions,
            metrics,
            rounds: Arc::default(),
        })
}

/// The nodes of the mesh.
#[utoipa::path(get, path = "/admin/nodes", tag = "administration", responses(
    (status = 200, description = "This node, what it offers, and those that it has met")))]
async fn nodes(State(admin): State<Admin>) -> Result<Json<Nodes>, Refusal> {
    let node = &admin.node;
    let peers = match node.mesh() {
        Some(_) => node.peers()?,
        None => Vec::new(),
    };
    Ok(Json(Nodes {
        here: node.status(),
        offer: node.offer(),
        peers,
    }))
}

/// The models of the mesh, and which run in parts.
#[utoipa::path(get, path = "/admin/models", tag = "administration", responses(
    (status = 200, description = "Who holds each model, and which are run in parts")))]
async fn models(State(admin): State<Admin>) -> Result<Json<Models>, Refusal> {
    Ok(Json(Models {
        held: admin.node.models_of_mesh().await?,
        in_parts: admin.node.models_in_parts(),
    }))
}

/// Accepted tasks.
#[utoipa::path(get, path = "/admin/tasks", tag = "administration", responses(
    (status = 200, description = "How far each is")))]
async fn tasks(State(admin): State<Admin>) -> Json<Vec<TaskStatus>> {
    Json(admin.node.accepted_tasks())
}

/// The last runs of workflows, the newest first, without what came out of them.
#[utoipa::path(get, path = "/admin/flows", tag = "administration", responses(
    (status = 200, description = "How far each run and each of its tasks is")))]
async fn flows(State(admin): State<Admin>) -> Json<Vec<FlowStatus>> {
    Json(admin.node.last_flows(MOST_FLOWS).await)
}

/// How far workflows have kept their objectives within the last hour, minute by minute.
#[utoipa::path(get, path = "/admin/slos", tag = "administration", responses(
    (status = 200, description = "For each workflow with objectives, the runs that ended in each minute: all, failed, late")))]
async fn slos(State(admin): State<Admin>) -> Json<SloHour> {
    Json(admin.node.slo_hour())
}

/// How much the GPU of this node is used.
#[utoipa::path(get, path = "/admin/gpu", tag = "administration", responses(
    (status = 200, description = "Which it is, how long it has worked, what waits; or why there is none")))]
async fn gpu(State(admin): State<Admin>) -> Json<GpuUse> {
    Json(admin.node.runtime().models().gpu_use())
}

/// Federated runs that this node drives, or has driven: those that go on first.
#[utoipa::path(get, path = "/admin/rounds", tag = "administration", responses(
    (status = 200, body = Vec<RunRounds>)))]
async fn rounds(State(admin): State<Admin>) -> Result<Json<Vec<RunRounds>>, Refusal> {
    Ok(Json(admin.rounds.look(&admin.node).await?))
}

/// Contacts of the next twelve hours, by the plan that this node keeps to.
#[utoipa::path(get, path = "/admin/contacts", tag = "administration", responses(
    (status = 200, body = ContactsAhead)))]
async fn contacts(State(admin): State<Admin>) -> Result<Json<Arc<ContactsAhead>>, Refusal> {
    Ok(Json(admin.node.contacts_ahead(AHEAD, MOST_CONTACTS).await?))
}

/// What was decided lately, the last first.
#[utoipa::path(get, path = "/admin/decisions", tag = "administration", responses(
    (status = 200, description = "What was asked, who answered, and why")))]
async fn decided(State(admin): State<Admin>) -> Json<Vec<Decided>> {
    Json(admin.decisions.last())
}

/// What went wrong lately, the last first.
#[utoipa::path(get, path = "/admin/errors", tag = "administration", responses(
    (status = 200, description = "Warnings and errors of the log")))]
async fn errors(State(admin): State<Admin>) -> Json<Vec<LogEvent>> {
    let mut events = admin.node.logs().after(0, None);
    events.retain(|event| matches!(event.level.as_str(), "warn" | "error"));
    events.reverse();
    events.truncate(MOST_EVENTS);
    Json(events)
}

/// What runs, waits and is held.
#[utoipa::path(get, path = "/admin/load", tag = "administration", responses(
    (status = 200, description = "Counts")))]
async fn load(State(admin): State<Admin>) -> Json<Load> {
    Json(admin.metrics.load())
}

/// Takes the node out of service; answers when nothing runs any more.
#[utoipa::path(post, path = "/admin/drain", tag = "administration", responses(
    (status = 200, description = "The nodes that it handed its work over to")))]
async fn drain(State(admin): State<Admin>) -> Result<Json<Vec<NodeId>>, Refusal> {
    // A node that takes nothing new, and hands nothing on either, would help nobody.
    let drained = to_the_end(async move { Ok(admin.node.drain().await) });
    Ok(Json(drained.await?))
}

/// Does something that is not to be left half done: it goes on when the caller goes away.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, TaskError>> + Send + 'static,
) -> Result<T, TaskError> {
    let failed = |error: tokio::task::JoinError| TaskError::internal(format!("it broke off: {error}"));
    tokio::spawn(work).await.map_err(failed)?
}
