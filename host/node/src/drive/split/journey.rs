//! A request goes from stage to stage; who holds the data passes over those that do not answer.

use super::encodings::{Packed, Suits, pack_for};
use super::patience::Patience;
use super::stages::Stage;
use super::unpacked::unpack_apart;
use super::wire::{Journey, Leg, Station};
use crate::drive::mesh_of;
use crate::node::Node;
use crate::services::Meanwhile;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use karman_engine::capability::nn::Tensors;
use karman_mesh::{Ask, CallHead};
use karman_types::{ErrorKind, NodeId, TaskError};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot::Sender;

/// The results, and what each node did for them, in order.
pub(super) type Arrived = (Tensors, Vec<Leg>);

/// Runs the next stage here on what has come, and sees to it that the others run.
pub(super) fn travel(
    node: Node,
    model: String,
    journey: Journey,
    tensors: Tensors,
    meanwhile: Meanwhile,
) -> BoxFuture<'static, Result<Arrived, TaskError>> {
    async move {
        let stage = node.split().stages().get(&journey.cut, journey.stage).await?;
        let bytes_in = bytes_of(&tensors);
        let (held, took) = stage.run(tensors, meanwhile).await?;
        let here = Leg {
            compute_us: took.as_micros() as u64,
            bytes_in,
            bytes_out: bytes_of(&held),
            ..Leg::new(journey.stage, node.runtime().id())
        };
        if stage.is_last {
            return Ok((held, vec![here]));
        }
        let (results, legs) = go_on(&node, &model, &journey, held, &stage).await?;
        Ok((results, std::iter::once(here).chain(legs).collect()))
    }
    .boxed()
}

/// Has the stages after this one run, with what is held here, on the first node that does.
async fn go_on(
    node: &Node,
    model: &str,
    journey: &Journey,
    held: Tensors,
    stage: &Arc<Stage>,
) -> Result<Arrived, TaskError> {
    let (rest, station) = onward(journey)?;
    let suits = Suits {
        rate_mbit_s: station.rate_mbit_s,
        max_error: rest.max_error,
    };
    let packed = pack_for(suits, &stage.onward, rest.clone(), &held).await?;
    let attempt = |at: NodeId, begun: Option<Sender<()>>| {
        let (held, packed, rest, station) = (&held, &packed, &rest, &station);
        async move {
            let arrived = attempt(node, model, (at, begun), rest, (held, packed), station).await;
            let judged = arrived.and_then(|arrived| stage.judge(&arrived.0).map(|()| arrived));
            if let Err(error) = &judged {
                tracing::warn!(model, stage = rest.stage, node = %at, %error, "a stage is passed on to another node");
            }
            (at, judged)
        }
    };
    first_that_does(node, &station, &packed, attempt).await
}

/// What is left of a journey behind this stage, and who may run the next one.
fn onward(journey: &Journey) -> Result<(Journey, Station), TaskError> {
    let next = journey.stage + 1;
    let station = journey.stations.iter().find(|station| station.stage == next);
    let station = station.filter(|station| !station.nodes.is_empty()).cloned();
    let nobody = || TaskError::invalid(format!("nobody runs stage {next}")).with_field("stations");
    let station = station.ok_or_else(nobody)?;
    let later = journey.stations.iter().filter(|station| station.stage > next);
    let rest = Journey {
        cut: journey.cut.clone(),
        stage: next,
        stations: later.cloned().collect(),
        max_error: journey.max_error,
        back_mbit_s: station.back_mbit_s,
    };
    Ok((rest, station))
}

