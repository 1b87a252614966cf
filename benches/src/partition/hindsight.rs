//! What is known before a trace begins, and what would have been best when it is over.

use super::contender::{Contender, Goal, Who};
use super::continuum::Access;
use anyhow::Result;
use karman_sched::partition::{Link, Partitioner, Plan, Problem, Tiers, best_static};

/// Unfinished requests count to so many times what one takes by the best cut at the nominal rate, which is so many times the one from
/// which on it pays to cut.
const TIMEOUT: f64 = 10.0;
const NOMINAL: f64 = 2.0;
/// Static cuts that are run for each goal.
const BEST: usize = 2;
const EDGE: usize = 0;

/// The problem by what the nodes measured when their links were open.
pub(super) struct Ahead {
    latency: Problem,
    energy: Problem,
    break_even: f64,
    timeout_ms: f64,
}

impl Ahead {
    pub(super) fn new(latency: Problem, energy: Problem) -> Result<Self> {
        let break_even = break_even(&latency)?;
        let nominal = under(&latency, Access::Rate(NOMINAL * break_even))?;
        Ok(Self {
            timeout_ms: TIMEOUT * Tiers.plan(&nominal)?.prediction.latency_ms,
            latency,
            energy,
            break_even,
        })
    }

    /// The least rate of the access link, in Mbit/s, at which some cut is faster than the edge alone, within a percent.
    pub(super) const fn break_even(&self) -> f64 {
        self.break_even
    }

    pub(super) const fn timeout_ms(&self) -> f64 {
        self.timeout_ms
    }

    /// The links as they truly are.
    pub(super) fn links(&self, access: Access) -> Vec<Link> {
        links(&self.latency, access)
    }

    /// All who take part when the link will be like this.
    pub(super) fn contenders(&self, rates: &[Access]) -> Vec<Contender> {
        let layers = self.latency.graph().layers().len();
        let mut cuts = vec![[layers, layers], [0, 0]];
        for goal in [Goal::Latency, Goal::Energy] {
            let best = self.best(goal, rates);
            cuts.extend(
                best.into_iter()
                    .filter(|cut| !cuts.contains(cut))
                    .collect::<Vec<_>>(),
            );
        }
        let fixed = cuts
            .into_iter()
            .enumerate()
            .map(|(number, ends)| Contender::fixed(number, ends));
        let moving = [
            (Who::Ours, Goal::Latency),
            (Who::Neurosurgeon, Goal::Latency),
            (Who::Oracle, Goal::Latency),
            (Who::Ours, Goal::Energy),
            (Who::Oracle, Goal::Energy),
        ];
        moving
            .map(|(who, goal)| Contender::moving(who, goal))
            .into_iter()
            .chain(fixed)
            .collect()
    }

    /// The cuts that take least over the whole trace, by computing it.
    fn best(&self, goal: Goal, rates: &[Access]) -> Vec<[usize; 2]> {
        let problem = match goal {
            Goal::Latency => &self.latency,
            Goal::Energy => &self.energy,
        };
        let rounds: Vec<Option<Problem>> = rates.iter().map(|rate| under(problem, *rate).ok()).collect();
        // Who waits for nothing draws what it draws when it is idle.
        let idle_w: f64 = problem.tiers().iter().map(|tier| tier.power.idle_w).sum();
        let objective = problem.objective();
        let unfinished = (objective.latency + objective.energy * idle_w) * self.timeout_ms;
        let mut totals: Vec<(f64, [usize; 2])> = Vec::new();
        let _ = best_static(problem, |cut| {
            let of_round = |round: &Option<Problem>| {
                let used = round
                    .as_ref()
                    .and_then(|round| Some((round, round.predict(cut).ok()?)));
                used.map_or(unfinished, |(round, used)| round.cost(&used).min(unfinished))
            };
            let total = rounds.iter().map(of_round).sum();
            let before = |tier: usize| cut.iter().filter(|of| **of <= tier).count();
            totals.push((total, [before(0), before(1)]));
            Some(total)
        });
        totals.sort_by(|one, other| one.0.total_cmp(&other.0));
        totals.into_iter().take(BEST).map(|(_, ends)| ends).collect()
    }
}

fn links(problem: &Problem, access: Access) -> Vec<Link> {
    let all = problem.links().iter().copied();
    let with_rate = |link: Link| match (link.from == EDGE || link.to == EDGE, access) {
        (true, Access::Out) => None,
        (true, Access::Rate(rate_mbit_s)) => Some(Link { rate_mbit_s, ..link }),
        _ => Some(link),
    };
    all.filter_map(with_rate).collect()
}

fn under(problem: &Problem, access: Access) -> Result<Problem> {
    let (tiers, weights) = (problem.tiers().to_vec(), problem.weights().clone());
    Ok(problem.under(tiers, links(problem, access), weights)?)
}

fn break_even(problem: &Problem) -> Result<f64> {
    let (mut low, mut high) = (0.1, 10_000.0_f64);
    while high / low > 1.01 {
        let middle = (low * high).sqrt();
        let plan: Plan = Tiers.plan(&under(problem, Access::Rate(middle))?)?;
        match plan.assignment.iter().all(|tier| *tier == EDGE) {
            true => low = middle,
            false => high = middle,
        }
    }
    Ok(high)
}
