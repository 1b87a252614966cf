//! A model in parts, in use: each request takes the plan of the moment, and what it took moves the plan.

use super::journey::{Arrived, travel};
use super::links::probe;
use super::plan::{Planned, Policy, Route};
use super::wire::{Journey, Leg, Station};
use crate::drive::mesh_of;
use crate::node::{Inner, Node};
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_engine::capability::nn::{Model, Tensors};
use karman_sched::partition::{Action, Event, Plan, Replanner, Tuning};
use karman_types::{NodeId, TaskError};
use parking_lot::{Mutex, RwLock};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often nodes that did not answer are asked whether they are back.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Keeps the plan of one model up to date, and runs requests by it.
pub(crate) struct Pilot {
    node: Weak<Inner>,
    planned: Planned,
    started: Instant,
    replanner: Mutex<Replanner<Policy>>,
    route: RwLock<Arc<Route>>,
    /// Tiers that did not answer.
    lost: Mutex<Vec<usize>>,
}

impl Pilot {
    /// Makes the stages ready, and looks after the plan from then on.
    pub(super) async fn start(node: &Node, planned: Planned) -> Result<Arc<Self>, TaskError> {
        let problem = planned.problem.clone();
        let replanner = Replanner::new(Policy, problem, Tuning::default(), Duration::ZERO)
            .map_err(|error| TaskError::unavailable(error.to_string()))?;
        let route = planned.route(replanner.plan());
        planned.prepare(node, &route).await?;
        let pilot = Arc::new(Self {
            node: node.downgrade(),
            planned,
            started: Instant::now(),
            replanner: Mutex::new(replanner),
            route: RwLock::new(Arc::new(route)),
            lost: Mutex::default(),
        });
        tokio::spawn(look_after(Arc::downgrade(&pilot)));
        Ok(pilot)
    }

    /// Runs the model on these inputs: the results, and who did what.
    pub(super) async fn run(self: &Arc<Self>, inputs: Tensors) -> Result<Arrived, TaskError> {
        let gone = || TaskError::unavailable("the node is shutting down");
        let node = Node::upgrade(&self.node).ok_or_else(gone)?;
        self.replanner.lock().start();
        let route = self.route.read().clone();
        let journey = Journey {
            cut: route.cut.clone(),
            stage: 0,
            stations: self.stations(&route),
            max_error: self.planned.max_error,
        };
        let name = format!("model/{}", self.planned.model.name);
        let arrived = travel(node, name, journey, inputs).await?;
        self.learn(&route, &arrived.1);
        Ok(arrived)
    }

    /// Where the stages run, with what is known now of the links between them.
    fn stations(&self, route: &Route) -> Vec<Station> {
        const PROBE: u64 = 1 << 20;
        let replanner = self.replanner.lock();
        let rate = |pair: &[usize]| {
            let ms = |bytes| replanner.expected_ms(pair[0], pair[1], bytes);
            let busy = ms(PROBE)? - ms(0)?;
            Some(PROBE as f64 * 8.0 / (busy * 1e3))
        };
        let stations = route.stations.iter().zip(route.tiers.windows(2));
        let with_rate = |(station, pair): (&Station, &[usize])| Station {
            rate_mbit_s: rate(pair).unwrap_or(f64::INFINITY),
            ..station.clone()
        };
        stations.map(with_rate).collect()
    }

    /// The plan of the moment.
    pub(super) fn plan(&self) -> Arc<Plan> {
        self.replanner.lock().plan().clone()
    }

    fn tier_of(&self, node: NodeId) -> Option<usize> {
        self.planned
            .profiles
            .iter()
            .position(|profile| profile.node == node)
    }

    /// What a request took says how fast nodes and links are now.
    fn learn(self: &Arc<Self>, route: &Route, legs: &[Leg]) {
        let mut at = 0;
        for leg in legs {
            let Some(tier) = self.tier_of(leg.node) else {
                continue;
            };
            if leg.failed.is_some() {
                self.lose(tier);
                continue;
            }
            let layers: Vec<usize> = (0..route.cut.stage_of_layer.len())
                .filter(|layer| route.cut.stage_of_layer[*layer] == leg.stage)
                .collect();
            if !layers.is_empty() {
                let ms = leg.compute_us as f64 / 1e3;
                self.tell(Event::Computed { tier, layers, ms });
            }
            if tier != at {
                let back = self
                    .replanner
                    .lock()
                    .expected_ms(tier, at, leg.bytes_out)
                    .unwrap_or_default();
                self.tell(Event::Sent {
                    from: at,
                    to: tier,
                    bytes: leg.bytes_in,
                    ms: (leg.transfer_us as f64 / 1e3 - back).max(0.0),
                });
            }
            at = tier;
        }
    }