/// Has the nodes of a station try, one after the other. Where the chosen one is late, this node tries beside it: what the other
/// was sent may still come back, but who holds the data can do the rest as well.
async fn first_that_does<F>(
    node: &Node,
    station: &Station,
    packed: &Packed,
    attempt: impl Fn(NodeId, Option<Sender<()>>) -> F,
) -> Result<Arrived, TaskError>
where
    F: Future<Output = (NodeId, Result<Arrived, TaskError>)>,
{
    let (started, here, chosen) = (Instant::now(), node.runtime().id(), station.nodes[0]);
    let mut line: VecDeque<NodeId> = station.nodes.iter().skip(1).copied().collect();
    let (mut patience, begun) = Patience::new(node.split().words(), station, packed.body.len());
    let mut under_way: FuturesUnordered<_> = std::iter::once(attempt(chosen, begun)).collect();
    let mut passed_over: Vec<Leg> = Vec::new();
    let (mut began, mut runs_failed) = (None, 0);
    loop {
        let (at, tried) = tokio::select! {
            Some(ended) = under_way.next() => ended,
            () = patience.ends() => {
                if let Some(at) = line.iter().position(|at| *at == here) {
                    line.remove(at);
                    passed_over.push(overtaken(station.stage, chosen, packed, started.elapsed()));
                    under_way.push(attempt(here, None));
                    began = Some(Instant::now());
                }
                continue;
            }
        };
        // The node that ends was not overtaken after all.
        passed_over.retain(|leg| !(leg.overtaken && leg.node == at));
        match tried {
            Ok((results, legs)) => {
                patience.answered();
                if let Some(began) = began.filter(|_| !under_way.is_empty()) {
                    // Who was overtaken has not answered until now; or what was begun here was for nothing.
                    match at == here {
                        true => {
                            let overtaken = passed_over.iter_mut().filter(|leg| leg.overtaken);
                            overtaken.for_each(|leg| leg.transfer_us = started.elapsed().as_micros() as u64);
                        }
                        false => passed_over.push(beaten(station.stage, here, began.elapsed())),
                    }
                }
                return Ok((results, passed_over.into_iter().chain(legs).collect()));
            }
            Err(error) => {
                patience.give_up();
                runs_failed += u32::from(error.kind == ErrorKind::Failed);
                // What fails on a second node as well fails because of what was asked. Each node before this one would have all after it
                // try again.
                if runs_failed > 1 {
                    return Err(error);
                }
                // Who was waited for in vain may be there: its link or its processor is slow.
                passed_over.push(match error.kind {
                    ErrorKind::Deadline => overtaken(station.stage, at, packed, started.elapsed()),
                    _ => failed(station.stage, at, packed, &error),
                });
                if under_way.is_empty() {
                    under_way.push(attempt(line.pop_front().ok_or(error)?, None));
                }
            }
        }
    }
}

/// What is told of a node that could not.
fn failed(stage: u8, node: NodeId, packed: &Packed, error: &TaskError) -> Leg {
    Leg {
        bytes_in: packed.body.len() as u64,
        encoding: packed.encoding.clone(),
        failed: Some(error.message.clone()),
        ..Leg::new(stage, node)
    }
}

/// What is told of a node that was too late.
fn overtaken(stage: u8, node: NodeId, packed: &Packed, waited: Duration) -> Leg {
    let late = TaskError::deadline(format!("it had not answered after {waited:.0?}"));
    Leg {
        transfer_us: waited.as_micros() as u64,
        overtaken: true,
        ..failed(stage, node, packed, &late)
    }
}

/// What is told of this node where it began with the rest, and who was late had the result first.
fn beaten(stage: u8, here: NodeId, computed: Duration) -> Leg {
    Leg {
        compute_us: computed.as_micros() as u64,
        failed: Some("the other one was there first".into()),
        overtaken: true,
        ..Leg::new(stage, here)
    }
}

async fn attempt(
    node: &Node,
    model: &str,
    (at, begun): (NodeId, Option<Sender<()>>),
    rest: &Journey,
    (held, packed): (&Tensors, &Packed),
    station: &Station,
) -> Result<Arrived, TaskError> {
    if at == node.runtime().id() {
        let (node, model, rest, held) = (node.clone(), model.to_owned(), rest.clone(), held.clone());
        // Others may be waited for beside it.
        return travel(node, model, rest, held, Meanwhile::Something).await;
    }
    let patience = Duration::from_millis(station.patience_ms);
    let asked = (at, rest.cut.model, rest.stage);
    let answer = ask(node, model, (at, begun), packed);
    node.split().answers().wait(asked, patience, answer).await
}

async fn ask(
    node: &Node,
    model: &str,
    (at, begun): (NodeId, Option<Sender<()>>),
    packed: &Packed,
) -> Result<Arrived, TaskError> {
    let mesh = mesh_of(node)?;
    let peer = mesh.peer(at).await?;
    let head = CallHead::new(Ask::RunStage, model, node.runtime().context(None).task);
    let started = Instant::now();
    let body = packed.body.clone();
    let (response, report) = match begun {
        Some(begun) => mesh.call_told(peer, head, body, begun).await?,
        None => mesh.call(peer, head, body).await?,
    };
    let transfer_us = (started.elapsed().as_micros() as u64).saturating_sub(report.took_us);
    let (mut legs, results): (Vec<Leg>, Tensors) = unpack_apart(&response.body).await?;
    if let [last] = &mut legs[..] {
        last.bytes_out = response.body.len() as u64;
    }
    if let Some(first) = legs.first_mut() {
        first.transfer_us = transfer_us;
        first.bytes_in = packed.body.len() as u64;
        first.encoding = packed.encoding.clone();
    }
    Ok((results, legs))
}

fn bytes_of(tensors: &Tensors) -> u64 {
    tensors
        .iter()
        .map(|(_, tensor)| tensor.bytes().len() as u64)
        .sum()
}
