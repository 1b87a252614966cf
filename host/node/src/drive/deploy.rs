//! Deployments on other nodes.

use super::mesh::mesh_of;
use crate::node::Node;
use crate::plugins::{DeployOptions, Deployed};
use bytes::Bytes;
use futures::future::join_all;
use karman_mesh::{Ask, CallHead, Provider};
use karman_types::{NodeId, Offer, TaskError, Tier};
use serde::{Deserialize, Serialize};

/// What became of a deployment on one node.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DeployedOn {
    /// The node.
    pub node: NodeId,
    /// What it did, or why not.
    pub outcome: Result<Deployed, TaskError>,
}

impl Node {
    /// Deploys a component on every node that the selector names.
    ///
    /// # Errors
    /// `invalid` when the selector does not read, `unavailable` when it names no node in reach.
    pub async fn deploy_on(
        &self,
        selector: &str,
        component: Bytes,
        name: &str,
        options: DeployOptions,
    ) -> Result<Vec<DeployedOn>, TaskError> {
        let chosen = Selector::read(selector)?;
        let mesh = mesh_of(self)?;
        let nodes = mesh.nodes().await;
        let named: Vec<&Provider> = nodes.iter().filter(|node| chosen.names(&node.offer)).collect();
        let mut outcomes = Vec::new();
        if chosen.names(&self.offer()) {
            let outcome = self.plugins().deploy(component.to_vec(), name, options).await;
            self.announce().await;
            outcomes.push(DeployedOn {
                node: self.runtime().id(),
                outcome,
            });
        }
        let elsewhere = named.into_iter().map(|node| async {
            let head = CallHead {
                ask: Ask::Deploy {
                    downgrade: options.downgrade,
                },
                name: name.to_owned(),
                task: self.runtime().context(None).task,
                attempt: 1,
                idempotency_key: None,
                within_ms: None,
                chain: Vec::new(),
                content_type: "application/wasm".into(),
                metadata: Vec::new(),
            };
            let answer = mesh.call(node.id, head, component.clone()).await;
            let outcome = answer.and_then(|(response, _)| {
                serde_json::from_slice(&response.body)
                    .map_err(|error| TaskError::internal(format!("its answer does not read: {error}")))
            });
            DeployedOn {
                node: node.offer.node,
                outcome,
            }
        });
        outcomes.extend(join_all(elsewhere).await);
        match outcomes.is_empty() {
            false => Ok(outcomes),
            true => Err(
                TaskError::unavailable(format!("no node in reach is `{selector}`"))
                    .with_hint("`karman mesh offers` shows the nodes in reach"),
            ),
        }
    }
}

/// Which nodes: `tier=edge`, an id or its beginning, or `all`.
enum Selector {
    All,
    Tier(Tier),
    Node(String),
}

impl Selector {
    fn read(text: &str) -> Result<Self, TaskError> {
        let wrong = |why: String| {
            TaskError::invalid(why)
                .with_field("on")
                .with_hint("--on tier=edge, --on 9c01d2e7 (a node), or --on all")
        };
        match text.split_once('=') {
            Some(("tier", tier)) => tier.parse().map(Self::Tier).map_err(wrong),
            Some((key, _)) => Err(wrong(format!("`{key}` selects nothing"))),
            None if text == "all" => Ok(Self::All),
            None if text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                Ok(Self::Node(text.to_ascii_lowercase()))
            }
            None => Err(wrong(format!("`{text}` is no node, tier or `all`"))),
        }
    }

    fn names(&self, offer: &Offer) -> bool {
        match self {
            Self::All => true,
            Self::Tier(tier) => offer.tier == *tier,
            Self::Node(start) => offer.node.to_string().starts_with(start.as_str()),
        }
    }
}
