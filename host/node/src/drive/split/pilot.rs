//! A model in parts, in use: each request takes the plan of the moment, and what it took moves the plan.

mod follow;
mod late;
mod learn;
mod lost;
mod planner;

use super::encodings::MEASURE_AGAIN;
use super::journey::{Arrived, travel};
use super::plan::{Planned, Route};
use super::policy::Policy;
use super::problem::MESSAGE_MS;
use super::way::{Absent, Way};
use super::wire::Journey;
use crate::drive::links::{LinkMeasure, Probed, probe};
use crate::drive::mesh_of;
use crate::node::{Inner, Node};
use crate::services::{Meanwhile, blocking, shutting_down};
use futures::future::join_all;
use karman_engine::capability::nn::Tensors;
use karman_mesh::SILENCE;
use karman_sched::partition::{Action, Cause, Event, Link, ProblemError, Replanner};
use karman_types::{Digest, NodeId, TaskError};
use late::Late;
use lost::Lost;
use parking_lot::{Mutex, RwLock};
use planner::Planner;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How often to see who is to be asked whether he is back.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// How long a probe of a link may take at least.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

/// Keeps the plan of one model up to date, and runs requests by it.
pub(crate) struct Pilot {
    node: Weak<Inner>,
    planned: Planned,
    started: Instant,
    planner: Planner<Policy>,
    /// Changed only by who has the re-planner.
    way: RwLock<Way>,
    /// Why the plan is as it is.
    cause: Mutex<Cause>,
    /// Told when there is another plan.
    moved: Notify,
    /// Whoever makes the stages of the plan ready.
    following: tokio::sync::Mutex<()>,
    lost: Mutex<Lost>,
    late: Mutex<Late>,
    /// Tiers whose links are being probed.
    probed: Mutex<HashSet<usize>>,
    /// Requests so far.
    requests: AtomicU32,
    /// Every request that is under way has one.
    under_way: Arc<()>,
}

impl Pilot {
    /// Makes the stages ready, and looks after the plan from then on.
    pub(super) async fn start(node: &Node, planned: Planned) -> Result<Arc<Self>, TaskError> {
        let (policy, tuning) = (Policy::of(&planned.order), planned.tuning);
        let problem = planned.problem.clone();
        let replanner = blocking(move || {
            let replanner = Replanner::new(policy, problem, tuning, Duration::ZERO);
            replanner.map_err(|error| TaskError::unavailable(error.to_string()))
        });
        let replanner = replanner.await?;
        let route = planned.route(replanner.plan());
        let prepared = planned.prepare(node, &route).await;
        prepared.map_err(|(_, error)| error)?;
        let route = Arc::new(route);
        let way = Way::of(&replanner, route.clone(), &Absent::default());
        let pilot = Arc::new(Self {
            node: node.downgrade(),
            planned,
            started: Instant::now(),
            planner: Planner::new(replanner),
            way: RwLock::new(way),
            cause: Mutex::new(Cause::Period),
            moved: Notify::new(),
            following: tokio::sync::Mutex::default(),
            lost: Mutex::default(),
            late: Mutex::default(),
            probed: Mutex::default(),
            requests: AtomicU32::new(0),
            under_way: Arc::default(),
        });
        pilot.spare(node, route);
        tokio::spawn(look_after(Arc::downgrade(&pilot)));
        Ok(pilot)
    }

    /// Runs the model on these inputs: the results, and who did what.
    pub(super) async fn run(self: &Arc<Self>, inputs: Tensors) -> Result<Arrived, TaskError> {
        let node = Node::upgrade(&self.node).ok_or_else(shutting_down)?;
        let Way { route, stations, .. } = self.way.read().clone();
        let journey = Journey {
            cut: route.cut.clone(),
            stage: 0,
            stations: stations.to_vec(),
            max_error: self.planned.max_error,
            back_mbit_s: f64::INFINITY,
        };
        let name = format!("model/{}", self.planned.model.name);
        let is_due = self
            .requests
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(MEASURE_AGAIN);
        let looked_at = is_due.then(|| inputs.clone());
        let _under_way = self.under_way.clone();
        let arrived = travel(node, name, journey, inputs, Meanwhile::Nothing).await?;
        // Who asked does not wait until that is done.
        tokio::spawn(self.clone().learn_from(route, arrived.1.clone(), looked_at));
        Ok(arrived)
    }

