//! A cut that was chosen, and why.

use super::{Infeasible, Prediction, Problem};
use serde::{Deserialize, Serialize};

/// A gap below this share of the cost is rounding.
const ROUNDING: f64 = 1e-9;
/// How many runners-up a plan keeps, of those that could run and of those that could not.
const RUNNERS_UP: usize = 4;

/// Which layer runs on which tier, what that takes, and what it was better than.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Plan {
    /// The policy that chose it.
    pub policy: String,
    /// The tier of each layer.
    pub assignment: Vec<usize>,
    /// What a request takes.
    pub prediction: Prediction,
    /// The objective's value.
    pub cost: f64,
    /// How good the policy knows it to be.
    pub optimality: Optimality,
    /// What else was there, the next best first, those that cannot run last.
    pub runners_up: Vec<RunnerUp>,
}

/// What is known of the distance to the best cut there is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Optimality {
    /// None is better.
    Proven,
    /// None is better by more than this, in the objective's unit.
    Within(f64),
    /// Better ones may exist that the policy does not look at.
    Unknown,
}

impl Optimality {
    /// What is known of a cut of this cost where none costs less than `bound`.
    pub(crate) fn between(bound: f64, cost: f64) -> Self {
        let gap = cost - bound;
        match gap <= ROUNDING * cost.abs() {
            true => Self::Proven,
            false => Self::Within(gap),
        }
    }
}

/// A cut that was not chosen.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RunnerUp {
    /// The tier of each layer.
    pub assignment: Vec<usize>,
    /// What a request would take, where it could run.
    pub prediction: Option<Prediction>,
    /// Why it lost.
    pub lost: Lost,
}

/// Why a cut was not chosen.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Lost {
    /// It cannot run.
    Infeasible(Infeasible),
    /// It costs more; or less, where the chosen one is given, and no policy's choice.
    Costlier {
        /// Its cost over that of the chosen one, minus one.
        by: f64,
        /// Where most of that comes from.
        mostly: Term,
        /// How much more that part costs, in the objective's unit; below 0 where it costs less.
        more: f64,
    },
}

/// A part of what a cut costs.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Term {
    /// Computing on this tier.
    Compute(usize),
    /// Sending over this link.
    Transfer {
        /// Where it begins.
        from: usize,
        /// Where it ends.
        to: usize,
    },
    /// The slowest stage.
    Interval,
    /// Sending weights.
    Shipping,
}

impl Plan {
    /// The plan for `chosen`, explained by what else was considered. All layers on one tier, and each border moved by one
    /// layer, are looked at besides.
    pub(crate) fn new(
        problem: &Problem,
        policy: &str,
        chosen: Vec<usize>,
        mut others: Vec<Vec<usize>>,
        optimality: Optimality,
    ) -> Result<Self, Infeasible> {
        let prediction = problem.predict(&chosen)?;
        let cost = problem.cost(&prediction);
        others.extend((0..problem.tiers().len()).map(|tier| vec![tier; chosen.len()]));
        others.extend(neighbours(problem, &chosen));
        others.sort();
        others.dedup();
        others.retain(|other| *other != chosen);
        let chosen_terms = terms(problem, &prediction);
        let runner_up = |assignment: Vec<usize>| match problem.predict(&assignment) {
            Ok(other) => RunnerUp {
                lost: costlier(problem, &chosen_terms, cost, &other),
                prediction: Some(other),
                assignment,
            },
            Err(why) => RunnerUp {
                lost: Lost::Infeasible(why),
                prediction: None,
                assignment,
            },
        };
        let (mut slower, mut impossible): (Vec<RunnerUp>, Vec<RunnerUp>) = others
            .into_iter()
            .map(runner_up)
            .partition(|other| other.prediction.is_some());
        slower.sort_by(|a, b| a.lost.by().total_cmp(&b.lost.by()));
        slower.truncate(RUNNERS_UP);
        impossible.truncate(RUNNERS_UP);
        slower.append(&mut impossible);
        Ok(Self {
            policy: policy.into(),
            assignment: chosen,
            prediction,
            cost,
            optimality,
            runners_up: slower,
        })
    }

    /// The layers of each tier that has any, in the order of the tiers and in one in which they can run.
    pub fn fragments(&self, problem: &Problem) -> Vec<(usize, Vec<usize>)> {
        let order = problem.graph().order().iter().copied();
        let of = |tier| {
            let layers = order.clone().filter(|layer| self.assignment[*layer] == tier);
            (tier, layers.collect::<Vec<usize>>())
        };
        let fragments = (0..problem.tiers().len()).map(of);
        fragments.filter(|(_, layers)| !layers.is_empty()).collect()
    }
}

impl Lost {
    /// By what share it costs more; infinite where it cannot run.
    pub const fn by(&self) -> f64 {
        match self {
            Self::Infeasible(_) => f64::INFINITY,
            Self::Costlier { by, .. } => *by,
        }
    }
}

/// The same cut with one border moved by one layer.
fn neighbours(problem: &Problem, chosen: &[usize]) -> Vec<Vec<usize>> {
    let mut row = problem.graph().order().to_vec();
    // Stable: within a tier the order stays one in which the layers can run.
    row.sort_by_key(|layer| chosen[*layer]);
    let borders = row.windows(2).filter(|pair| chosen[pair[0]] != chosen[pair[1]]);
    let moved = borders.flat_map(|pair| {
        let with = |layer: usize, tier: usize| {
            let mut other = chosen.to_vec();
            other[layer] = tier;
            other
        };
        [with(pair[0], chosen[pair[1]]), with(pair[1], chosen[pair[0]])]
    });
    moved.collect()
}

/// The cost in its parts.
fn terms(problem: &Problem, prediction: &Prediction) -> Vec<(Term, f64)> {
    let (objective, tiers) = (problem.objective(), problem.tiers());
    let compute = prediction.tiers.iter().enumerate().map(|(tier, used)| {
        let cost = used.compute_ms * objective.compute_price(tiers, tier);
        (Term::Compute(tier), cost)
    });
    let transfer = problem.links().iter().map(|link| {
        let (from, to) = (link.from, link.to);
        let used = prediction
            .links
            .iter()
            .find(|used| (used.from, used.to) == (from, to));
        let cost = used.map_or(0.0, |used| used.ms * objective.transfer_price(tiers, link));
        (Term::Transfer { from, to }, cost)
    });
    let interval = (Term::Interval, objective.interval * prediction.interval_ms);
    let shipping = (Term::Shipping, prediction.shipping.cost);
    compute.chain(transfer).chain([interval, shipping]).collect()
}

fn costlier(problem: &Problem, chosen: &[(Term, f64)], cost: f64, other: &Prediction) -> Lost {
    let theirs = terms(problem, other);
    let more = theirs
        .iter()
        .zip(chosen)
        .map(|((term, theirs), (_, ours))| (*term, theirs - ours));
    let by = match cost > 0.0 {
        true => problem.cost(other) / cost - 1.0,
        false => problem.cost(other),
    };
    let towards = by.signum();
    let (mostly, more) = more
        .max_by(|(_, a), (_, b)| (a * towards).total_cmp(&(b * towards)))
        .unwrap_or((Term::Interval, 0.0));
    Lost::Costlier { by, mostly, more }
}
