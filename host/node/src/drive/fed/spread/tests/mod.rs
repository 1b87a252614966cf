//! Whole runs between clients that speak the protocol, without nodes, guests and pieces around them: where a real round sends pieces,
//! the updates of those who wait are added up here.
//!
//! | file | what |
//! |---|---|
//! | `runs` | whole runs: the models that they come to, and clients that leave or lie |
//! | `joining` | what a client brings into a round, and what it refuses |

mod joining;
mod runs;

use super::client::{Sharer, Swarming, carry_out};
use super::message::{Answered, Lesson, Step};
use super::seats::Seats;
use crate::config::FederatedConfig;
use crate::drive::fed::memory::Memory;
use crate::drive::fed::orders::Clients;
use crate::drive::fed::testing::{CLIENTS, frame, judgement, update_of};
use crate::drive::fed::wire::{Answer, Order, Work};
use crate::drive::swarm::{SwarmEntry, SwarmLed, SwarmOutcome, SwarmPlan};
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_fed::swarm::{Client, Mean};
use karman_fed::{AssignmentId, ClientId};
use karman_types::{Digest, NodeId, TaskError};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// What client 2 does.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Does {
    Well,
    /// In the second round it does not train.
    Fail,
    /// In the second round it leaves when its update has got round.
    Leave,
    /// The same, and it says why.
    Quit,
    /// It says that it has come to another mean.
    Lie,
    /// In the second round all others say that it sent them what is no piece, and it says so of one of them.
    Alter,
    /// It never says what it has come to.
    Hang,
    /// It is not there when the round begins, and still trains and joins.
    Miss,
}

type Waiting = (SwarmEntry, oneshot::Sender<Result<SwarmOutcome, TaskError>>);

/// Where those wait who are in a round.
#[derive(Default)]
struct Hall(Mutex<BTreeMap<(String, NodeId), Waiting>>);

struct Door(Arc<Hall>, NodeId);

impl Swarming for Door {
    fn join(&self, entry: SwarmEntry) -> BoxFuture<'static, Result<SwarmOutcome, TaskError>> {
        let (hall, me) = (self.0.clone(), self.1);
        async move {
            let (tell, told) = oneshot::channel();
            hall.0.lock().insert((entry.name.clone(), me), (entry, tell));
            told.await
                .unwrap_or_else(|_| Err(TaskError::cancelled("nobody leads it")))
        }
        .boxed()
    }
}

struct Village {
    hall: Arc<Hall>,
    people: Vec<(Arc<Memory>, Arc<Seats>)>,
    does: Does,
    round: AtomicUsize,
    trainings: AtomicUsize,
    /// Whether the second round is never over; that it has begun is told here.
    hangs: AtomicBool,
    hung: Notify,
}

fn node(client: ClientId) -> NodeId {
    NodeId::of_key(&client.0.to_le_bytes())
}

impl Village {
    fn sharer(&self, order: &Order) -> Sharer {
        let (memory, seats) = &self.people[order.client.0 as usize];
        Sharer {
            swarm: Arc::new(Door(self.hall.clone(), node(order.client))),
            seats: seats.clone(),
            limits: FederatedConfig::default(),
            memory: memory.clone(),
            key: Memory::key(NodeId::of_key(b"driver"), order),
        }
    }

    async fn step(&self, order: &Order, assignment: AssignmentId, step: Step) -> Result<Answer, TaskError> {
        let (client, odd) = (order.client, order.client.0 == 2);
        let sharer = self.sharer(order);
        if let Step::Train(lesson) = &step
            && odd
            && self.does == Does::Fail
            && lesson.version == 1
        {
            return Err(TaskError::failed("it has no data today"));
        }
        if matches!(step, Step::Outcome { .. }) && odd && self.does == Does::Hang {
            return std::future::pending().await;
        }
        let train = |lesson: Lesson| {
            let (memory, key) = (sharer.memory.clone(), sharer.key.clone());
            let trainings = &self.trainings;
            async move {
                let of = (assignment, lesson.version);
                let mut remembered = memory.get(&key)?;
                if let Some((known, update)) = &remembered.answered
                    && *known == of
                {
                    return Ok(update.clone());
                }
                trainings.fetch_add(1, Ordering::Relaxed);
                let update = update_of(client, &lesson.course, &lesson.model)?;
                remembered.answered = Some((of, update.clone()));
                memory.put(&key, remembered)?;
                Ok(update)
            }
            .boxed()
        };
        let mut answered = carry_out(&sharer, assignment, step, train).await?;
        if let Answered::Came(came) = &mut answered
            && odd
            && self.does == Does::Lie
        {
            came.reached.mean = Digest::of(b"another");
        }
        Ok(Answer::Spread(Box::new(answered)))
    }

