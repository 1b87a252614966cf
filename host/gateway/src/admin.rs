//! How the mesh is run, for those with the right `admin`: nodes, models, tasks, what was decided lately, what went wrong. Also
//! what the dashboard shows.

use crate::decisions::{Decided, Decisions};
use crate::metrics::{Load, Metrics};
use crate::refusal::Refusal;
use axum::Router;
use axum::extract::State;
use axum::response::Json;
use axum::routing::{get, post};
use karman_node::{LogEvent, ModelInParts, Node, NodeStatus, PeerStatus, TaskStatus};
use karman_types::{NodeId, Offer, TaskError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Events that are shown at most.
const MOST_EVENTS: usize = 200;

/// What the routes work with.
#[derive(Clone)]
struct Admin {
    node: Node,
    decisions: Arc<Decisions>,
    metrics: Arc<Metrics>,
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
        .route("/admin/decisions", get(decided))
        .route("/admin/errors", get(errors))
        .route("/admin/load", get(load))
        .route("/admin/drain", post(drain))
        .with_state(Admin {
            node,
            decisions,
            metrics,
        })
}

/// The nodes of the mesh.
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
async fn models(State(admin): State<Admin>) -> Result<Json<Models>, Refusal> {
    Ok(Json(Models {
        held: admin.node.models_of_mesh().await?,
        in_parts: admin.node.models_in_parts(),
    }))
}

/// Accepted tasks.
async fn tasks(State(admin): State<Admin>) -> Json<Vec<TaskStatus>> {
    Json(admin.node.accepted_tasks())
}

/// What was decided lately, the last first.
async fn decided(State(admin): State<Admin>) -> Json<Vec<Decided>> {
    Json(admin.decisions.last())
}

/// What went wrong lately, the last first.
async fn errors(State(admin): State<Admin>) -> Json<Vec<LogEvent>> {
    let mut events = admin.node.logs().after(0, None);
    events.retain(|event| matches!(event.level.as_str(), "warn" | "error"));
    events.reverse();
    events.truncate(MOST_EVENTS);
    Json(events)
}

/// What runs, waits and is held.
async fn load(State(admin): State<Admin>) -> Json<Load> {
    Json(admin.metrics.load())
}

/// Takes the node out of service; answers when nothing runs any more.
async fn drain(State(admin): State<Admin>) -> Result<Json<Vec<NodeId>>, Refusal> {
    // It goes on when the caller goes away: a node that takes nothing new, and hands nothing on either, would help nobody.
    let drained = tokio::spawn(async move { admin.node.drain().await }).await;
    let failed =
        |error: tokio::task::JoinError| TaskError::internal(format!("the node is not drained: {error}"));
    Ok(Json(drained.map_err(failed)?))
}
