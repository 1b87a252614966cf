//! Clients on nodes of the mesh, and on this one.

use super::adapters;
use super::memory::Memory;
use super::orders::{self, Clients};
use super::spread::Sharer;
use super::sum::{Credential, Identity};
use super::wire::{self, Answer, Order, RunId, Work};
use super::worker;
use crate::battery;
use crate::drive::swarm::{SwarmLed, SwarmPlan};
use crate::drive::{mesh_of, split};
use crate::node::{Inner, Node};
use crate::services::blocking;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use karman_fed::{ClientId, Event, Run};
use karman_mesh::membership::Member;
use karman_mesh::{Ask, CallHead, Provider, RemoteReport};
use karman_types::{NodeId, TaskError, TaskResponse};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::MissedTickBehavior;

/// How often a run looks for nodes that have come, or come back.
const LOOK: Duration = Duration::from_secs(1);
/// How often clients on batteries are asked how full these are.
const CHARGES: Duration = Duration::from_secs(300);
/// How long a node may take to say what its data are.
const INTRODUCTION: Duration = Duration::from_secs(60);
/// How much of that it may take to measure its link.
const MEASURING: Duration = Duration::from_secs(20);
/// The longest id of a run.
const MOST_ID: usize = 64;

/// The nodes that take part in a run.
pub(super) struct Members {
    node: Weak<Inner>,
    plugin: String,
    /// Whether this node may be a client of the run that it drives.
    takes_part: bool,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Client 0 first. A node keeps its number.
    nodes: Vec<NodeId>,
    /// Those that answer.
    here: BTreeSet<ClientId>,
    /// Of those, the ones that have said how full their batteries are.
    on_batteries: BTreeSet<ClientId>,
}

impl Members {
    /// Those that take part already are taken to be there: who is not shows when it is asked.
    pub(super) fn new(node: &Node, run: &Run, nodes: Vec<NodeId>) -> Self {
        let here = (0..nodes.len() as u64).map(ClientId).collect();
        Self {
            node: node.downgrade(),
            plugin: run.clients.plugin.clone(),
            // Whoever leads a swarm knows whose update is whose: none of them comes to it.
            takes_part: run.swarm.is_none(),
            known: Mutex::new(Known {
                nodes,
                here,
                on_batteries: BTreeSet::new(),
            }),
        }
    }

    fn node(&self) -> Result<Node, TaskError> {
        Node::upgrade(&self.node).ok_or_else(|| TaskError::unavailable("the node is shutting down"))
    }
}

impl Clients for Members {
    fn ask(&self, order: Order, time: Option<Duration>) -> BoxFuture<'static, Result<Answer, TaskError>> {
        let at = self.known.lock().nodes.get(order.client.0 as usize).copied();
        let (node, plugin) = (self.node(), self.plugin.clone());
        async move {
            let node = node?;
            let at = at.ok_or_else(|| TaskError::internal(format!("{} is on no node", order.client)))?;
            match at == node.runtime().id() {
                true => here(&node, at, &plugin, order, time).await,
                false => far(&node, at, &plugin, order, time).await,
            }
        }
        .boxed()
    }

    fn lost(&self, client: ClientId) {
        let mut known = self.known.lock();
        known.here.remove(&client);
        known.on_batteries.remove(&client);
    }

    fn members(&self) -> Vec<NodeId> {
        self.known.lock().nodes.clone()
    }

    fn identify(&self, credential: &Credential) -> Result<NodeId, TaskError> {
        Identity::check(&self.node()?, credential)
    }

    fn lead(&self, plan: SwarmPlan, nodes: Vec<NodeId>) -> BoxFuture<'static, Result<SwarmLed, TaskError>> {
        let node = self.node();
        async move { node?.lead_swarm(&plan, &nodes).await }.boxed()
    }
}

/// An order of this driver for this node's own client.
async fn here(
    node: &Node,
    driver: NodeId,
    plugin: &str,
    order: Order,
    time: Option<Duration>,
) -> Result<Answer, TaskError> {
    let found = node.plugins().find(plugin)?.current();
    let federated = node.federated();
    let memory = federated.memory(node)?;
    let context = node.runtime().context(time);
    match order.work {
        Work::Sum { .. } => {
            let who: Arc<dyn Identity> = Arc::new(node.clone());
            let client = (who, federated.sums.clone());
            worker::take_part(client, (plugin, &found), &memory, driver, order, context).await
        }
        Work::Spread { .. } => {
            let sharer = Sharer {
                swarm: Arc::new(node.clone()),
                seats: federated.seats.clone(),
                limits: node.runtime().config().federated,
                key: Memory::key(driver, &order),
                memory,
            };
            worker::share(&sharer, &found, order, context).await
        }
        _ => {
            let by_link = order.by_link && driver != node.runtime().id();
            adapters::check(&order.work, node.runtime().config().federated.adapter_rank)?;
            let answer = worker::carry_out(&found, &memory, driver, order, context).await?;
            described(node, by_link.then_some(driver), answer).await
        }
    }
}

/// What a plugin says of itself, with what it cannot know: how full the batteries of its node are, the largest rank of adapters that it is to
/// train, and what the link to the driver carries where that is asked.
async fn described(node: &Node, link_to: Option<NodeId>, answer: Answer) -> Result<Answer, TaskError> {
    let Answer::Described {
        samples,
        label_entropy,
        ..
    } = answer
    else {
        return Ok(answer);
    };
    let link = match link_to {
        Some(driver) => {
            let measured = split::bytes_per_second(node, driver, MEASURING).await;
            measured
                .inspect_err(
                    |error| tracing::debug!(%error, "the link to the driver of a run is not measured"),
                )
                .ok()
        }
        None => None,
    };
    Ok(Answer::Described {
        samples,
        label_entropy,
        charge: blocking(|| Ok(battery::state_of_charge())).await?,
        link,
        adapter_rank: node.runtime().config().federated.adapter_rank,
    })
}

