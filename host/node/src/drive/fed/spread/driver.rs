//! The driver's side: one round, from the trainings to the event of the run.

use super::message::{Answered, Joining, Lesson, Step};
use crate::drive::fed::joint::Joint;
use crate::drive::fed::wire::{Answer, Course, NOT_ASKED, Work};
use crate::drive::swarm::{SwarmLed, SwarmPlan};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use karman_fed::swarm::{MeanRule, SwarmSettings};
use karman_fed::{AssignmentId, ClientId, Event, Part, Reached, Swarmed};
use karman_types::{NodeId, TaskError};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long clients may take to say that they wait for the round.
const MEETING: Duration = Duration::from_secs(60);
/// How long one that cannot be reached is tried that has yet to train, when it may be starting again; and afterwards.
const BEFORE: Duration = Duration::from_secs(30);
pub(super) const AFTERWARDS: Duration = Duration::from_secs(5);

/// A round on its way.
pub(super) struct Spreading {
    pub(super) spread: Joint,
    /// Who has trained, and has not been reported as lost before the round began.
    pub(super) takers: BTreeMap<ClientId, Taker>,
    /// Who gave others what is no piece of the round, by the word of most of its neighbours.
    pub(super) found_out: Vec<ClientId>,
    /// When its time is over.
    ends: Instant,
}

pub(super) struct Taker {
    version: u64,
    /// What it says in the open of its training.
    pub(super) part: Part,
}

/// Makes it, and tells the run what became of it.
pub(in crate::drive::fed) async fn make(joint: Joint) {
    let outbox = joint.outbox.clone();
    let mut spreading = Spreading {
        ends: Instant::now() + joint.time(),
        spread: joint,
        takers: BTreeMap::new(),
        found_out: Vec::new(),
    };
    let event = match spreading.run().await {
        Ok(swarmed) => Event::Swarmed {
            swarmed: Box::new(swarmed),
        },
        Err(reason) => Event::Unsummed {
            assignments: spreading
                .takers
                .values()
                .map(|taker| taker.part.assignment)
                .collect(),
            // The others may come to a mean in the next round, without that one.
            liar: spreading.found_out.first().copied(),
            reason,
        },
    };
    // The run may be over.
    let _ = outbox.send(event);
}

impl Spreading {
    async fn run(&mut self) -> Result<Swarmed, String> {
        self.train().await;
        let plugin = &self.spread.run.clients.plugin;
        // No two rounds have the same name: a client may still wait for one that its driver has given up.
        let name = format!("{plugin}/{:016x}", fastrand::u64(..));
        let settings = self.settings();
        self.join(&name, &settings).await;
        let led = self.lead(&name, settings).await?;
        let came = self.outcomes(&name, &led).await;
        self.found_out = self.audit(&led, &came);
        let reached = came
            .iter()
            .map(|(client, came)| (*client, came.reached.clone()))
            .collect();
        let stayed = self.takers.keys().filter(|client| !self.has_left(client, &led));
        let agreed = Reached::agreed(&reached, stayed.count()).map_err(|error| error.to_string())?;
        let (mean, bytes) = self.mean(&name, &agreed).await?;
        Ok(self.swarmed(&led, &came, agreed, (mean, bytes)))
    }

    pub(super) fn left(&self) -> Duration {
        self.ends.saturating_duration_since(Instant::now())
    }

    /// Has all of them train. Half of the time is for that, the other half for the updates to get round.
    async fn train(&mut self) {
        let orders = std::mem::take(&mut self.spread.orders);
        let time = self.left() / 2;
        let mut answers: FuturesUnordered<_> = orders
            .into_iter()
            .map(|(client, order)| {
                let step = self.lesson(&order);
                let asked = step.map(|step| self.ask(client, order.assignment, step, time, BEFORE));
                let begun = Instant::now();
                async move {
                    let answer = match asked {
                        Some(asked) => asked.await,
                        None => Err(TaskError::internal("only what was trained goes round")),
                    };
                    (client, order.assignment, order.version, answer, begun.elapsed())
                }
            })
            .collect();
        while let Some((client, assignment, version, answer, took)) = answers.next().await {
            let declared = match answer {
                Ok(Answered::Trained { samples, steps, loss }) => Ok((samples, steps, loss)),
                Ok(_) => Err(TaskError::failed(NOT_ASKED)),
                Err(error) => Err(error),
            };
            let (samples, steps, loss) = match declared {
                Ok(declared) => declared,
                Err(error) => {
                    self.spread.tell_lost(client, assignment, &error);
                    continue;
                }
            };
            let part = Part {
                client,
                assignment,
                samples,
                steps,
                loss,
                took,
            };
            // Before its update goes round: nothing can be taken out of a mean.
            if part.check(&self.spread.run.limits).is_err() {
                // The run may be over.
                let _ = self.spread.outbox.send(Event::Misdeclared { part });
                continue;
            }
            self.takers.insert(client, Taker { version, part });
        }
    }

