//! Deployments on nodes of the mesh, and removals.

use super::dispatch::nearest_first;
use super::mesh::mesh_of;
use crate::node::Node;
use crate::plugins::{DeployOptions, Deployed};
use crate::services::to_the_end;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use karman_mesh::{Ask, CallHead, PeerId, Provider};
use karman_sched::partition::Problem;
use karman_types::{ErrorKind, NodeId, NodeSelector, TaskError, TaskResponse, Tier};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Nodes that are given the same order at once: a tier may have thousands.
const AT_ONCE: usize = 256;

/// What came of an order on one node.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct OnNode<T> {
    /// The node.
    pub node: NodeId,
    /// What it did, or why not.
    pub outcome: Result<T, TaskError>,
}

impl Node {
    /// Puts a plugin into service here, and tells the mesh.
    ///
    /// # Errors
    /// As [`Plugins::deploy`](crate::Plugins::deploy).
    pub async fn deploy(
        &self,
        component: Vec<u8>,
        name: &str,
        options: DeployOptions,
    ) -> Result<Deployed, TaskError> {
        let (node, name) = (self.clone(), name.to_owned());
        // It is in service then, whoever waits for it: the others have to hear of it.
        to_the_end(async move {
            let deployed = node.plugins().deploy(component, &name, options).await?;
            node.announce().await;
            Ok(deployed)
        })
        .await
    }

    /// Deploys a component on every node that the selector names: they are told what it is, and fetch it from this node and
    /// from each other.
    ///
    /// # Errors
    /// `invalid` when the selector does not read, `unavailable` when it names no node in reach.
    pub async fn deploy_on(
        &self,
        selector: &str,
        component: Bytes,
        name: &str,
        options: DeployOptions,
    ) -> Result<Vec<OnNode<Deployed>>, TaskError> {
        let (here, elsewhere) = self.selected(selector).await?;
        let mut outcomes = Vec::new();
        if here {
            let outcome = self.deploy(component.to_vec(), name, options).await;
            outcomes.push(OnNode {
                node: self.runtime().id(),
                outcome,
            });
        }
        let name = self.plugins().name_of(&component, name)?;
        let loan = &self.lend(name, component).await?;
        let ask = &Ask::Deploy {
            downgrade: options.downgrade,
            digest: loan.digest,
            size: loan.size,
        };
        let answers = self.order_each(&elsewhere, (ask, &loan.name), |node| loan.ticket(node));
        outcomes.extend(answers.await.into_iter().map(|(node, answer)| OnNode {
            node,
            outcome: read(answer),
        }));
        Ok(outcomes)
    }

    /// Takes a plugin out of service here.
    ///
    /// # Errors
    /// `unavailable` when there is none of that name.
    pub async fn undeploy(&self, name: &str) -> Result<(), TaskError> {
        let (node, name) = (self.clone(), name.to_owned());
        to_the_end(async move {
            node.plugins().undeploy(&name).await?;
            node.tasks().inner().flows.plugins_changed(node.plugins());
            node.announce().await;
            Ok(())
        })
        .await
    }

    /// Takes a plugin out of service on every node that the selector names and that has it. All of them are asked: what one offers does
    /// not say what it has, where it is drained or has heard of it just now.
    ///
    /// # Errors
    /// `invalid` when the selector does not read, `unavailable` when it names no node in reach that has the plugin.
    pub async fn undeploy_on(&self, selector: &str, name: &str) -> Result<Vec<OnNode<()>>, TaskError> {
        let here = async {
            self.plugins().named(name).ok()?;
            Some(self.undeploy(name).await)
        };
        self.take_away(selector, (name, name), here).await
    }

    /// Has every node that the selector names take away what it has of this name; `asked` is how the others are told. `here` is what this node
    /// does if it is one of them; nothing where it has none.
    pub(super) async fn take_away(
        &self,
        selector: &str,
        (name, asked): (&str, &str),
        here: impl Future<Output = Option<Result<(), TaskError>>> + Send,
    ) -> Result<Vec<OnNode<()>>, TaskError> {
        let (is_named, elsewhere) = self.selected(selector).await?;
        let own = match is_named {
            true => here.await,
            false => None,
        };
        let own = own.map(|outcome| (self.runtime().id(), outcome));
        let answers = self.order_each(&elsewhere, (&Ask::Undeploy, asked), |_| Ok(Bytes::new()));
        let answers = answers.await.into_iter().filter(|(_, answer)| !lacks_it(answer));
        let others = answers.map(|(node, answer)| (node, answer.map(drop)));
        let outcomes: Vec<OnNode<()>> = own
            .into_iter()
            .chain(others)
            .map(|(node, outcome)| OnNode { node, outcome })
            .collect();
        match outcomes.is_empty() {
            false => Ok(outcomes),
            true => Err(nowhere(selector, name)),
        }
    }

