//! A plan that moves with the conditions.

mod bottleneck;
mod link;
mod probe;
mod stated;
mod told;

use super::conditions::Conditions;
use super::problem::Shipping;
use super::{
    Action, Cause, Event, EventError, Held, Link, Partitioner, Plan, PlanError, Problem, ProblemError,
    Resumption, Tuning, Weights,
};
use link::LinkNews;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Keeps one network's plan up to date. It touches no clock and no link: it is told what was measured ([`Event`]) and when
/// (since some start, never going back), and says what to do ([`Action`]).
///
/// It looks again when its [period](Tuning::period) is over ([`Replanner::due`]), rarely where [nobody asks](Tuning::idle_after), when a
/// measurement is far from its prediction, and when tiers, links or weights come and go. It moves at once to a better plan whose weights are in place, and
/// has weights sent for a still better one if that pays for itself within the [horizon](Tuning::horizon). A request keeps the
/// plan that [`Replanner::start`] gave it; [`Replanner::resume`] plans what is left of one that lost its node or its link, as studies do:
/// a node has named who stands in before the request goes.
pub struct Replanner<P> {
    policy: P,
    tuning: Tuning,
    nominal: Problem,
    conditions: Conditions,
    held: Vec<Vec<bool>>,
    /// Weights that are on their way.
    under_way: Vec<(usize, usize)>,
    plan: Arc<Plan>,
    /// The tiers that were measured in this period, each with the layers that it ran.
    heard: BTreeSet<(usize, usize)>,
    /// Whether each tier was late or early when it was last measured; nothing where it was as expected.
    off: Vec<Option<Ordering>>,
    /// What was heard of each link.
    news: Vec<LinkNews>,
    /// Whether the links are known: then nothing is learnt of them.
    links_are_stated: bool,
    /// When it was last told of a request.
    asked: Duration,
    /// When it last looked again because its time was over.
    ticked: Duration,
    due: Duration,
    arrivals: u32,
    arrivals_per_s: f64,
}

impl<P: Partitioner> Replanner<P> {
    /// Starts with the policy's plan for this problem among the tiers that hold the weights.
    ///
    /// # Errors
    ///
    /// Tuning that makes no sense, or there is no plan.
    pub fn new(policy: P, problem: Problem, tuning: Tuning, now: Duration) -> Result<Self, PlanError> {
        tuning.check()?;
        let (tiers, layers) = (problem.tiers().len(), problem.graph().layers().len());
        let held = match problem.weights() {
            Weights::Everywhere => vec![vec![true; layers]; tiers],
            Weights::Shipped { held, .. } | Weights::Only { held } => held.clone(),
        };
        let conditions = Conditions::new(&problem);
        let ready = conditions.problem(&problem, Weights::Only { held: held.clone() })?;
        Ok(Self {
            plan: Arc::new(policy.plan(&ready)?),
            policy,
            conditions,
            held,
            under_way: Vec::new(),
            heard: BTreeSet::new(),
            off: vec![None; tiers],
            news: vec![LinkNews::new(now); problem.links().len()],
            links_are_stated: false,
            asked: now,
            ticked: now,
            due: now + tuning.period,
            tuning,
            nominal: problem,
            arrivals: 0,
            arrivals_per_s: 0.0,
        })
    }

    /// A request starts: this is its plan until it ends.
    pub fn start(&mut self) -> Arc<Plan> {
        self.arrivals += 1;
        self.plan.clone()
    }

    /// The plan that requests start with.
    pub const fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// When to say [`Event::Tick`].
    pub const fn due(&self) -> Duration {
        self.due
    }

