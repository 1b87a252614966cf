//! The mesh, for the node's operator: who is there, what they offer, and deployments on them.

use super::answer::Refusal;
use super::extract::{InBody, InPath, InQuery};
use crate::contacts::contact_plan;
use crate::drive::{
    BundleStatus, Diagnosis, InviteOrder, KeepersStatus, NodeOffer, OnNode, PeerStatus, Pinged, Revoked,
    Rotated, Sent, mesh_of,
};
use crate::node::Node;
use crate::plugins::{DeployOptions, Deployed};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Json;
use axum::routing::{delete, get, post};
use karman_mesh::InvitationStatus;
use karman_space::{Contact, Priority, Time};
use karman_types::NodeId;
use serde::Deserialize;
use std::time::Duration;

pub(crate) fn router() -> Router<Node> {
    Router::new()
        .route("/mesh/peers", get(peers))
        .route("/mesh/offers", get(offers))
        .route("/mesh/addresses", get(addresses))
        .route("/mesh/diagnosis", get(diagnosis))
        .route("/mesh/keepers", get(keepers).post(name_keepers))
        .route("/mesh/ping/{node}", get(ping))
        .route("/mesh/revoked/{node}", post(revoke))
        .route("/mesh/invitations", get(invitations).post(invite))
        .route("/mesh/invitations/{id}", delete(withdraw))
        .route("/mesh/root", post(rotate))
        .route("/mesh/plugins/{name}", post(deploy).delete(undeploy))
        .route("/mesh/contacts", get(contacts))
        .route("/mesh/bundles", get(bundles))
        .route("/mesh/bundles/{name}", post(deploy_later))
}

async fn peers(State(node): State<Node>) -> Result<Json<Vec<PeerStatus>>, Refusal> {
    Ok(Json(node.peers()?))
}

async fn offers(State(node): State<Node>) -> Result<Json<Vec<NodeOffer>>, Refusal> {
    Ok(Json(node.offers().await?))
}

async fn addresses(State(node): State<Node>) -> Result<Json<Vec<String>>, Refusal> {
    let addresses = mesh_of(&node)?.addresses().await;
    Ok(Json(addresses.iter().map(ToString::to_string).collect()))
}

async fn diagnosis(State(node): State<Node>) -> Result<Json<Vec<Diagnosis>>, Refusal> {
    Ok(Json(node.diagnose().await?))
}

async fn keepers(State(node): State<Node>) -> Result<Json<KeepersStatus>, Refusal> {
    Ok(Json(node.tasks().keepers().status().await?))
}

async fn name_keepers(
    State(node): State<Node>,
    InBody(named): InBody<Vec<String>>,
) -> Result<Json<KeepersStatus>, Refusal> {
    let ids: Result<Vec<NodeId>, _> = named.iter().map(|text| node.named(text)).collect();
    Ok(Json(node.name_keepers(&ids?).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PingOptions {
    /// Whether the links are measured, too.
    #[serde(default)]
    rates: bool,
}

async fn ping(
    State(node): State<Node>,
    InPath(id): InPath<String>,
    InQuery(options): InQuery<PingOptions>,
) -> Result<Json<Pinged>, Refusal> {
    Ok(Json(node.ping(node.named(&id)?, options.rates).await?))
}

async fn revoke(State(node): State<Node>, InPath(id): InPath<String>) -> Result<Json<Revoked>, Refusal> {
    if let Ok(key) = id.parse() {
        return Ok(Json(node.revoke_key(&key)?));
    }
    Ok(Json(node.revoke(node.named(&id)?)?))
}

async fn invitations(State(node): State<Node>) -> Result<Json<Vec<InvitationStatus>>, Refusal> {
    Ok(Json(node.invitations().await?))
}

async fn invite(
    State(node): State<Node>,
    InBody(order): InBody<InviteOrder>,
) -> Result<Json<String>, Refusal> {
    Ok(Json(node.invite(&order).await?.to_string()))
}

async fn withdraw(
    State(node): State<Node>,
    InPath(id): InPath<String>,
) -> Result<Json<InvitationStatus>, Refusal> {
    Ok(Json(node.withdraw_invitation(&id).await?))
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Rotate {
    grace_ms: u64,
}

async fn rotate(State(node): State<Node>, Json(order): Json<Rotate>) -> Result<Json<Rotated>, Refusal> {
    let grace = Duration::from_millis(order.grace_ms);
    let rotated = crate::services::blocking(move || node.rotate(grace));
    Ok(Json(rotated.await?))
}

#[derive(Deserialize)]
struct On {
    on: String,
    #[serde(default)]
    downgrade: bool,
}

async fn deploy(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    InQuery(On { on, downgrade }): InQuery<On>,
    component: Bytes,
) -> Result<Json<Vec<OnNode<Deployed>>>, Refusal> {
    let options = DeployOptions {
        downgrade,
        ..DeployOptions::default()
    };
    Ok(Json(node.deploy_on(&on, component, &name, options).await?))
}

async fn undeploy(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    InQuery(On { on, .. }): InQuery<On>,
) -> Result<Json<Vec<OnNode<()>>>, Refusal> {
    Ok(Json(node.undeploy_on(&on, &name).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Ahead {
    from: Time,
    ahead_ms: u64,
}

async fn contacts(
    State(node): State<Node>,
    InQuery(Ahead { from, ahead_ms }): InQuery<Ahead>,
) -> Result<Json<Vec<Contact>>, Refusal> {
    let config = node.runtime().config().mesh.clone();
    let plan = move || contact_plan(&config, from, Duration::from_millis(ahead_ms));
    let plan = crate::services::blocking(plan).await?;
    Ok(Json(plan.contacts().to_vec()))
}

async fn bundles(State(node): State<Node>) -> Result<Json<Vec<BundleStatus>>, Refusal> {
    Ok(Json(node.bundle_list()?))
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Later {
    on: String,
    wait_ms: u64,
    #[serde(default)]
    priority: Priority,
    #[serde(default)]
    downgrade: bool,
}

async fn deploy_later(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    InQuery(later): InQuery<Later>,
    component: Bytes,
) -> Result<Json<Sent>, Refusal> {
    let terms = (Duration::from_millis(later.wait_ms), later.priority);
    let sent = node.deploy_later(&later.on, component, &name, later.downgrade, terms);
    Ok(Json(sent.await?))
}