    /// Whether the selector names this node, and which others it names.
    pub(super) async fn selected(&self, selector: &str) -> Result<(bool, Vec<Provider>), TaskError> {
        let chosen = read_selector(selector)?;
        if let Some(node) = self.met(selector) {
            return Ok((false, vec![node]));
        }
        let others = mesh_of(self)?.nodes_named(&chosen).await;
        let own = self.offer();
        let here = chosen.matches(own.node, own.tier);
        if !here && others.is_empty() {
            return Err(none_in_reach(selector));
        }
        Ok((here, others))
    }

    /// The node with this very id, where it can be reached now: nobody else has to be asked then.
    fn met(&self, id: &str) -> Option<Provider> {
        let peers = self.mesh()?.peers().into_iter();
        let mut peers = peers.filter(|peer| peer.path.is_some());
        peers.find_map(|peer| {
            let (offer, _) = peer.offer?;
            (offer.node.to_string() == id).then_some(Provider {
                id: peer.id,
                offer,
                busy: peer.busy,
            })
        })
    }

    /// Whether each of these selectors names a node in reach.
    ///
    /// # Errors
    /// `invalid` when one does not read, `unavailable` when it names none.
    pub(super) async fn check_in_reach(&self, named: &[String]) -> Result<(), TaskError> {
        for selector in named {
            self.selected(selector).await.map_err(over)?;
        }
        Ok(())
    }

    /// The nodes that may run parts of a model besides this one, those nearest to the edge first: the named ones that are in reach, or
    /// the nearest of every other tier.
    ///
    /// # Errors
    /// `invalid` when a selector does not read, `unavailable` when they name no node in reach.
    pub(super) async fn participants(&self, named: &[String]) -> Result<Vec<(NodeId, PeerId)>, TaskError> {
        let mesh = mesh_of(self)?;
        let others = match named {
            [] => {
                let mut tiers = vec![self.tier()];
                let mut others = nearest_first(mesh, mesh.some_nodes().await);
                others.retain(|node| {
                    !tiers.contains(&node.offer.tier) && {
                        tiers.push(node.offer.tier);
                        true
                    }
                });
                others
            }
            named => {
                let chosen = read_selector(&named.join(",")).map_err(over)?;
                nearest_first(mesh, mesh.nodes_named(&chosen).await)
            }
        };
        if others.is_empty() && !named.is_empty() {
            return Err(none_in_reach(&named.join("` or `")));
        }
        let (taken, left) = of_each_tier(others, Problem::MAX_TIERS - 1);
        for node in left {
            let node = node.offer.node.short();
            tracing::warn!(node, "a plan of a model has no place for one more node");
        }
        Ok(taken.into_iter().map(|node| (node.offer.node, node.id)).collect())
    }

    /// Has each of these nodes do the same with its plugin or model of this name; `body` is what goes to it.
    pub(super) async fn order_each(
        &self,
        nodes: &[Provider],
        (ask, name): (&Ask, &str),
        body: impl Fn(NodeId) -> Result<Bytes, TaskError> + Send + Sync,
    ) -> Vec<(NodeId, Result<TaskResponse, TaskError>)> {
        let body = &body;
        let orders = nodes.iter().map(|provider| async move {
            let node = provider.offer.node;
            let answer = match body(node) {
                Ok(body) => self.order(provider, ask.clone(), name, body).await,
                Err(error) => Err(error),
            };
            (node, answer)
        });
        let orders: Vec<_> = orders.collect();
        stream::iter(orders).buffer_unordered(AT_ONCE).collect().await
    }

