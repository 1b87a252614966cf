//! Asks the nodes how fast they are, and divides the layers by that and by memory.

use super::crew::{Crew, Member, integer_error, of_member};
use super::{InsideOrder, TASK};
use crate::drive::cbor::write;
use crate::drive::links::bytes_per_second;
use crate::drive::split::plan::model_of;
use crate::node::Node;
use crate::services::{Loaded, blocking};
use bytes::Bytes;
use karman_infer::integer::Integer;
use karman_sched::partition::inside_layer::{Board, Link, PlanError, ShareCost, cost_of_share, share};
use karman_tensor::quantised::{Layer, Network, Operator, Part};
use karman_tensor::split::ShareTask;
use karman_types::{ByteSize, NodeId, Offer, TaskError, format_bytes};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most nodes of one model.
const MOST_NODES: usize = 16;
/// The most multiplications of the piece that a node is timed with, if the model has one so small; and how often it is timed, after
/// once that does not count.
const MOST_PROBED: u64 = 2_000_000;
const TIMES: usize = 2;
/// How long a link is measured.
const MEASURED: Duration = Duration::from_secs(2);
/// What memory carries: there is no link to a node's own plugin.
const OWN_BYTES_PER_SECOND: f64 = 1e10;

/// How fast a node is.
struct Speed {
    operations_per_second: f64,
    seconds_per_call: f64,
    bytes_per_second: f64,
    linear_memory: u64,
}

/// Divides the layers of a model as ordered.
pub(super) async fn plan(node: &Node, name: &str, order: &InsideOrder) -> Result<Crew, TaskError> {
    let model = model_of(node, name)?;
    let offers = participants(node, order).await?;
    let memory = memory(node, order, &offers).await?;
    let (stages, models, digest) = (
        node.split().stages().clone(),
        node.runtime().models().clone(),
        model.digest,
    );
    let read = move || -> Result<(Arc<Integer>, Loaded), TaskError> {
        let graph = stages.graph(digest)?;
        let integer = Integer::read(&graph).map_err(integer_error)?;
        let rest = models.load(&integer.rest().model)?;
        Ok((Arc::new(integer), rest))
    };
    let (integer, rest) = blocking(read).await?;
    let mut members = Vec::with_capacity(offers.len());
    let (mut boards, mut link) = (
        Vec::new(),
        Link {
            bytes_per_second: OWN_BYTES_PER_SECOND,
            seconds_per_packet: 0.0,
        },
    );
    for (offer, memory) in offers.iter().zip(memory) {
        let mut member = Member {
            id: offer.node,
            tier: offer.tier,
            memory,
            operations_per_second: 0.0,
            linear_memory: 0,
            turn: node.split().turns.of(offer.node),
            lost: Mutex::default(),
        };
        let speed = measure(node, &member, integer.clone()).await?;
        member.operations_per_second = speed.operations_per_second;
        member.linear_memory = speed.linear_memory;
        boards.push(Board {
            free_memory: memory,
            // Weights come with each piece.
            free_flash: memory,
            operations_per_second: speed.operations_per_second,
        });
        // All of it leaves by this node: the slowest link counts for all.
        link.bytes_per_second = link.bytes_per_second.min(speed.bytes_per_second);
        link.seconds_per_packet = link.seconds_per_packet.max(speed.seconds_per_call);
        members.push(member);
    }
    let node = node.downgrade();
    let divide = move || {
        let shares = share(integer.network().layers(), &boards, link);
        Ok(Crew {
            shares: shares.map_err(|error| no_plan(error, &members))?,
            node,
            model,
            integer,
            rest,
            members,
        })
    };
    blocking(divide).await
}

/// The nodes that an order names, each once, in its order.
async fn participants(node: &Node, order: &InsideOrder) -> Result<Vec<Offer>, TaskError> {
    let mut offers: Vec<Offer> = Vec::new();
    for selector in &order.on {
        let (here, others) = node.selected(selector).await?;
        let here = here.then(|| node.offer());
        let others = others.into_iter().map(|provider| (*provider.offer).clone());
        for offer in here.into_iter().chain(others) {
            if offers.iter().all(|known| known.node != offer.node) {
                offers.push(offer);
            }
        }
    }
    if offers.is_empty() {
        return Err(TaskError::invalid("no node is named that takes part")
            .with_field("on")
            .with_hint("--on tier=edge, --on 9c01d2e7 (a node), or --on all"));
    }
    if offers.len() > MOST_NODES {
        let count = offers.len();
        return Err(
            TaskError::limit(format!("{count} nodes; at most {MOST_NODES} share a model")).with_field("on"),
        );
    }
    match offers.iter().find(|offer| offer.runs(TASK).is_none()) {
        None => Ok(offers),
        Some(lacking) => {
            let node = lacking.node.short();
            Err(
                TaskError::unavailable(format!("node {node} does not run `{TASK}`"))
                    .with_field("on")
                    .with_hint(format!("karman deploy {TASK}.wasm --on {node}")),
            )
        }
    }
}