    fn lesson(&self, order: &karman_fed::Order) -> Option<Step> {
        let karman_fed::Work::Train(train) = &order.work else {
            return None;
        };
        Some(Step::Train(Lesson {
            version: order.version,
            course: Course::from(train),
            model: self.spread.model.clone(),
        }))
    }

    fn settings(&self) -> SwarmSettings {
        let run = &self.spread.run;
        let most_weight = run.weights.largest(run.limits.samples);
        let most_weight = u32::try_from(most_weight).unwrap_or(u32::MAX);
        let swarm = run.swarm.unwrap_or_default();
        swarm.settings(self.spread.length, self.takers.len(), most_weight)
    }

    /// Has all that have trained wait for the round.
    async fn join(&mut self, name: &str, settings: &SwarmSettings) {
        let run = &self.spread.run;
        let swarm = run.swarm.unwrap_or_default();
        let left = self.left();
        let joining = |taker: &Taker| Joining {
            name: name.to_owned(),
            version: taker.version,
            clients: self.takers.len() as u32,
            layout: settings.layout,
            weights: run.weights,
            rule: MeanRule {
                grid: run.grid(),
                magnitude: run.limits.magnitude,
            },
            link: swarm.link(&settings.layout),
            within_ms: left.as_millis() as u64,
        };
        let time = MEETING.min(left / 4);
        let mut answers: FuturesUnordered<_> = self
            .takers
            .iter()
            .map(|(client, taker)| {
                let (client, step) = (*client, Step::Join(joining(taker)));
                let asked = self.ask(client, taker.part.assignment, step, time, AFTERWARDS);
                async move { (client, asked.await) }
            })
            .collect();
        while let Some((client, answer)) = answers.next().await {
            let error = match answer {
                Ok(Answered::Waits) => continue,
                Ok(_) => TaskError::failed(NOT_ASKED),
                Err(error) => error,
            };
            if let Some(taker) = self.takers.remove(&client) {
                self.spread.tell_lost(client, taker.part.assignment, &error);
            }
        }
    }

    /// Leads the round among those that wait.
    async fn lead(&mut self, name: &str, settings: SwarmSettings) -> Result<SwarmLed, String> {
        let numbers = u32::try_from(self.spread.length).map_err(|error| error.to_string())?;
        let (left, swarm) = (self.left(), self.spread.run.swarm.unwrap_or_default());
        let members = self.spread.clients.members();
        let nodes: BTreeMap<NodeId, ClientId> = self
            .takers
            .keys()
            .filter_map(|client| Some((*members.get(client.0 as usize)?, *client)))
            .collect();
        let weights = self.spread.run.weights;
        let due = |client: &ClientId| Some(weights.in_swarm(self.takers.get(client)?.part.samples));
        let plan = SwarmPlan {
            name: name.to_owned(),
            settings,
            numbers,
            // Before the round begins: nothing can be taken out of a mean.
            weights: nodes
                .iter()
                .filter_map(|(node, client)| Some((*node, due(client)?)))
                .collect(),
            slot: swarm.slot,
            // Once for spray and warm-up, once for the exchange, and once to hear what came of them.
            patience: left / 3,
        };
        let led = self.spread.clients.lead(plan, nodes.keys().copied().collect());
        let led = match tokio::time::timeout(left, led).await {
            Ok(led) => led.map_err(|error| said(&error))?,
            Err(_) => return Err("its time was over before the updates had got round".into()),
        };
        for (node, why) in &led.refused {
            let taker = nodes.get(node).and_then(|client| self.takers.remove(client));
            if let Some(taker) = taker {
                let error = TaskError::failed(why.clone());
                self.spread
                    .tell_lost(taker.part.client, taker.part.assignment, &error);
            }
        }
        for node in &led.gone {
            let Some(taker) = nodes.get(node).and_then(|client| self.takers.get(client)) else {
                continue;
            };
            let error = match led.why.get(node) {
                Some(why) => TaskError::failed(why.clone()),
                None => TaskError::unavailable("it has left the round"),
            };
            self.spread
                .tell_lost(taker.part.client, taker.part.assignment, &error);
        }
        Ok(led)
    }

    pub(super) fn ask(
        &self,
        client: ClientId,
        assignment: AssignmentId,
        step: Step,
        time: Duration,
        patience: Duration,
    ) -> impl Future<Output = Result<Answered, TaskError>> + use<> {
        let step = Box::new(step);
        let work = Work::Spread { assignment, step };
        self.spread
            .ask(client, work, (time, patience), |answer| match answer {
                Answer::Spread(answered) => Some(*answered),
                _ => None,
            })
    }
}

/// What went wrong, with what its hint says of each node.
fn said(error: &TaskError) -> String {
    match &error.hint {
        Some(hint) => format!("{} ({hint})", error.message),
        None => error.message.clone(),
    }
}
