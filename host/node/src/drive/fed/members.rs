//! Clients on nodes of the mesh, and on this one.

use super::clock::Clock;
use super::in_view::{self, Stretch};
use super::known::{Before, InView, Known};
use super::longest::longest_answer;
use super::memory::Memory;
use super::orders::{self, Clients};
use super::spread::Sharer;
use super::sum::{Credential, Identity};
use super::wire::{Answer, Order, RunId, Work};
use super::{adapters, noise, worker};
use crate::battery;
use crate::contacts;
use crate::drive::cbor;
use crate::drive::links::bytes_per_second;
use crate::drive::mesh_of;
use crate::drive::swarm::{SwarmLed, SwarmPlan};
use crate::node::{Inner, Node};
use crate::services::{blocking, shutting_down};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use karman_fed::{ClientId, Event, Run, Windows};
use karman_mesh::membership::Member;
use karman_mesh::{Ask, CallHead, Provider, RemoteReport};
use karman_space::Time;
use karman_types::{NodeId, TaskError, TaskResponse};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::MissedTickBehavior;

/// How often a run looks for nodes that have come, or come back.
const LOOK: Duration = Duration::from_secs(1);
/// How often clients are asked anew what changes: how full batteries are, and when who plans contacts is in view.
const ANEW: Duration = Duration::from_secs(300);
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

impl Members {
    pub(super) fn new(node: &Node, run: &Run, before: Before) -> Self {
        Self {
            node: node.downgrade(),
            plugin: run.clients.plugin.clone(),
            // Whoever leads a swarm knows whose update is whose: none of them comes to it.
            takes_part: run.swarm.is_none(),
            known: Mutex::new(Known::since(before)),
        }
    }

    fn node(&self) -> Result<Node, TaskError> {
        Node::upgrade(&self.node).ok_or_else(shutting_down)
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
        known.changing.remove(&client);
    }

    fn windows(&self, clock: Clock) -> Windows {
        let now = contacts::now();
        windows(&self.in_view(now), clock, now)
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

fn windows(clients: &InView, clock: Clock, now: Time) -> Windows {
    let window = |(client, ahead): (&ClientId, &Vec<Stretch>)| (*client, in_view::windows(ahead, clock, now));
    clients.iter().map(window).collect()
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
    let own = node.runtime().config().federated;
    noise::check(&order.work, &own)?;
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
                limits: own,
                key: Memory::key(driver, &order),
                memory,
            };
            worker::share(&sharer, &found, order, context).await
        }
        _ => {
            let by_link = order.by_link;
            adapters::check(&order.work, own.adapter_rank)?;
            let answer = worker::carry_out(&found, (&memory, &own), driver, order, context).await?;
            described(node, driver, by_link, answer).await
        }
    }
}

