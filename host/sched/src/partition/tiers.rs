//! One interval of layers for each tier.

use super::frame::{Frame, Prices, participants};
use super::{Infeasible, Optimality, Partitioner, Plan, PlanError, Problem, intervals};

/// Cuts the order of the layers into one interval for each tier, some of them empty, for every choice of tiers that take part.
///
/// Exact for chains, with or without skip connections, under memory limits and with every objective; where several of the
/// transfers share a link that could be the slowest stage, the plan says how far from the best it may be. In a graph with
/// branches it misses the cuts that are no interval of the one order it looks at. Cost: about tiers x layers² additions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tiers;

impl Partitioner for Tiers {
    fn name(&self) -> &'static str {
        "tiers"
    }

    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
        let prices = Prices::of(problem);
        let order = problem.graph().order();
        let (mut cuts, mut bound) = (Vec::new(), f64::INFINITY);
        for tiers in participants(problem) {
            let frame = Frame::new(problem, tiers, &prices);
            if let Some((cut, least)) = intervals::best(&frame, order) {
                bound = bound.min(least + frame.fixed_cost(&prices));
                cuts.push(cut);
            }
        }
        let (best, cost) = cheapest(problem, &cuts)?;
        let optimality = match problem.graph().is_line() {
            true => Optimality::between(bound, cost),
            false => Optimality::Unknown,
        };
        Ok(Plan::new(problem, self.name(), best, cuts, optimality)?)
    }
}

/// The cheapest of these cuts, and what it costs.
///
/// # Errors
///
/// None of them can run; then the reason why the whole network on its source cannot, or is not worth a look.
fn cheapest(problem: &Problem, cuts: &[Vec<usize>]) -> Result<(Vec<usize>, f64), Infeasible> {
    let predicted = cuts
        .iter()
        .filter_map(|cut| Some((problem.predict(cut).ok()?, cut)));
    let costs = predicted.map(|(prediction, cut)| (problem.cost(&prediction), cut));
    match costs.min_by(|(a, _), (b, _)| a.total_cmp(b)) {
        Some((cost, cut)) => Ok((cut.clone(), cost)),
        None => Err(why_none(problem)),
    }
}

/// Why nothing can run, as far as one cut can show it: the whole network on each tier in turn.
pub(super) fn why_none(problem: &Problem) -> Infeasible {
    let layers = problem.graph().layers().len();
    let whys = (0..problem.tiers().len()).filter_map(|tier| problem.predict(&vec![tier; layers]).err());
    whys.min_by_key(|why| !matches!(why, Infeasible::Memory { .. }))
        .unwrap_or(Infeasible::NotAvailable { tier: 0 })
}
