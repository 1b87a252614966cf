//! Rounds whose updates go from node to node, without one that aggregates: FLTorrent over the mesh.
//!
//! A coordinator opens a round among nodes that wait for it, and tells them slot by slot who sends what to whom, as
//! [`karman_fed::swarm`] decides; it sees no chunk. Then the nodes go on by themselves, until all that are still there hold the same. Each
//! takes the mean of the updates that it could rebuild, and those with the same updates get the same mean, bit by bit.
//!
//! | file | what |
//! |---|---|
//! | `lead` | the coordinator: spray, warm-up, and when the round is over |
//! | `seat` | a client: what it is told and by whom, into `karman-fed`'s peer |
//! | `stage` | how far a client is: it waits, it has been asked, it takes part |
//! | `company` | who is in a round with a client |
//! | `errands` | what a client sends: chunks it was told to, and those it is asked for |
//! | `shelf` | the chunks, on the disk |
//! | `talk` | a letter and its answer, on a call of the mesh |
//!
//! Neighbours see which node sends them a chunk, and by design not whose it is. A sprayed chunk is its sender's own, so it goes by way of a
//! third client, sealed: that one knows the sender and not the chunk, the receiver the chunk and not the sender.

mod company;
mod errands;
mod lead;
mod seat;
mod shelf;
mod stage;
mod talk;
#[cfg(test)]
mod tests;

pub(crate) use lead::{SwarmLed, SwarmPlan};
pub(crate) use seat::{SwarmEntry, SwarmOutcome};

use super::mesh_of;
use crate::node::Node;
use crate::services::apart;
use bytes::Bytes;
use karman_fed::swarm::Letter;
use karman_mesh::membership::Member;
use karman_mesh::{CallHead, Mesh, RemoteReport};
use karman_types::{NodeId, TaskError, TaskResponse, format_duration};
use parking_lot::Mutex;
use seat::Seat;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The rounds in which a node takes part, or waits for one to open.
#[derive(Clone, Default)]
pub(crate) struct Swarms(Arc<Mutex<BTreeMap<String, Arc<Seat>>>>);

/// Takes the seat away when nobody waits for its outcome any more.
struct Taken<'a> {
    swarms: &'a Swarms,
    name: String,
    seat: Arc<Seat>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.seat.leave();
        self.swarms.0.lock().remove(&self.name);
    }
}

impl Swarms {
    /// Takes part in the next round of this name, until it is over. Dropping the future leaves it.
    pub(crate) async fn join(&self, entry: SwarmEntry, folder: &Path) -> Result<SwarmOutcome, TaskError> {
        let (tell, told) = oneshot::channel();
        let (name, patience) = (entry.name.clone(), entry.patience);
        let seat = Arc::new(Seat::new(entry, folder, tell)?);
        {
            let mut seats = self.0.lock();
            if seats.contains_key(&name) {
                let says = format!("this node takes part in a round `{name}` already");
                return Err(TaskError::invalid(says).with_field("name"));
            }
            seats.insert(name.clone(), seat.clone());
        }
        let taken = Taken {
            swarms: self,
            name,
            seat,
        };
        match tokio::time::timeout(patience, taken.seat.outcome(told)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let says = format!("no outcome within {}", format_duration(patience));
                Err(TaskError::deadline(says).with_hint("does its coordinator lead the round?"))
            }
        }
    }

    fn seat(&self, name: &str) -> Result<Arc<Seat>, TaskError> {
        let none = || TaskError::unavailable(format!("this node waits for no round `{name}`"));
        self.0.lock().get(name).cloned().ok_or_else(none)
    }

    /// The longest letter that is taken in a round of this name, from whoever may say most.
    ///
    /// # Errors
    /// `unavailable` when this node waits for none.
    pub(crate) fn most_input(&self, name: &str) -> Result<u64, TaskError> {
        self.seat(name).map(|seat| seat.longest_of_all() as u64)
    }

    /// Answers a letter.
    async fn take(
        &self,
        mesh: &Mesh,
        from: NodeId,
        name: &str,
        body: Bytes,
    ) -> Result<TaskResponse, TaskError> {
        let seat = self.seat(name)?;
        let most = seat.longest(from);
        if body.len() > most {
            let says = format!("a letter of {} bytes; at most {most} are taken now", body.len());
            return Err(TaskError::limit(says).with_field("body"));
        }
        let letter = apart(body.len(), move || Letter::read(&body).map_err(talk::wrong)).await?;
        let answer = seat.take(mesh, from, letter).await?;
        Ok(TaskResponse::from(Bytes::from(
            answer.write().map_err(talk::wrong)?,
        )))
    }
}

impl Node {
    /// Leads a round whose updates go from node to node, among nodes that wait for it, of which it is none itself: they would refuse. This
    /// node sees who holds which chunk and whose it was, and no chunk.
    ///
    /// # Errors
    /// `invalid` when the plan makes no round; `unavailable` when fewer than two nodes take part, or the node belongs to no mesh.
    pub(crate) async fn lead_swarm(&self, plan: &SwarmPlan, nodes: &[NodeId]) -> Result<SwarmLed, TaskError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| TaskError::internal(error.to_string()))?;
        lead::lead(mesh_of(self)?, plan, nodes, seed).await
    }
}

/// A letter of another node.
pub(crate) async fn serve(
    node: &Node,
    from: &Member,
    head: &CallHead,
    body: Bytes,
) -> Result<(TaskResponse, RemoteReport), TaskError> {
    let swarms = node.federated().swarms();
    let answer = swarms.take(mesh_of(node)?, from.node, &head.name, body);
    Ok((answer.await?, RemoteReport::default()))
}