    /// Takes an event, and says what to do.
    ///
    /// # Errors
    ///
    /// The event makes no sense; nothing has changed.
    pub fn handle(&mut self, now: Duration, event: Event) -> Result<Vec<Action>, EventError> {
        let mut actions = Vec::new();
        let is_free_to_look = matches!(event, Event::Tick | Event::Back { .. });
        if let Some(cause) = self.take(now, event)? {
            self.decide(cause, &mut actions);
        }
        if now >= self.due {
            self.tick(now, &mut actions);
        }
        // Not between the events of one request: the next of them may tell of the link.
        if is_free_to_look {
            self.look_at_links(now, &mut actions);
        }
        Ok(actions)
    }

    /// Plans what is left of a request under the present conditions, from the activations that survive, or from its inputs
    /// where that is better. Activations on tiers that are not available do not count.
    ///
    /// # Errors
    ///
    /// Nothing is left, or it cannot be run.
    pub fn resume(&self, held: &[Held]) -> Result<Resumption, PlanError> {
        let tiers = self.nominal.tiers().len();
        if let Some(Held { tensor, tier }) = held.iter().copied().find(|held| held.tier >= tiers) {
            let of = format!("held tensor {tensor}");
            return Err(ProblemError::NoSuchTier { of, tier, tiers }.into());
        }
        let survives = |held: &&Held| self.conditions.tiers()[held.tier].available;
        let held: Vec<Held> = held.iter().filter(survives).copied().collect();
        let from_held = self.resume_from(&held);
        if held.is_empty() || matches!(from_held, Err(PlanError::Problem(_))) {
            return from_held;
        }
        match (from_held, self.resume_from(&[])) {
            (Ok(held), Ok(inputs)) if inputs.plan.cost < held.plan.cost => Ok(inputs),
            (Err(_), Ok(inputs)) => Ok(inputs),
            (from_held, _) => from_held,
        }
    }

    fn resume_from(&self, held: &[Held]) -> Result<Resumption, PlanError> {
        let suffix = self
            .conditions
            .graph()
            .remaining(held)
            .map_err(ProblemError::from)?;
        let left = |held: &Vec<bool>| suffix.layers.iter().map(|layer| held[*layer]).collect();
        let weights = Weights::Only {
            held: self.held.iter().map(left).collect(),
        };
        let graph = Arc::new(suffix.graph.clone());
        let problem = self.conditions.problem_of(graph, &self.nominal, weights)?;
        let plan = self.policy.plan(&problem)?;
        Ok(Resumption {
            suffix,
            plan,
            problem,
        })
    }

    /// What is left of a request whose message is overdue, if it is better to leave that message: when it would arrive after
    /// `waiting_ms` more, and the request could then go on from `arrived`, while now it can go on from `held`. `link` is that
    /// on which it waits.
    pub fn rescue(
        &self,
        link: (usize, usize),
        waiting_ms: f64,
        arrived: &[Held],
        held: &[Held],
    ) -> Option<Resumption> {
        let instead = self.resume(held).ok()?;
        let index = self.conditions.link(link.0, link.1);
        let Some(index) = index.filter(|index| self.conditions.is_up(*index)) else {
            return Some(instead);
        };
        let link = self.conditions.links()[index];
        let price = self
            .nominal
            .objective()
            .transfer_price(instead.problem.tiers(), &link);
        let onward = self.resume(arrived).map_or(0.0, |onward| onward.plan.cost);
        self.tuning
            .worth(instead.plan.cost, onward + waiting_ms * price)
            .then_some(instead)
    }

    /// How long a message is expected to take now; nothing where there is no link.
    pub fn expected_ms(&self, from: usize, to: usize, bytes: u64) -> Option<f64> {
        let link = self.conditions.link(from, to)?;
        Some(self.conditions.links()[link].ms(bytes))
    }

    /// The problem as it looks now, with the weights where they are.
    ///
    /// # Errors
    ///
    /// None that [`Replanner::handle`] leaves behind.
    pub fn problem(&self) -> Result<Problem, ProblemError> {
        self.conditions.problem(&self.nominal, self.ready())
    }