    /// Does something with the re-planner in turn, and has requests go by what is known then.
    async fn think(
        self: &Arc<Self>,
        about: impl FnOnce(&Arc<Self>, &mut Replanner<Policy>) + Send + 'static,
    ) {
        let pilot = self.clone();
        let thought = self.planner.with(move |replanner| {
            about(&pilot, replanner);
            pilot.look(replanner);
            Ok(())
        });
        if let Err(error) = thought.await {
            tracing::warn!(model = self.planned.model.name, %error, "something is not learnt");
        }
    }

    /// Has requests go by what is known now.
    fn look(&self, replanner: &Replanner<Policy>) {
        let route = self.way.read().route.clone();
        self.take(replanner, route);
    }

    /// Has requests take this route, with what is known now.
    fn take(&self, replanner: &Replanner<Policy>, route: Arc<Route>) {
        let nodes = |tiers: Vec<usize>| tiers.into_iter().map(|tier| self.node_of(tier)).collect();
        let (late, has_late) = {
            let late = self.late.lock();
            (late.last(Instant::now()), late.any_of(&route.tiers))
        };
        let absent = Absent {
            lost: nodes(self.lost.lock().all()),
            late: nodes(late),
            slower: has_late.then(|| self.slower(&route)),
        };
        let way = Way::of(replanner, route, &absent);
        *self.way.write() = way;
    }

    /// How many times longer than by its plan this route was known to take when that was last looked at; a new plan knows all of it.
    fn slower(&self, route: &Arc<Route>) -> f64 {
        let before = self.way.read();
        match Arc::ptr_eq(&before.route, route) {
            true => before.slower,
            false => 1.0,
        }
    }

    /// The file that it runs parts of.
    pub(super) const fn digest(&self) -> Digest {
        self.planned.model.digest
    }

    fn tier_of(&self, node: NodeId) -> Option<usize> {
        self.planned
            .profiles
            .iter()
            .position(|profile| profile.node == node)
    }

    fn node_of(&self, tier: usize) -> NodeId {
        self.planned.profiles[tier].node
    }

    fn lose(self: &Arc<Self>, replanner: &mut Replanner<Policy>, tier: usize) {
        let is_new = tier != 0 && self.lost.lock().lose(tier, Instant::now());
        if is_new {
            let available = false;
            self.tell(replanner, Event::Tier { tier, available });
        }
    }

    /// Takes the links to be like this from now on, and nothing that is measured of them: what an operator knows, or an oracle that
    /// others are compared with. Links that are not named are not there. Returns when requests go by the plan that follows.
    pub(super) async fn state(self: &Arc<Self>, links: &[LinkMeasure]) -> Result<(), TaskError> {
        let node = Node::upgrade(&self.node).ok_or_else(shutting_down)?;
        let link = |link: &LinkMeasure| {
            let unknown = || {
                TaskError::invalid(format!(
                    "a link from {} to {}: both have to take part",
                    link.from, link.to
                ))
            };
            Ok(Link {
                from: self.tier_of(link.from).ok_or_else(unknown)?,
                to: self.tier_of(link.to).ok_or_else(unknown)?,
                rate_mbit_s: link.rate_mbit_s,
                latency_ms: link.latency_ms,
                message_ms: MESSAGE_MS,
            })
        };
        let links = links.iter().map(link).collect::<Result<Vec<_>, TaskError>>();
        let links = links.map_err(|error| error.with_field("links"))?;
        let pilot = self.clone();
        let stated = self.planner.with(move |replanner| {
            let wrong = |error: ProblemError| TaskError::invalid(error.to_string()).with_field("links");
            replanner.state_links(links).map_err(wrong)?;
            *pilot.cause.lock() = Cause::Stated;
            pilot.moved.notify_one();
            pilot.look(replanner);
            Ok(())
        });
        stated.await?;
        self.catch_up(&node).await
    }

    fn tell(self: &Arc<Self>, replanner: &mut Replanner<Policy>, event: Event) {
        match replanner.handle(self.started.elapsed(), event) {
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
            Action::Use { cause, .. } => {
                *self.cause.lock() = cause;
                self.moved.notify_one();
                tokio::spawn(async move { pilot.follow(&node).await });
            }
            Action::Probe {
                from: 0,
                to,
                bytes,
                patience_ms,
            } => {
                if !self.is_taken(to) && self.probed.lock().insert(to) {
                    tokio::spawn(async move { pilot.probe(&node, to, bytes, patience_ms).await });
                }
            }
            // Of links between others requests tell; every node has the whole file.
            Action::Probe { .. } | Action::Ship { .. } => {}
        }
    }

