//! The driver's side: one sum, from the first question to the event of the run.

use super::identity::Credential;
use super::message::{Answered, Common, Lesson, Step};
use crate::drive::cbor;
use crate::drive::fed::joint::Joint;
use crate::drive::fed::wire::{Answer, Course, NOT_ASKED, Order, Work};
use crate::services::blocking;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use karman_fed::secure::{
    self, Closed, Failure, Member, Ring, SecureSum, Server, Session, Settings, ToClient, ToServer,
};
use karman_fed::{AssignmentId, ClientId, Event, Part, Summed};
use karman_types::{Digest, NodeId, TaskError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod meeting;

/// How long a client that has joined is tried that cannot be reached: only its link may come back.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// The elements by which a machine's speed at masks is measured: a megabyte of them, which takes a millisecond or so.
const MEASURED: usize = 1 << 17;

/// A sum on its way.
struct Summing {
    sum: Joint,
    /// Who takes part, and has not been reported as lost.
    takers: BTreeMap<NodeId, Taker>,
    /// When the round's time is over.
    ends: Instant,
    /// Bytes of masks that this machine makes in a second.
    speed: f64,
    bytes: u64,
}

/// Why there is no sum.
struct NoSum {
    reason: String,
    /// Whose lie that is, where it is one.
    liar: Option<NodeId>,
}

impl From<TaskError> for NoSum {
    fn from(error: TaskError) -> Self {
        Self {
            reason: error.message,
            liar: None,
        }
    }
}

impl From<Failure> for NoSum {
    fn from(failure: Failure) -> Self {
        Self {
            reason: failure.to_string(),
            liar: failure.liar(),
        }
    }
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

/// Makes it, and tells the run what became of it.
pub(in crate::drive::fed) async fn make(joint: Joint) {
    let outbox = joint.outbox.clone();
    let mut summing = Summing {
        ends: Instant::now() + joint.time(),
        sum: joint,
        takers: BTreeMap::new(),
        speed: 0.0,
        bytes: 0,
    };
    let event = match summing.run().await {
        Ok(sum) => Event::Summed { sum: Box::new(sum) },
        Err(NoSum { reason, liar }) => Event::Unsummed {
            assignments: summing.takers.values().map(|taker| taker.assignment).collect(),
            liar: liar.and_then(|node| summing.client_on(node)),
            reason,
        },
    };
    // The run may be over.
    let _ = outbox.send(event);
}

impl Summing {
    async fn run(&mut self) -> Result<Summed, NoSum> {
        let plugin = self.meet().await?;
        self.speed = blocking(|| Ok(speed())).await?;
        let about = self.about(plugin).await?;
        let (session, settings) = self.session(about)?;
        let mut server = Server::new(Arc::new(session));
        let all = self.takers.values().map(|taker| taker.credential.clone());
        let invited: Arc<Vec<Credential>> = Arc::new(all.collect());
        let join = |node: &NodeId| {
            let (settings, invited) = (settings.clone(), invited.clone());
            (*node, Step::Join { settings, invited })
        };
        let mut asked: Vec<(NodeId, Step)> = self.takers.keys().map(join).collect();
        loop {
            server = self.ask_all(server, asked).await?;
            let closed = blocking(move || {
                let closed = server.close();
                Ok((server, closed))
            });
            let (still, closed) = closed.await?;
            server = still;
            asked = match closed? {
                Closed::Sum(sum) => return Ok(self.summed(sum)?),
                Closed::Next(messages) => messages
                    .into_iter()
                    .filter_map(|(node, said)| Some((node, self.step(&node, said)?)))
                    .collect(),
            };
        }
    }

    /// What the sum is about: the lesson, as every client will look at it that has this plugin.
    async fn about(&self, plugin: Digest) -> Result<Digest, TaskError> {
        let taker = self.takers.values().next().ok_or_else(nobody)?;
        let order = Order::new(&self.sum.id, &self.sum.run, taker.client, Work::Describe);
        let common = Common::of((self.sum.run.clients.plugin.as_str(), plugin), &order);
        let lesson = self.lesson(taker);
        blocking(move || lesson.digest(&common)).await
    }

    fn session(&self, about: Digest) -> Result<(Session, Settings), TaskError> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|error| TaskError::internal(error.to_string()))?;
        let secure = self.sum.run.secure_sum.unwrap_or_default();
        let settings = Settings {
            round: about,
            graph: secure.graph,
            seed: Digest::from_bytes(random),
            // The weight is summed with the rest.
            length: self.sum.length + 1,
            ring: Ring::BITS_64,
            least: secure.least,
        };
        let members = self.takers.iter().map(|(node, taker)| Member {
            node: *node,
            key: taker.credential.key,
            once: taker.credential.once,
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
                lesson: Box::new(self.lesson(taker)),
            },
            said => Step::Said(said),
        })
    }

    fn lesson(&self, taker: &Taker) -> Lesson {
        Lesson {
            version: taker.version,
            course: taker.course.clone(),
            model: self.sum.model.clone(),
            grid: self.sum.run.grid(),
            weights: self.sum.run.weights,
            limits: self.sum.run.limits.clone(),
        }
    }

    /// Asks all of them at once, and takes in what they answer.
    async fn ask_all(&mut self, mut server: Server, asked: Vec<(NodeId, Step)>) -> Result<Server, TaskError> {
        let step = server.step();
        let left = self.ends.saturating_duration_since(Instant::now());
        // What unmasking takes is not given away to those who keep everybody waiting; but they have half of it in any case.
        let unmasking = server.unmasking(self.speed).min(left / 2);
        let time = step.time(left.saturating_sub(unmasking));
        let mut answers: FuturesUnordered<_> = asked
            .into_iter()
            .filter_map(|(node, said)| {
                let taker = self.takers.get(&node)?;
                let asked = self.ask(taker.client, taker.assignment, said, time, AFTERWARDS);
                let begun = Instant::now();
                Some(async move { (node, asked.await, begun.elapsed()) })
            })
            .collect();
        while let Some((node, answer, took)) = answers.next().await {
            let read = answer.and_then(|answer| self.read(step, node, answer, took));
            let (says, part) = match read {
                Ok(Some(read)) => read,
                Ok(None) => continue,
                Err(error) => {
                    self.drop_out(step, node, &error);
                    continue;
                }
            };
            let receiving = blocking(move || {
                let received = server.receive(node, says);
                Ok((server, received))
            });
            let (still, received) = receiving.await?;
            server = still;
            if let Err(rejected) = received {
                let error = TaskError::failed(rejected.to_string());
                self.drop_out(step, node, &error);
            } else if let (Some(part), Some(taker)) = (part, self.takers.get_mut(&node)) {
                taker.part = Some(part);
            }
        }
        Ok(server)
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
        self.sum
            .ask(client, work, (time, patience), |answer| match answer {
                Answer::Sum(answered) => Some(*answered),
                _ => None,
            })
    }

    /// What an answer says, and of a training what it declares; nothing where that cannot be, and its client is left out.
    fn read(
        &mut self,
        step: secure::Step,
        node: NodeId,
        answer: Answered,
        took: Duration,
    ) -> Result<Option<(ToServer, Option<Part>)>, TaskError> {
        let trains = step == secure::Step::Mask;
        let (says, part) = match answer {
            Answered::Says(says) if !trains => (says, None),
            Answered::Trained {
                says,
                samples,
                steps,
                loss,
            } if trains => {
                let Some(taker) = self.takers.get(&node) else {
                    return Ok(None);
                };
                let part = Part {
                    client: taker.client,
                    assignment: taker.assignment,
                    samples,
                    steps,
                    loss,
                    took,
                };
                (says, Some(part))
            }
            _ => return Err(TaskError::failed(NOT_ASKED)),
        };
        self.bytes += bytes_of(&says);
        match part {
            // Before its vector is in the sum: nothing can be taken out of that.
            Some(part) if part.check(&self.sum.run.limits).is_err() => {
                self.takers.remove(&node);
                // The run may be over.
                let _ = self.sum.outbox.send(Event::Misdeclared { part });
                Ok(None)
            }
            part => Ok(Some((says, part))),
        }
    }

    /// Somebody does not go on. Whose masked update is here is in the sum all the same.
    fn drop_out(&mut self, step: secure::Step, node: NodeId, error: &TaskError) {
        if step > secure::Step::Mask {
            tracing::debug!(%node, %step, %error, "a client of a secure sum does not go on");
            return;
        }
        if let Some(taker) = self.takers.remove(&node) {
            self.sum.tell_lost(taker.client, taker.assignment, error);
        }
    }

    /// The client on a node, whether it still takes part or not.
    fn client_on(&self, node: NodeId) -> Option<ClientId> {
        let members = self.sum.clients.members();
        let place = members.iter().position(|member| *member == node);
        place.map(|place| ClientId(place as u64))
    }

    fn summed(&self, sum: SecureSum) -> Result<Summed, TaskError> {
        for fault in &sum.faults {
            tracing::warn!(?fault, "a share of a secure sum is not what its owner said");
        }
        let part = |node: &NodeId| self.takers.get(node).and_then(|taker| taker.part);
        let parts: Option<Vec<Part>> = sum.survivors.iter().map(part).collect();
        let parts = parts.ok_or_else(|| TaskError::failed("somebody is in it who was not asked"))?;
        let last = sum.elements.split_last();
        let (weight, elements) = last.ok_or_else(|| TaskError::failed("it has no numbers"))?;
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

fn nobody() -> TaskError {
    TaskError::failed("none of its clients has said who it is")
}

/// Bytes of masks that this machine makes in a second.
fn speed() -> f64 {
    let mut masked = vec![0; MEASURED];
    let begun = Instant::now();
    Ring::BITS_64.add_mask(&mut masked, &[7; 32]);
    let took = begun.elapsed().max(Duration::from_micros(1));
    (MEASURED * Ring::BITS_64.width()) as f64 / took.as_secs_f64()
}

/// What it takes on its way, but for a few bytes of frame.
fn bytes_of(says: &ToServer) -> u64 {
    match says {
        ToServer::Masked(bytes) => bytes.len() as u64,
        other => cbor::write(other).map_or(0, |bytes| bytes.len() as u64),
    }
}
