//! The operator's socket: a Unix socket in the node's folder, which only its user can enter. `karman node …`, `deploy` and
//! `call` speak to a running node here.

use super::answer::{Refusal, whole};
use super::connections::ShutDown;
use super::extract::{InBody, InPath, InQuery};
use super::{fed, flows, held, mesh, models, public, tasks};
use crate::logs::LogEvent;
use crate::node::{Node, NodeStatus};
use crate::plugins::{DeployOptions, Deployed, MOST_PLUGIN_BYTES};
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::Json;
use axum::routing::{delete, get, post};
use karman_types::{ByteSize, Grant, GrantSet, TaskError};
use serde::Deserialize;
use std::os::unix::fs::PermissionsExt;
use tokio::net::UnixListener;

/// Answers the operator until the shutdown.
pub(crate) async fn serve_control(node: Node, shut_down: ShutDown) -> Result<(), TaskError> {
    let path = node.runtime().home().control_socket();
    let failed = |error: std::io::Error| TaskError::internal(format!("{}: {error}", path.display()));
    // The store is locked by us, so a socket that is there was left by a node that is gone.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(failed)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let router = Router::new()
        .route(
            "/status",
            get(|State(node): State<Node>| async move { Json::<NodeStatus>(node.status()) }),
        )
        .route("/plugins/{name}", post(deploy).delete(undeploy))
        .route("/plugins/{name}/grants", post(grant))
        .route("/plugins/{name}/grants", delete(revoke))
        .route("/logs", get(logs))
        .route("/tasks/{*name}", post(public::call))
        .merge(fed::router())
        .merge(held::router(&node.runtime().config().models))
        .merge(mesh::router())
        .merge(models::router())
        .merge(tasks::operator())
        .merge(flows::operator())
        .layer(DefaultBodyLimit::max(MOST_PLUGIN_BYTES))
        .with_state(node);
    tokio::spawn(async move {
        let stopped = async move { shut_down.started().await };
        if let Err(error) = axum::serve(listener, router)
            .with_graceful_shutdown(stopped)
            .await
        {
            tracing::error!(%error, "the operator's socket failed");
        }
        let _ = std::fs::remove_file(path);
    });
    Ok(())
}

async fn deploy(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    InQuery(options): InQuery<DeployOptions>,
    file: Result<Bytes, BytesRejection>,
) -> Result<Json<Deployed>, Refusal> {
    let file = whole(file, ByteSize(MOST_PLUGIN_BYTES as u64))?;
    Ok(Json(node.deploy(file.into(), &name, options).await?))
}

async fn undeploy(State(node): State<Node>, InPath(name): InPath<String>) -> Result<Json<()>, Refusal> {
    node.undeploy(&name).await?;
    Ok(Json(()))
}

async fn grant(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    InBody(grants): InBody<Vec<Grant>>,
) -> Result<Json<GrantSet>, Refusal> {
    Ok(Json(node.plugins().grant(&name, &grants, false).await?))
}

async fn revoke(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    InBody(grants): InBody<Vec<Grant>>,
) -> Result<Json<GrantSet>, Refusal> {
    Ok(Json(node.plugins().grant(&name, &grants, true).await?))
}

#[derive(Deserialize)]
struct LogQuery {
    #[serde(default)]
    after: u64,
    plugin: Option<String>,
}

async fn logs(State(node): State<Node>, InQuery(query): InQuery<LogQuery>) -> Json<Vec<LogEvent>> {
    Json(node.logs().after(query.after, query.plugin.as_deref()))
}
