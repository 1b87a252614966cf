//! Plugins: who has which, and what those of this node hold; for those with the right `manage` into service, and out of it.

use super::may_manage::MayManage;
use super::{Admin, to_the_end};
use crate::openapi::PlainError;
use crate::refusal::Refusal;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::Json;
use axum::routing::{get, post};
use bytes::Bytes;
use karman_node::{
    DeployOptions, Deployed, InPath, InQuery, MOST_PLUGIN_BYTES, OnNode, PluginStatus, error_json,
};
use karman_types::{ByteSize, ErrorKind, Grant, GrantSet, NodeId, OfferedTask, TaskError, Tier};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A list of grants may have so many bytes.
const MOST_GRANTS: ByteSize = ByteSize::kib(64);

/// Who has which plugins.
#[derive(Serialize)]
struct Installed {
    /// Those of this node, with what they hold and did.
    here: Vec<PluginStatus>,
    /// What the others in reach offer. What it holds there, a node keeps to itself.
    elsewhere: Vec<Elsewhere>,
}

#[derive(Serialize)]
struct Elsewhere {
    node: NodeId,
    tier: Tier,
    plugins: Vec<OfferedTask>,
}

/// How a deployment is to go.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct How {
    on: Option<String>,
    grant_asked: bool,
    downgrade: bool,
    replace: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Where {
    on: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    grant: Grant,
}

/// What became of it on one node: an error, or none.
#[derive(Serialize)]
struct Became {
    node: NodeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    deployed: Option<Deployed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

/// The routes. How long a body may be is judged before it comes here.
pub(super) fn router() -> Router<Admin> {
    Router::new()
        .route("/admin/plugins", get(installed))
        .route("/admin/plugins/{name}", post(deploy).delete(undeploy))
        .route("/admin/plugins/{name}/grants", post(allow).delete(disallow))
        .layer(DefaultBodyLimit::disable())
}

/// The plugins of the mesh: those of this node with their versions and grants, and what other nodes offer.
#[utoipa::path(get, path = "/admin/plugins", tag = "administration", responses(
    (status = 200, description = "The plugins of this node, and what others offer")))]
async fn installed(State(admin): State<Admin>) -> Result<Json<Installed>, Refusal> {
    let node = &admin.node;
    let offers = match node.mesh() {
        Some(_) => node.offers_lately().await?,
        None => Vec::new(),
    };
    let others = offers.into_iter().filter(|offer| !offer.here);
    let elsewhere = others.map(|other| {
        // What has a slash is what a plugin does: it stands there under its name, too.
        let tasks = other.offer.tasks.into_iter();
        Elsewhere {
            node: other.offer.node,
            tier: other.offer.tier,
            plugins: tasks.filter(|task| !task.name.contains('/')).collect(),
        }
    });
    Ok(Json(Installed {
        here: node.plugins().list(),
        elsewhere: elsewhere.collect(),
    }))
}

/// Puts a plugin into service: on this node, or on those that `on` names. Takes a token with the right `manage`.
#[utoipa::path(post, path = "/admin/plugins/{name}", tag = "administration",
    params(("name" = String, Path, description = "The plugin's name; it gives one to a component that brings none"),
        ("on" = Option<String>, Query, description = "`tier=edge`, a node's id or its beginning, or `all`. Default: this node"),
        ("grant-asked" = Option<bool>, Query, description = "Allow what it newly asks for; for this node alone"),
        ("downgrade" = Option<bool>, Query, description = "Let an older version replace a newer one"),
        ("replace" = Option<bool>, Query, description = "Let another publisher's plugin take over the name; for this node alone")),
    request_body(content = Vec<u8>, content_type = "application/wasm"), responses(
    (status = 200, description = "What became of it on each node: `deployed`, or `error`"),
    (status = 400, body = PlainError), (status = 422, body = PlainError), (status = 504, body = PlainError)))]
async fn deploy(
    State(admin): State<Admin>,
    _: MayManage,
    InPath(name): InPath<String>,
    InQuery(how): InQuery<How>,
    component: Bytes,
) -> Result<Json<Vec<Became>>, Refusal> {
    let node = admin.node;
    if component.len() > MOST_PLUGIN_BYTES {
        let most = ByteSize(MOST_PLUGIN_BYTES as u64);
        return Err(TaskError::limit(format!("a plugin's file has at most {most}"))
            .with_field("body")
            .into());
    }
    if how.on.is_some() && (how.grant_asked || how.replace) {
        let error =
            TaskError::invalid("`grant-asked` and `replace` are for this node alone").with_field("on");
        let hint = "the operators of other nodes say there what a plugin is granted (`foreign` of node.toml, or `karman node grant`)";
        return Err(error.with_hint(hint).into());
    }
    let called = node.plugins().name_of(&component, &name)?;
    if called != name {
        let error =
            TaskError::invalid(format!("the component is `{called}`, not `{name}`")).with_field("name");
        return Err(error
            .with_hint(format!("POST it to /admin/plugins/{called}"))
            .into());
    }
    let options = DeployOptions {
        grant_asked: how.grant_asked,
        downgrade: how.downgrade,
        replace: how.replace,
    };
    let deployed = to_the_end(async move {
        match how.on {
            Some(on) => node.deploy_on(&on, component, &name, options).await,
            None => {
                let deployed = node.deploy(component.into(), &name, options).await?;
                Ok(vec![OnNode {
                    node: node.runtime().id(),
                    outcome: Ok(deployed),
                }])
            }
        }
    });
    let each = deployed.await?.into_iter();
    Ok(Json(
        each.map(|on| Became::of(on.node, on.outcome.map(Some))).collect(),
    ))
}

