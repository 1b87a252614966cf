//! Stages that this node runs for others.

use super::journey::travel;
use super::profiles::take_in;
use super::wire::{Journey, Prepare, pack, unpack};
use crate::node::Node;
use bytes::Bytes;
use karman_mesh::{Ask, CallHead, PeerId, RemoteReport};
use karman_types::{TaskError, TaskResponse};
use std::time::Instant;

/// Makes a stage ready that another node wants to have run here.
pub(crate) async fn prepare(
    node: &Node,
    from: PeerId,
    head: &CallHead,
    body: &Bytes,
) -> Result<TaskResponse, TaskError> {
    let Ask::PrepareStage { digest, size } = head.ask else {
        return Err(TaskError::internal("no stage is to be prepared"));
    };
    let (Prepare { cut, stage, ticket }, _) = unpack(body)?;
    if cut.model != digest {
        return Err(TaskError::invalid("the cut is of another model").with_field("cut"));
    }
    take_in(node, from, &head.name, digest, size, ticket).await?;
    node.split().stages().get(&cut, stage).await?;
    Ok(TaskResponse::default())
}

/// Runs a stage on what another node sent, and has those after it run.
pub(crate) async fn run(
    node: &Node,
    model: &str,
    body: &Bytes,
) -> Result<(TaskResponse, RemoteReport), TaskError> {
    let started = Instant::now();
    let (journey, tensors) = unpack::<Journey>(body)?;
    journey.check()?;
    let (results, legs) = travel(node.clone(), model.to_owned(), journey, tensors).await?;
    let response = TaskResponse {
        body: pack(&legs, &results)?,
        ..TaskResponse::default()
    };
    let report = RemoteReport {
        took_us: started.elapsed().as_micros() as u64,
        ..RemoteReport::default()
    };
    Ok((response, report))
}