/// What a piece may take on each node: as the order says, and no more than the plugin may or the node has.
async fn memory(node: &Node, order: &InsideOrder, offers: &[Offer]) -> Result<Vec<u64>, TaskError> {
    let all = order.memory.unwrap_or(InsideOrder::MOST_MEMORY).0;
    let mut memory = vec![all; offers.len()];
    for (selector, ByteSize(bytes)) in &order.memory_of {
        let (here, others) = node.selected(selector).await?;
        let here = here.then(|| node.runtime().id());
        let named: Vec<NodeId> = here
            .into_iter()
            .chain(others.iter().map(|other| other.offer.node))
            .collect();
        if !offers.iter().any(|offer| named.contains(&offer.node)) {
            let says = format!("`{selector}` names no node that takes part");
            let error = TaskError::invalid(says).with_field("memory_of");
            return Err(error.with_hint("name it under `--on` as well"));
        }
        for (memory, offer) in memory.iter_mut().zip(offers) {
            if named.contains(&offer.node) {
                *memory = *bytes;
            }
        }
    }
    for (memory, offer) in memory.iter_mut().zip(offers) {
        let has = if offer.memory == 0 { u64::MAX } else { offer.memory };
        *memory = (*memory).min(InsideOrder::MOST_MEMORY.0).min(has);
    }
    Ok(memory)
}

/// Times a piece of the model on a node, and the link to it.
async fn measure(node: &Node, member: &Member, integer: Arc<Integer>) -> Result<Speed, TaskError> {
    let (id, memory) = (member.id, member.memory);
    let Probe { layer, cost, body } = blocking(move || probe(integer.network(), id, memory)).await?;
    let (mut took, mut around, mut linear_memory) = (f64::INFINITY, f64::INFINITY, 0);
    for time in 0..=TIMES {
        let started = Instant::now();
        let asked = member.ask(node, body.clone()).await;
        let (_, report) = asked.map_err(|error| of_member(member.id, layer, error))?;
        if time > 0 {
            let computed = (report.took_us as f64 / 1e6).max(1e-6);
            took = took.min(computed);
            around = around.min((started.elapsed().as_secs_f64() - computed).max(0.0));
            linear_memory = linear_memory.max(report.memory_peak);
        }
    }
    let bytes_per_second = match member.id == node.runtime().id() {
        true => OWN_BYTES_PER_SECOND,
        false => bytes_per_second(node, member.id, MEASURED).await?,
    };
    Ok(Speed {
        operations_per_second: cost.operations.max(1) as f64 / took,
        seconds_per_call: around,
        bytes_per_second,
        linear_memory,
    })
}

/// A piece that a node is timed with.
struct Probe {
    layer: usize,
    cost: ShareCost,
    /// What it is sent.
    body: Bytes,
}

/// The one of these bytes of memory for a node.
fn probe(network: &Network, node: NodeId, memory: u64) -> Result<Probe, TaskError> {
    let (layer, part, cost) = piece(network.layers(), node, memory)?;
    let shape = &network.layers()[layer];
    let input = vec![0; shape.needs(&part).cells() * shape.input().width];
    let other = match shape.operator() {
        Operator::Add { .. } => input.clone(),
        _ => Vec::new(),
    };
    let task = ShareTask::new(network, layer, &part, input, other);
    let body = write(&task.map_err(|error| TaskError::internal(error.to_string()))?)?;
    Ok(Probe { layer, cost, body })
}

/// The largest piece within a node's memory that is not too long to time it with.
fn piece(layers: &[Layer], node: NodeId, memory: u64) -> Result<(usize, Part, ShareCost), TaskError> {
    let board = Board {
        free_memory: memory,
        free_flash: memory,
        operations_per_second: 1e12,
    };
    let mut probes = Vec::with_capacity(layers.len());
    for (index, layer) in layers.iter().enumerate() {
        let alone = std::slice::from_ref(layer);
        // A layer without a piece that fits is one for the other nodes.
        let Ok(plan) = share(alone, &[board], Link::ETHERNET_100) else {
            continue;
        };
        let mut pieces = plan.layers.into_iter().flat_map(|layer| layer.pieces).flatten();
        probes.extend(
            pieces
                .next()
                .map(|part| (index, cost_of_share(layer, &part), part)),
        );
    }
    let operations = |(_, cost, _): &(usize, ShareCost, Part)| cost.operations;
    let short = probes
        .iter()
        .filter(|probe| operations(probe) <= MOST_PROBED)
        .max_by_key(|probe| operations(probe));
    let chosen = short.or_else(|| probes.iter().min_by_key(|probe| operations(probe)));
    let (index, cost, part) = chosen.ok_or_else(|| {
        TaskError::limit(format!(
            "node {} may take {} for a piece, and no layer has one so small",
            node.short(),
            format_bytes(memory)
        ))
        .with_field("memory")
    })?;
    Ok((*index, part.clone(), *cost))
}

/// Why the layers cannot be divided, by the names of the nodes.
fn no_plan(error: PlanError, members: &[Member]) -> TaskError {
    match error {
        PlanError::Memory { board, free, needed } => {
            let node = members
                .get(board)
                .map_or_else(String::new, |member| member.id.short());
            TaskError::limit(format!(
                "node {node} may take {}, more than the others, but the smallest piece of a layer takes {}",
                format_bytes(free),
                format_bytes(needed)
            ))
            .with_field("memory")
            .with_hint("name a node that has the memory, or raise `--memory`")
        }
        error @ PlanError::Piece { .. } => TaskError::limit(error.to_string())
            .with_field("on")
            .with_hint("name a faster node"),
        error => TaskError::unavailable(error.to_string()),
    }
}