    fn tick(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let period = now.saturating_sub(self.ticked);
        let rate = f64::from(std::mem::take(&mut self.arrivals)) / period.as_secs_f64();
        self.arrivals_per_s = f64::midpoint(self.arrivals_per_s, rate);
        self.ticked = now;
        self.due = match self.is_idle(now) {
            true => now + self.tuning.idle_period.max(self.tuning.period),
            false => now + self.tuning.period,
        };
        let share = self.tuning.forgotten(period);
        let heard = std::mem::take(&mut self.heard);
        self.conditions.forget(&heard, share);
        // One that could be probed was heard of by now, if it matters.
        for (link, news) in self.news.iter().enumerate() {
            if news.is_silent(self.tuning.probe_at_most * 2, now) {
                self.conditions.forget_link(link, share);
            }
        }
        self.decide(Cause::Period, actions);
    }

    /// Whether nobody has asked for long.
    fn is_idle(&self, now: Duration) -> bool {
        now.saturating_sub(self.asked) > self.tuning.idle_after
    }

    /// What the plan costs now, by the links that its requests take.
    fn current(&self, now: &Problem) -> f64 {
        let used = &self.plan.prediction.links;
        let takes = |link: &&Link| {
            used.iter()
                .any(|used| (used.from, used.to) == (link.from, link.to))
        };
        let links = now.links().iter().filter(takes).copied().collect();
        let by_these = now.under(now.tiers().to_vec(), links, self.ready());
        let predicted = by_these
            .ok()
            .and_then(|now| Some(now.cost(&now.predict(&self.plan.assignment).ok()?)));
        predicted.unwrap_or(f64::INFINITY)
    }

    /// Moves to a better plan, and has weights sent for a still better one.
    fn decide(&mut self, cause: Cause, actions: &mut Vec<Action>) {
        let Ok(now) = self.problem() else { return };
        let current = self.current(&now);
        let ready = self.policy.plan(&now).ok();
        if let Some(ready) = ready.filter(|ready| self.tuning.worth(ready.cost, current)) {
            self.plan = Arc::new(ready);
            self.news.iter_mut().for_each(|news| news.looks = 0);
            actions.push(Action::Use {
                plan: self.plan.clone(),
                cause,
            });
        }
        let over_requests = self.arrivals_per_s * self.tuning.horizon.as_secs_f64();
        let missing = self.held.iter().flatten().any(|held| !held);
        if !missing || !self.under_way.is_empty() || over_requests <= 0.0 {
            return;
        }
        let weights = Weights::Shipped {
            held: self.held.clone(),
            over_requests,
        };
        let Ok(free) = self.conditions.problem(&self.nominal, weights) else {
            return;
        };
        if let Ok(target) = self.policy.plan(&free)
            && target.prediction.shipping.bytes > 0
            && self.tuning.worth_shipping(target.cost, self.current(&now))
        {
            self.ship(&free, &target, actions);
        }
    }

    fn ship(&mut self, problem: &Problem, target: &Plan, actions: &mut Vec<Action>) {
        let mut loads: Vec<(usize, usize, Vec<usize>)> = Vec::new();
        for (layer, to) in target.assignment.iter().copied().enumerate() {
            if let Shipping::From { holder, .. } = problem.shipping(layer, to) {
                self.under_way.push((to, layer));
                match loads.iter_mut().find(|load| (load.0, load.1) == (holder, to)) {
                    Some((_, _, layers)) => layers.push(layer),
                    None => loads.push((holder, to, vec![layer])),
                }
            }
        }
        let bytes = |layer: &usize| problem.graph().layers()[*layer].weight_bytes;
        actions.extend(loads.into_iter().map(|(from, to, layers)| Action::Ship {
            from,
            to,
            bytes: layers.iter().map(bytes).fold(0, u64::saturating_add),
            layers,
        }));
    }

    fn ready(&self) -> Weights {
        Weights::Only {
            held: self.held.clone(),
        }
    }
}