    /// Whether a request is under way over the link to this tier: it will tell of it, and a probe would keep it waiting.
    fn is_taken(&self, to: usize) -> bool {
        Arc::strong_count(&self.under_way) > 1 && self.way.read().route.tiers.get(1) == Some(&to)
    }

    /// Has a link measured of which nothing was heard for long.
    async fn probe(self: &Arc<Self>, node: &Node, to: usize, bytes: u64, patience_ms: f64) {
        let patience = Duration::from_secs_f64(patience_ms / 1e3).max(LEAST_PATIENCE);
        let probing = probe(node, self.node_of(to), bytes);
        let probed = timeout(patience, probing.clone()).await;
        self.probed.lock().remove(&to);
        let from = 0;
        let tell = async |event| {
            self.think(move |pilot, replanner| pilot.tell(replanner, event))
                .await;
        };
        match probed {
            Ok(Ok(Probed { bytes, took })) if took <= patience => {
                let (answer, ms) = (0, took.as_secs_f64() * 1e3);
                tell(Event::Answered {
                    from,
                    to,
                    bytes,
                    answer,
                    ms,
                })
                .await;
            }
            // Another model had sent it long before.
            Ok(Ok(_)) => tell(Event::Back { from, to }).await,
            // It is not in reach, which requests find out.
            Ok(Err(_)) => {}
            Err(_) => {
                // All of it may have arrived but the last byte: that is the fastest that the link can be.
                let (arrived, ms) = (bytes, patience.as_secs_f64() * 1e3);
                tell(Event::Overdue {
                    from,
                    to,
                    arrived,
                    ms,
                })
                .await;
                // What an outage holds up comes as soon as it is over, if its connection outlives that.
                if let Ok(Ok(_)) = timeout(SILENCE, probing).await {
                    tell(Event::Back { from, to }).await;
                }
            }
        }
    }

    /// Which node runs how much of it, as requests go now: a plan whose stages cannot be made ready is followed by none.
    pub(super) fn words(&self) -> String {
        let route = self.way.read().route.clone();
        let mut tiers = route.assignment.clone();
        tiers.sort_unstable();
        tiers.dedup();
        let parts: Vec<String> = tiers.iter().map(|tier| self.part(&route, *tier)).collect();
        format!("in parts: {}", parts.join(", "))
    }

    /// A tier's part of a route, for people.
    fn part(&self, route: &Route, tier: usize) -> String {
        let layers = route.assignment.iter().filter(|of| **of == tier).count();
        let profile = &self.planned.profiles[tier];
        format!("{} ({}): {layers} layers", profile.node.short(), profile.tier)
    }

    /// Asks nodes that did not answer whether they are back.
    async fn ask_again(self: Arc<Self>, node: Node) {
        let due = self.lost.lock().due(Instant::now());
        join_all(due.into_iter().map(|tier| self.ask_tier_again(&node, tier))).await;
    }

    async fn ask_tier_again(self: &Arc<Self>, node: &Node, tier: usize) {
        let Ok(mesh) = mesh_of(node) else { return };
        if let Some(peer) = mesh.node(self.node_of(tier)).await
            && mesh.reach(peer).await.is_ok()
        {
            let back = move |pilot: &Arc<Self>, replanner: &mut Replanner<Policy>| {
                pilot.lost.lock().find(tier);
                let available = true;
                pilot.tell(replanner, Event::Tier { tier, available });
            };
            self.think(back).await;
        }
    }
}

/// Until the model is whole again or the node ends.
async fn look_after(pilot: Weak<Pilot>) {
    let mut asked = Instant::now();
    // One that is gone is waited for long, and the others are looked after meanwhile.
    let mut asking: Option<JoinHandle<()>> = None;
    loop {
        let due = match pilot.upgrade() {
            Some(pilot) => {
                let due = pilot.planner.due().await;
                due.saturating_sub(pilot.started.elapsed())
            }
            None => return,
        };
        tokio::time::sleep(due.clamp(Duration::from_millis(50), ASK_AGAIN)).await;
        let Some(pilot) = pilot.upgrade() else { return };
        let Some(node) = Node::upgrade(&pilot.node) else {
            return;
        };
        pilot
            .think(|pilot, replanner| pilot.tell(replanner, Event::Tick))
            .await;
        if asked.elapsed() >= ASK_AGAIN {
            asked = Instant::now();
            if asking.as_ref().is_none_or(JoinHandle::is_finished) {
                asking = Some(tokio::spawn(pilot.clone().ask_again(node.clone())));
            }
            // What could not be made ready is tried again.
            if pilot.is_left_behind().await {
                tokio::spawn(async move { pilot.follow(&node).await });
            }
        }
    }
}
