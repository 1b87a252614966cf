//! The driver's side: one sum, from the first question to the event of the run.

use super::identity::Credential;
use super::message::{Answered, Lesson, Step};
use crate::drive::fed::orders::{Clients, ask_patiently};
use crate::drive::fed::wire::{self, Answer, Course, Frames, NOT_ASKED, Order, RunId, Work};
use crate::services::blocking;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use karman_fed::secure::{
    self, Closed, Member, Ring, SecureSum, Server, Session, Settings, ToClient, ToServer,
};
use karman_fed::{AssignmentId, ClientId, Event, Part, Run, Summed};
use karman_types::{Digest, ErrorKind, NodeId, TaskError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// How long a client may take for a step that is no training.
const STEP: Duration = Duration::from_secs(20);
/// How long one that cannot be reached is tried before it joins, when it may be starting again; and afterwards, when only its link may
/// come back.
const BEFORE: Duration = Duration::from_secs(30);
const AFTERWARDS: Duration = Duration::from_secs(5);
/// The share of a round's time that is left for what follows the trainings.
const RESERVE: u32 = 4;

/// A sum that is to be made.
pub(in crate::drive::fed) struct Sum {
    pub(in crate::drive::fed) clients: Arc<dyn Clients>,
    pub(in crate::drive::fed) outbox: UnboundedSender<Event>,
    pub(in crate::drive::fed) id: RunId,
    pub(in crate::drive::fed) run: Run,
    /// Numbers of the model.
    pub(in crate::drive::fed) length: usize,
    pub(in crate::drive::fed) model: Arc<Frames>,
    /// Whose updates are to be in it.
    pub(in crate::drive::fed) orders: Vec<(ClientId, karman_fed::Order)>,
}

/// A sum on its way.
struct Summing {
    sum: Sum,
    /// Who takes part, and has not been reported as lost.
    takers: BTreeMap<NodeId, Taker>,
    /// When the round's time is over.
    ends: Instant,
    bytes: u64,
}

struct Taker {
    client: ClientId,
    assignment: AssignmentId,
    version: u64,
    course: Course,
    credential: Credential,
    /// What it says in the open of its part.
    part: Option<Part>,
}

impl Sum {
    /// Makes it, and tells the run what became of it.
    pub(in crate::drive::fed) async fn make(self) {
        let time = self.orders.iter().map(|(_, order)| order.time).min();
        let outbox = self.outbox.clone();
        let mut summing = Summing {
            ends: Instant::now() + time.unwrap_or_default(),
            sum: self,
            takers: BTreeMap::new(),
            bytes: 0,
        };
        let event = match summing.run().await {
            Ok(sum) => Event::Summed { sum: Box::new(sum) },
            Err(reason) => Event::Unsummed {
                assignments: summing.takers.values().map(|taker| taker.assignment).collect(),
                reason,
            },
        };
        // The run may be over.
        let _ = outbox.send(event);
    }
}

impl Summing {
    async fn run(&mut self) -> Result<Summed, String> {
        self.meet().await;
        let (session, settings) = self.session().map_err(|error| error.message)?;
        let mut server = Server::new(Arc::new(session));
        let invited: Vec<Credential> = self
            .takers
            .values()
            .map(|taker| taker.credential.clone())
            .collect();
        let join = |node: &NodeId| {
            let (settings, invited) = (settings.clone(), invited.clone());
            (*node, Step::Join { settings, invited })
        };
        let mut asked: Vec<(NodeId, Step)> = self.takers.keys().map(join).collect();
        loop {
            self.ask_all(&mut server, asked).await;
            let closed = blocking(move || {
                let closed = server.close();
                Ok((server, closed))
            });
            let (still, closed) = closed.await.map_err(|error| error.message)?;
            server = still;
            asked = match closed.map_err(|failure| failure.to_string())? {
                Closed::Sum(sum) => return self.summed(sum),
                Closed::Next(messages) => messages
                    .into_iter()
                    .filter_map(|(node, said)| Some((node, self.step(&node, said)?)))
                    .collect(),
            };
        }
    }

    /// Hears from every client which node it is.
    async fn meet(&mut self) {
        let orders = std::mem::take(&mut self.sum.orders);
        let mut answers: FuturesUnordered<_> = orders
            .into_iter()
            .map(|(client, order)| {
                let asked = self.ask(client, order.assignment, Step::Who, STEP + BEFORE, BEFORE);
                async move { (client, order, asked.await) }
            })
            .collect();
        let members = self.sum.clients.members();
        while let Some((client, order, answer)) = answers.next().await {
            let who = match answer {
                Ok(Answered::Who(credential)) => Ok(credential),
                Ok(_) => Err(TaskError::failed(NOT_ASKED)),
                Err(error) => Err(error),
            };
            let taker = who.and_then(|credential| {
                let node = NodeId::of_key(&credential.key);
                let karman_fed::Work::Train(train) = &order.work else {
                    return Err(TaskError::internal("only trainings are summed"));
                };
                // The number of a client belongs to one node.
                if members.get(client.0 as usize) != Some(&node) {
                    let says = format!("it shows the key of another node, {}", node.short());
                    return Err(TaskError::failed(says));
                }
                let taker = Taker {
                    client,
                    assignment: order.assignment,
                    version: order.version,
                    course: Course::from(train),
                    credential,
                    part: None,
                };
                Ok((node, taker))
            });
            match taker {
                Ok((node, taker)) => drop(self.takers.insert(node, taker)),
                Err(error) => self.tell_lost(client, order.assignment, &error),
            }
        }
    }

    fn session(&self) -> Result<(Session, Settings), TaskError> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|error| TaskError::internal(error.to_string()))?;
        let secure = self.sum.run.secure_sum.unwrap_or_default();
        let settings = Settings {
            // A name that no other round has: its number alone comes again when a driver is started again.
            round: Digest::of(&[self.sum.id.0.as_bytes(), &random[..16]].concat()),
            graph: secure.graph,
            seed: Digest::of(&random[16..]),
            // The weight is summed with the rest.
            length: self.sum.length + 1,
            ring: Ring::BITS_64,
            least: secure.least,
        };
        let members = self.takers.iter().map(|(node, taker)| Member {
            node: *node,
            key: taker.credential.key,
        });
        let session = Session::new(settings.clone(), members.collect());
        let session = session.map_err(|error| TaskError::failed(error.to_string()))?;
        Ok((session, settings))
    }

    /// What a client is asked next; nothing where it is lost.
    fn step(&self, node: &NodeId, said: ToClient) -> Option<Step> {
        let taker = self.takers.get(node)?;
        Some(match said {
            ToClient::Shares { .. } => Step::Train {
                said,
                lesson: Box::new(Lesson {
                    version: taker.version,
                    course: taker.course.clone(),
                    model: self.sum.model.clone(),
                    grid: self.sum.run.grid(),
                    weights: self.sum.run.weights,
                    limits: self.sum.run.limits.clone(),
                }),
            },
            said => Step::Said(said),
        })
    }

    /// Asks all of them at once, and takes in what they answer.
    async fn ask_all(&mut self, server: &mut Server, asked: Vec<(NodeId, Step)>) {
        let trains = server.step() == secure::Step::Mask;
        let left = self.ends.saturating_duration_since(Instant::now());
        let time = match trains {
            true => left.saturating_sub(left / RESERVE),
            false => left.min(STEP),
        };
        let mut answers: FuturesUnordered<_> = asked
            .into_iter()
            .filter_map(|(node, step)| {
                let taker = self.takers.get(&node)?;
                let asked = self.ask(taker.client, taker.assignment, step, time, AFTERWARDS);
                Some(async move { (node, asked.await) })
            })
            .collect();
        while let Some((node, answer)) = answers.next().await {
            let taken = answer.and_then(|answer| self.take(server, node, answer));
            if let Err(error) = taken {
                self.drop_out(server.step(), node, &error);
            }
        }
    }

    fn ask(
        &self,
        client: ClientId,
        assignment: AssignmentId,
        step: Step,
        time: Duration,
        patience: Duration,
    ) -> impl Future<Output = Result<Answered, TaskError>> + use<> {
        let step = Box::new(step);
        let work = Work::Sum { assignment, step };
        let order = Order::new(&self.sum.id, &self.sum.run, client, work);
        let clients = self.sum.clients.clone();
        async move {
            let asked = ask_patiently(&*clients, order, time, patience);
            let late = || TaskError::deadline("late: its time for a step of the sum is over");
            let answer = tokio::time::timeout(time, asked).await.map_err(|_| late())??;
            match answer {
                Answer::Sum(answered) => Ok(*answered),
                _ => Err(TaskError::failed(NOT_ASKED)),
            }
        }
    }

    fn take(&mut self, server: &mut Server, node: NodeId, answer: Answered) -> Result<(), TaskError> {
        let trains = server.step() == secure::Step::Mask;
        let (says, declared) = match answer {
            Answered::Says(says) if !trains => (says, None),
            Answered::Trained {
                says,
                samples,
                steps,
                loss,
            } if trains => (says, Some((samples, steps, loss))),
            _ => return Err(TaskError::failed(NOT_ASKED)),
        };
        self.bytes += bytes_of(&says);
        server
            .receive(node, says)
            .map_err(|rejected| TaskError::failed(rejected.to_string()))?;
        if let (Some((samples, steps, loss)), Some(taker)) = (declared, self.takers.get_mut(&node)) {
            taker.part = Some(Part {
                client: taker.client,
                assignment: taker.assignment,
                samples,
                steps,
                loss,
            });
        }
        Ok(())
    }

    /// Somebody does not go on. Whose masked update is here is in the sum all the same.
    fn drop_out(&mut self, step: secure::Step, node: NodeId, error: &TaskError) {
        if step > secure::Step::Mask {
            tracing::debug!(%node, %step, %error, "a client of a secure sum does not go on");
            return;
        }
        if let Some(taker) = self.takers.remove(&node) {
            self.tell_lost(taker.client, taker.assignment, error);
        }
    }

    fn tell_lost(&self, client: ClientId, assignment: AssignmentId, error: &TaskError) {
        let event = match error.kind {
            ErrorKind::Unavailable => {
                self.sum.clients.lost(client);
                Event::Gone { client }
            }
            _ => Event::GaveUp {
                client,
                assignment,
                reason: error.message.clone(),
            },
        };
        // The run may be over.
        let _ = self.sum.outbox.send(event);
    }

    fn summed(&self, sum: SecureSum) -> Result<Summed, String> {
        for fault in &sum.faults {
            tracing::warn!(?fault, "a share of a secure sum is not what its owner said");
        }
        let part = |node: &NodeId| self.takers.get(node).and_then(|taker| taker.part);
        let parts: Option<Vec<Part>> = sum.survivors.iter().map(part).collect();
        let parts = parts.ok_or("somebody is in it who was not asked")?;
        let (weight, elements) = sum.elements.split_last().ok_or("it has no numbers")?;
        Ok(Summed {
            parts,
            elements: elements
                .iter()
                .map(|element| Ring::BITS_64.centred(*element))
                .collect(),
            weight: *weight,
            bytes: self.bytes,
        })
    }
}

/// What it takes on its way, but for a few bytes of frame.
fn bytes_of(says: &ToServer) -> u64 {
    match says {
        ToServer::Masked(bytes) => bytes.len() as u64,
        other => wire::write(other).map_or(0, |bytes| bytes.len() as u64),
    }
}