/// Takes a plugin out of service: on this node, or on those that `on` names and that have it. Calls under way finish. Takes a token
/// with the right `manage`.
#[utoipa::path(delete, path = "/admin/plugins/{name}", tag = "administration",
    params(("name" = String, Path, description = "The plugin"),
        ("on" = Option<String>, Query, description = "`tier=edge`, a node's id or its beginning, or `all`. Default: this node")), responses(
    (status = 200, description = "What became of it on each node: an `error`, or none"),
    (status = 400, body = PlainError), (status = 404, body = PlainError)))]
async fn undeploy(
    State(admin): State<Admin>,
    _: MayManage,
    InPath(name): InPath<String>,
    InQuery(Where { on }): InQuery<Where>,
) -> Result<Json<Vec<Became>>, Refusal> {
    let node = admin.node;
    let undeployed = to_the_end(async move {
        match on {
            Some(on) => node.undeploy_on(&on, &name).await,
            None => {
                node.undeploy(&name).await?;
                Ok(vec![OnNode {
                    node: node.runtime().id(),
                    outcome: Ok(()),
                }])
            }
        }
    });
    let each = undeployed.await.map_err(missing)?.into_iter();
    Ok(Json(
        each.map(|on| Became::of(on.node, on.outcome.map(|()| None)))
            .collect(),
    ))
}

/// Allows grants to a plugin of this node, from its next call on. Takes a token with the right `manage`.
#[utoipa::path(post, path = "/admin/plugins/{name}/grants", tag = "administration",
    params(("name" = String, Path, description = "The plugin")),
    request_body(content = Vec<String>, description = "The grants, as `kv:road`"), responses(
    (status = 200, description = "What it holds now"),
    (status = 400, body = PlainError), (status = 404, body = PlainError), (status = 422, body = PlainError)))]
async fn allow(
    State(admin): State<Admin>,
    _: MayManage,
    InPath(name): InPath<String>,
    grants: Bytes,
) -> Result<Json<GrantSet>, Refusal> {
    let node = admin.node;
    if grants.len() as u64 > MOST_GRANTS.0 {
        let error = TaskError::limit(format!("a list of grants has at most {MOST_GRANTS}"));
        return Err(error.with_field("body").into());
    }
    let grants: Vec<Grant> = serde_json::from_slice(&grants).map_err(|error| {
        let error = TaskError::invalid(format!("the grants do not read: {error}")).with_field("body");
        error.with_hint("a list in JSON: [\"kv:road\"]")
    })?;
    let granted = to_the_end(async move { node.plugins().grant(&name, &grants, false).await });
    Ok(Json(granted.await.map_err(missing)?))
}

/// Takes a grant back from a plugin of this node, from its next call on. Takes a token with the right `manage`.
#[utoipa::path(delete, path = "/admin/plugins/{name}/grants", tag = "administration",
    params(("name" = String, Path, description = "The plugin"), ("grant" = String, Query, description = "The grant, as `kv:road`")),
    responses(
    (status = 200, description = "What it holds now"),
    (status = 400, body = PlainError), (status = 404, body = PlainError), (status = 422, body = PlainError)))]
async fn disallow(
    State(admin): State<Admin>,
    _: MayManage,
    InPath(name): InPath<String>,
    InQuery(Which { grant }): InQuery<Which>,
) -> Result<Json<GrantSet>, Refusal> {
    let node = admin.node;
    let left = to_the_end(async move { node.plugins().grant(&name, &[grant], true).await });
    Ok(Json(left.await.map_err(missing)?))
}

impl Became {
    fn of(node: NodeId, outcome: Result<Option<Deployed>, TaskError>) -> Self {
        let (deployed, error) = match outcome {
            Ok(deployed) => (deployed, None),
            Err(error) => (None, Some(error_json(&error))),
        };
        Self {
            node,
            deployed,
            error,
        }
    }
}

/// A plugin that is not there is told from a node that does not answer.
fn missing(error: TaskError) -> Refusal {
    match (error.kind, error.field.as_deref()) {
        (ErrorKind::Unavailable, Some("name")) => Refusal::unknown(error),
        _ => error.into(),
    }
}