    /// Adds up what those have who wait.
    fn play(&self, plan: &SwarmPlan, nodes: &[NodeId], second: bool) -> SwarmLed {
        let mut mean: Option<Mean> = None;
        let took = (Duration::from_millis(30), Duration::from_millis(70));
        let covered = true;
        let mut led = SwarmLed {
            covered,
            took,
            ..SwarmLed::default()
        };
        let mut tell = Vec::new();
        for at in nodes {
            let missing = self.does == Does::Miss && *at == node(ClientId(2));
            let waiting = self.hall.0.lock().remove(&(plan.name.clone(), *at));
            let Some((entry, told)) = waiting.filter(|_| !missing) else {
                led.refused.push((*at, "it is not there".into()));
                continue;
            };
            assert_eq!(entry.lead, NodeId::of_key(b"driver"));
            assert_eq!(plan.weights.get(at), Some(&entry.weight));
            let numbers = entry.update.len();
            let rule = entry.rule.unwrap();
            let mean = mean.get_or_insert_with(|| Mean::by_rule(numbers, rule));
            mean.add(&entry.update, entry.weight).unwrap();
            led.clients.push(*at);
            led.updates.push((
                Digest::of(
                    &entry
                        .name
                        .bytes()
                        .chain(at.to_string().bytes())
                        .collect::<Vec<u8>>(),
                ),
                entry.weight,
            ));
            if !second || *at != node(ClientId(2)) || !matches!(self.does, Does::Leave | Does::Quit) {
                tell.push((*at, told));
                continue;
            }
            led.gone.push(*at);
            if self.does == Does::Quit {
                led.why.insert(*at, "it is not led by the rules".into());
            }
        }
        let outcome = SwarmOutcome {
            mean: mean.unwrap().finish().unwrap(),
            rebuilt: led.updates.iter().map(|(update, _)| *update).collect(),
            of: led.updates.len(),
            left_out: Vec::new(),
            covered: true,
            unprotected: 1,
            altered: Vec::new(),
        };
        let number = |at: &NodeId| led.clients.iter().position(|other| other == at).unwrap() as Client;
        let odd = node(ClientId(2));
        let all = 0..led.clients.len() as Client;
        for (at, told) in tell {
            let accused = if at == odd { node(ClientId(0)) } else { odd };
            let accuses = second && self.does == Does::Alter;
            let outcome = SwarmOutcome {
                altered: if accuses {
                    vec![number(&accused)]
                } else {
                    Vec::new()
                },
                ..outcome.clone()
            };
            assert!(told.send(Ok(outcome)).is_ok());
        }
        led.neighbours = all
            .clone()
            .map(|client| all.clone().filter(|other| *other != client).collect())
            .collect();
        led
    }
}

struct Meeting(Arc<Village>);

impl Clients for Meeting {
    fn ask(&self, order: Order, _: Option<Duration>) -> BoxFuture<'static, Result<Answer, TaskError>> {
        let village = self.0.clone();
        async move {
            match &order.work {
                Work::Describe | Work::TrainPrivately { .. } | Work::Sum { .. } => panic!("{order:?}"),
                Work::Begin { .. } => Ok(Answer::Begun {
                    model: vec![("weight".into(), frame(&[0.0, 0.5, -0.5]))],
                }),
                Work::Train {
                    version,
                    course,
                    model,
                    ..
                } => match order.client.0 == 2 && *version == 1 && village.does == Does::Fail {
                    true => Err(TaskError::failed("it has no data today")),
                    false => Ok(Answer::Trained(update_of(order.client, course, model)?)),
                },
                Work::Evaluate { .. } => Ok(Answer::Judged(judgement())),
                Work::Spread { assignment, step } => {
                    village.step(&order, *assignment, (**step).clone()).await
                }
            }
        }
        .boxed()
    }

    fn members(&self) -> Vec<NodeId> {
        (0..CLIENTS).map(|client| node(ClientId(client))).collect()
    }

    fn lead(&self, plan: SwarmPlan, nodes: Vec<NodeId>) -> BoxFuture<'static, Result<SwarmLed, TaskError>> {
        let village = self.0.clone();
        async move {
            let second = village.round.fetch_add(1, Ordering::Relaxed) == 1;
            if second && village.hangs.load(Ordering::Relaxed) {
                village.hung.notify_one();
                std::future::pending::<()>().await;
            }
            Ok(village.play(&plan, &nodes, second))
        }
        .boxed()
    }
}

fn meeting(does: Does) -> Arc<Meeting> {
    let person = |_| {
        let memory = Arc::new(Memory::in_process(BTreeMap::new()));
        (memory, Arc::new(Seats::default()))
    };
    Arc::new(Meeting(Arc::new(Village {
        hall: Arc::default(),
        people: (0..CLIENTS).map(person).collect(),
        does,
        round: AtomicUsize::new(0),
        trainings: AtomicUsize::new(0),
        hangs: AtomicBool::new(false),
        hung: Notify::new(),
    })))
}