/// What a plugin says of itself, with what it cannot know: how full the batteries of its node are, the largest rank of adapters that it is to
/// train, when that and the driver's are in view of each other, and what the link to the driver carries where that is asked.
async fn described(node: &Node, driver: NodeId, by_link: bool, answer: Answer) -> Result<Answer, TaskError> {
    let Answer::Described {
        samples,
        label_entropy,
        ..
    } = answer
    else {
        return Ok(answer);
    };
    let link = match by_link && driver != node.runtime().id() {
        true => {
            let measured = bytes_per_second(node, driver, MEASURING).await;
            measured
                .inspect_err(
                    |error| tracing::debug!(%error, "the link to the driver of a run is not measured"),
                )
                .ok()
        }
        false => None,
    };
    let own = node.runtime().config().federated;
    Ok(Answer::Described {
        samples,
        label_entropy,
        charge: blocking(|| Ok(battery::state_of_charge())).await?,
        link,
        passes: in_view::told_to(node, driver),
        adapter_rank: own.adapter_rank,
        most_epsilon: own.most_epsilon,
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
    let peer = mesh.peer(at).await?;
    let mut head = CallHead::new(Ask::Learn, plugin, node.runtime().context(None).task);
    head.within_ms = time.map(|time| time.as_millis() as u64);
    let most = longest_answer(&order.work);
    let body = cbor::write_apart(order).await?;
    let (response, _) = match most {
        Some(most) => mesh.call_for(peer, head, body.into(), most).await?,
        None => mesh.call(peer, head, body).await?,
    };
    cbor::read_apart("answer", response.body).await
}

/// Has this node's client carry out the order of another node.
pub(crate) async fn serve(
    node: &Node,
    from: &Member,
    head: &CallHead,
    body: Bytes,
) -> Result<(TaskResponse, RemoteReport), TaskError> {
    let started = std::time::Instant::now();
    let order: Order = cbor::read_apart("order", body).await?;
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
    let response = TaskResponse::from(cbor::write_apart(answer).await?);
    let report = RemoteReport {
        took_us: started.elapsed().as_micros() as u64,
        ..RemoteReport::default()
    };
    Ok((response, report))
}

/// Announces nodes that have the plugin and are meant, as they come and come back, how full their batteries are, and when they are in view,
/// until the run is over. One that is slow to answer keeps no other waiting.
pub(super) async fn announce(
    members: Arc<Members>,
    id: RunId,
    run: Run,
    clock: Clock,
    inbox: UnboundedSender<Event>,
) {
    let mut asked = BTreeSet::new();
    let mut answers = FuturesUnordered::new();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut anew = tokio::time::interval(ANEW);
    anew.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
                // Before they introduce themselves: nobody is to be asked meanwhile who is not in view for long enough.
                members.look_ahead(&inbox, clock);
                for client in absent.into_iter().filter(|client| asked.insert(*client)) {
                    answers.push(introduces(client));
                }
            }
            _ = anew.tick() => {
                let known = members.changing().into_iter();
                for client in known.filter(|client| asked.insert(*client)) {
                    answers.push(introduces(client));
                }
            }
            Some((client, answer)) = answers.next() => {
                asked.remove(&client);
                match answer {
                    Ok(answer) => members.announced(&inbox, clock, client, &answer),
                    Err(error) => tracing::debug!(%client, %error, "a client does not introduce itself"),
                }
            }
        }
    }
}

impl Members {
    fn announced(&self, inbox: &UnboundedSender<Event>, clock: Clock, client: ClientId, answer: &Answer) {
        let Some(event) = orders::here(client, answer) else {
            return;
        };
        if let Answer::Described { charge, passes, .. } = answer {
            let mut known = self.known.lock();
            known.here.insert(client);
            match charge.is_some() || !passes.is_empty() {
                true => known.changing.insert(client),
                false => known.changing.remove(&client),
            };
            let said = in_view::as_told(passes, contacts::now());
            known.said.insert(client, said);
        }
        self.look_ahead(inbox, clock);
        // The run may be over.
        let _ = inbox.send(event);
    }

    fn changing(&self) -> BTreeSet<ClientId> {
        self.known.lock().changing.clone()
    }

    /// Tells the run when clients are in view, where that has changed.
    fn look_ahead(&self, inbox: &UnboundedSender<Event>, clock: Clock) {
        let now = contacts::now();
        let before = self.known.lock().told.clone();
        let clients = self.in_view(now);
        if clients != before {
            let windows = windows(&clients, clock, now);
            // The run may be over.
            let _ = inbox.send(Event::Planned { windows });
        }
    }

    /// When clients are in view from now on, of those with whom contacts are planned: by the plan of this node, or where there is none
    /// with a client, by that client's own. Whose plan is over is not, unless it is there all the same.
    fn in_view(&self, now: Time) -> InView {
        let Ok(node) = self.node() else {
            return InView::new();
        };
        let mut known = self.known.lock();
        let mut clients = InView::new();
        for (number, at) in known.nodes.iter().enumerate() {
            let client = ClientId(number as u64);
            let said = || in_view::left(known.said.get(&client)?.iter().copied(), now);
            let over = || known.planned.contains(&client) && !in_view::is_connected(&node, *at);
            let ahead = in_view::planned(&node, *at, now).or_else(said);
            if let Some(ahead) = ahead.or_else(|| over().then(Vec::new)) {
                clients.insert(client, ahead);
            }
        }
        known.planned.extend(clients.keys());
        known.told.clone_from(&clients);
        clients
    }

    /// The clients on nodes in reach that are not known to be there.
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
        self.known.lock().absent(nodes)
    }
}