    fn lose(self: &Arc<Self>, tier: usize) {
        let mut lost = self.lost.lock();
        if tier != 0 && !lost.contains(&tier) {
            lost.push(tier);
            drop(lost);
            self.tell(Event::Tier {
                tier,
                available: false,
            });
        }
    }

    fn tell(self: &Arc<Self>, event: Event) {
        let told = self.replanner.lock().handle(self.started.elapsed(), event);
        match told {
            Ok(actions) => actions.into_iter().for_each(|action| self.act(action)),
            Err(error) => tracing::debug!(model = self.planned.model.name, %error, "not learnt from"),
        }
    }

    fn act(self: &Arc<Self>, action: Action) {
        let Some(node) = Node::upgrade(&self.node) else {
            return;
        };
        let pilot = self.clone();
        match action {
            Action::Use { plan, cause } => {
                tokio::spawn(async move {
                    let route = pilot.planned.route(&plan);
                    let model = &pilot.planned.model.name;
                    let cut: Vec<String> = route.tiers.iter().map(|tier| pilot.part(&plan, *tier)).collect();
                    match pilot.planned.prepare(&node, &route).await {
                        Ok(()) => {
                            tracing::info!(model, cut = cut.join(", "), ?cause, "a cut has moved");
                            *pilot.route.write() = Arc::new(route);
                        }
                        Err(error) => tracing::warn!(model, %error, "a cut stays where it is"),
                    }
                });
            }
            Action::Probe {
                from: 0, to, bytes, ..
            } => {
                tokio::spawn(async move {
                    if let Ok(ms) = probe(&node, pilot.planned.profiles[to].node, bytes as usize).await {
                        pilot.tell(Event::Sent {
                            from: 0,
                            to,
                            bytes,
                            ms,
                        });
                    }
                });
            }
            // Others measure their links themselves when they are asked to take part; every node has the whole file.
            Action::Probe { .. } | Action::Ship { .. } => {}
        }
    }

    /// A tier's part of a plan, for people.
    pub(super) fn part(&self, plan: &Plan, tier: usize) -> String {
        let layers = plan.assignment.iter().filter(|of| **of == tier).count();
        let profile = &self.planned.profiles[tier];
        format!("{} ({}): {layers} layers", profile.node.short(), profile.tier)
    }

    /// Asks nodes that did not answer whether they are back.
    async fn ask_again(self: &Arc<Self>, node: &Node) {
        let lost = self.lost.lock().clone();
        for tier in lost {
            let at = self.planned.profiles[tier].node;
            let Ok(mesh) = mesh_of(node) else { return };
            if let Some(peer) = mesh.node(at).await
                && mesh.reach(peer).await.is_ok()
            {
                self.lost.lock().retain(|lost| *lost != tier);
                self.tell(Event::Tier {
                    tier,
                    available: true,
                });
            }
        }
    }
}

/// Until the model is whole again or the node ends.
async fn look_after(pilot: Weak<Pilot>) {
    let mut asked = Instant::now();
    loop {
        let due = match pilot.upgrade() {
            Some(pilot) => pilot
                .replanner
                .lock()
                .due()
                .saturating_sub(pilot.started.elapsed()),
            None => return,
        };
        tokio::time::sleep(due.clamp(Duration::from_millis(50), ASK_AGAIN)).await;
        let Some(pilot) = pilot.upgrade() else { return };
        let Some(node) = Node::upgrade(&pilot.node) else {
            return;
        };
        pilot.tell(Event::Tick);
        if asked.elapsed() >= ASK_AGAIN {
            asked = Instant::now();
            pilot.ask_again(&node).await;
        }
    }
}

/// The model as tasks load it.
pub(super) struct InParts(pub(super) Arc<Pilot>);

impl Model for InParts {
    fn run(self: Arc<Self>, inputs: Tensors) -> BoxFuture<'static, Result<Tensors, TaskError>> {
        async move { self.0.run(inputs).await.map(|(results, _)| results) }.boxed()
    }

    fn runs_on(&self) -> String {
        self.words()
    }
}

impl InParts {
    /// Which node runs how much of it, by the plan of the moment.
    pub(super) fn words(&self) -> String {
        let plan = self.0.plan();
        let mut tiers = plan.assignment.clone();
        tiers.sort_unstable();
        tiers.dedup();
        let parts: Vec<String> = tiers.iter().map(|tier| self.0.part(&plan, *tier)).collect();
        format!("in parts: {}", parts.join(", "))
    }
}