async fn far(
    node: &Node,
    at: NodeId,
    plugin: &str,
    order: Order,
    time: Option<Duration>,
) -> Result<Answer, TaskError> {
    let mesh = mesh_of(node)?;
    let unknown = || TaskError::unavailable(format!("node {} is not in reach", at.short()));
    let peer = mesh.node(at).await.ok_or_else(unknown)?;
    let mut head = CallHead::new(Ask::Learn, plugin, node.runtime().context(None).task);
    head.within_ms = time.map(|time| time.as_millis() as u64);
    let (response, _) = mesh.call(peer, head, wire::write_apart(order).await?).await?;
    wire::read_apart("answer of a client", response.body).await
}

/// Has this node's client carry out the order of another node.
pub(crate) async fn serve(
    node: &Node,
    from: &Member,
    head: &CallHead,
    body: Bytes,
) -> Result<(TaskResponse, RemoteReport), TaskError> {
    let started = std::time::Instant::now();
    let order: Order = wire::read_apart("order for a client", body).await?;
    let federated = node.federated();
    // The others of a sum count on what it has said there, and a round that it is in is heard of from more than half of its clients.
    let takes_part =
        federated.sums.takes_part(from.node, &order) || federated.seats.takes_part(from.node, &order);
    if node.tasks().draining() && !takes_part {
        return Err(TaskError::unavailable("this node is draining"));
    }
    let RunId(id) = &order.run;
    if id.is_empty() || id.len() > MOST_ID || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(TaskError::invalid("the id of the run is not hexadecimal").with_field("run"));
    }
    let answer = here(node, from.node, &head.name, order, head.within()).await?;
    let response = TaskResponse {
        body: wire::write_apart(answer).await?,
        ..TaskResponse::default()
    };
    let report = RemoteReport {
        took_us: started.elapsed().as_micros() as u64,
        ..RemoteReport::default()
    };
    Ok((response, report))
}

/// Announces nodes that have the plugin and are meant, as they come and come back, and how full their batteries are, until the run is over.
/// One that is slow to answer keeps no other waiting.
pub(super) async fn announce(members: Arc<Members>, id: RunId, run: Run, inbox: UnboundedSender<Event>) {
    let mut asked = BTreeSet::new();
    let mut answers = FuturesUnordered::new();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut charges = tokio::time::interval(CHARGES);
    charges.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let introduces = |client: ClientId| {
        let order = Order::new(&id, &run, client, Work::Describe);
        let answer = members.ask(order, Some(INTRODUCTION));
        async move { (client, answer.await) }
    };
    while !inbox.is_closed() {
        tokio::select! {
            _ = look.tick() => {
                let Ok(node) = members.node() else { return };
                let absent = members.absent(&node, &run.clients.on).await;
                for client in absent.into_iter().filter(|client| asked.insert(*client)) {
                    answers.push(introduces(client));
                }
            }
            _ = charges.tick() => {
                let known = members.on_batteries().into_iter();
                for client in known.filter(|client| asked.insert(*client)) {
                    answers.push(introduces(client));
                }
            }
            Some((client, answer)) = answers.next() => {
                asked.remove(&client);
                match answer {
                    Ok(answer) => members.announced(&inbox, client, &answer),
                    Err(error) => tracing::debug!(%client, %error, "a client does not introduce itself"),
                }
            }
        }
    }
}

impl Members {
    fn announced(&self, inbox: &UnboundedSender<Event>, client: ClientId, answer: &Answer) {
        if let Some(event) = orders::here(client, answer) {
            let mut known = self.known.lock();
            known.here.insert(client);
            match answer {
                Answer::Described { charge: Some(_), .. } => known.on_batteries.insert(client),
                _ => known.on_batteries.remove(&client),
            };
            drop(known);
            // The run may be over.
            let _ = inbox.send(event);
        }
    }

    fn on_batteries(&self) -> BTreeSet<ClientId> {
        self.known.lock().on_batteries.clone()
    }

    /// The clients on nodes in reach that are not known to be there. A node that is new gets the next number.
    async fn absent(&self, node: &Node, on: &str) -> Vec<ClientId> {
        // A node without a mesh is its own only client.
        let found = node.selected(on).await;
        let (this, others) = found.unwrap_or_else(|_| (node.mesh().is_none(), Vec::new()));
        let has = |provider: &Provider| provider.offer.tasks.iter().any(|task| task.name == self.plugin);
        let others = others.iter().filter(|other| has(other));
        let mut nodes: Vec<NodeId> = others.map(|other| other.offer.node).collect();
        if this && self.takes_part && node.plugins().find(&self.plugin).is_ok() {
            nodes.push(node.runtime().id());
        }
        nodes.sort();
        let mut known = self.known.lock();
        let mut absent = Vec::new();
        for at in nodes {
            let number = match known.nodes.iter().position(|known| *known == at) {
                Some(number) => number,
                None => {
                    known.nodes.push(at);
                    known.nodes.len() - 1
                }
            };
            let client = ClientId(number as u64);
            if !known.here.contains(&client) {
                absent.push(client);
            }
        }
        absent
    }
}