    /// Has another node do something with its plugin or model of this name.
    pub(super) async fn order(
        &self,
        node: &Provider,
        ask: Ask,
        name: &str,
        body: Bytes,
    ) -> Result<TaskResponse, TaskError> {
        let head = CallHead::new(ask, name, self.runtime().context(None).task);
        let (response, _) = mesh_of(self)?.call(node.id, head, body).await?;
        Ok(response)
    }
}

/// As many of these nodes as there are places, by tier, and those that are left over: the nearest of each tier come first, then the
/// nearest of the others.
fn of_each_tier(nearest_first: Vec<Provider>, places: usize) -> (Vec<Provider>, Vec<Provider>) {
    let mut tiers: Vec<Tier> = Vec::new();
    let (mut taken, others): (Vec<_>, Vec<_>) = nearest_first.into_iter().partition(|node| {
        let is_first = !tiers.contains(&node.offer.tier);
        tiers.push(node.offer.tier);
        is_first
    });
    taken.extend(others);
    let left = taken.split_off(places.min(taken.len()));
    taken.sort_by_key(|node| node.offer.tier);
    (taken, left)
}

fn none_in_reach(selector: &str) -> TaskError {
    TaskError::unavailable(format!("no node in reach is `{selector}`"))
        .with_field("node")
        .with_hint("`karman mesh offers` shows the nodes in reach")
}

/// What a node says of what it did.
pub(super) fn read<T: DeserializeOwned>(answer: Result<TaskResponse, TaskError>) -> Result<T, TaskError> {
    serde_json::from_slice(&answer?.body)
        .map_err(|error| TaskError::internal(format!("its answer does not read: {error}")))
}

/// Whether a node was to take away what it does not have.
fn lacks_it(answer: &Result<TaskResponse, TaskError>) -> bool {
    let lacks =
        |error: &TaskError| error.kind == ErrorKind::Unavailable && error.field.as_deref() == Some("name");
    answer.as_ref().is_err_and(lacks)
}

/// None of the nodes that are selected has what is to be taken away.
fn nowhere(selector: &str, name: &str) -> TaskError {
    TaskError::unavailable(format!("no node in reach that is `{selector}` has `{name}`"))
        .with_hint("`karman mesh offers` shows who has what")
}

/// Whether this names nodes.
pub(super) fn check_selector(text: &str) -> Result<(), TaskError> {
    read_selector(text).map(drop)
}

fn read_selector(text: &str) -> Result<NodeSelector, TaskError> {
    text.parse().map_err(|error: String| {
        TaskError::invalid(error).with_field("on").with_hint(
            "--on tier=edge, --on 9c01d2e7 (a node), --on tier=edge,9c01d2e7 (several), or --on all",
        )
    })
}

/// The same of those that may take part in a plan: their flag is another.
fn over(error: TaskError) -> TaskError {
    match (error.field.as_deref(), &error.hint) {
        (Some("on"), Some(hint)) => {
            let hint = hint.replace("--on ", "--over ");
            error.with_field("over").with_hint(hint)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::Offer;
    use std::sync::Arc;

    fn provider((at, tier): (usize, Tier)) -> Provider {
        Provider {
            id: PeerId::random(),
            offer: Arc::new(Offer {
                node: NodeId::of_key(&[at as u8]),
                tier,
                cores: at as u32,
                memory: 0,
                tasks: Vec::new(),
                models: Vec::new(),
            }),
            busy: 0,
        }
    }

    /// Where the nodes stood that were taken, and those that were not.
    fn places(tiers: &[Tier]) -> [Vec<u32>; 2] {
        let nodes = tiers.iter().copied().enumerate().map(provider).collect();
        let (taken, left) = of_each_tier(nodes, 5);
        let places =
            |nodes: Vec<Provider>| -> Vec<u32> { nodes.iter().map(|node| node.offer.cores).collect() };
        [places(taken), places(left)]
    }

    #[test]
    fn a_plan_has_a_place_for_each_tier() {
        use Tier::{Cloud, Edge, Fog};
        let near = [Edge, Edge, Edge, Edge, Edge, Edge, Cloud, Fog];
        assert_eq!(places(&near), [vec![0, 1, 2, 7, 6], vec![3, 4, 5]]);
        assert_eq!(places(&[Cloud, Edge, Cloud]), [vec![1, 0, 2], vec![]]);
        assert!(places(&[]).iter().all(Vec::is_empty));
    }
}
