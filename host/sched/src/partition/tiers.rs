//! One interval of layers for each tier.

use super::frame::{Frame, Prices, participants};
use super::{Infeasible, Optimality, Partitioner, Plan, PlanError, Problem, intervals};

/// Cuts the order of the layers into one interval for each tier, some of them empty, for every choice of tiers that take part.
///
/// Exact for chains, with or without skip connections, under memory limits and with every objective. In a graph with branches it
/// misses the cuts that are no interval of the one order it looks at. Cost: about tiers x layers² additions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tiers;

impl Partitioner for Tiers {
    fn name(&self) -> &'static str {
        "tiers"
    }

    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
        let prices = Prices::of(problem);
        let order = problem.graph().order();
        let choices = participants(problem).into_iter();
        let cuts: Vec<Vec<usize>> = choices
            .filter_map(|tiers| intervals::best(&Frame::new(problem, tiers, &prices), order))
            .collect();
        let best = cheapest(problem, &cuts)?;
        let optimality = match problem.graph().is_line() && stages_are_exact(problem) {
            true => Optimality::Proven,
            false => Optimality::Unknown,
        };
        Ok(Plan::new(problem, self.name(), best, cuts, optimality)?)
    }
}

/// The cheapest of these cuts.
///
/// # Errors
///
/// None of them can run; then the reason why the whole network on its source cannot, or is not worth a look.
pub(super) fn cheapest(problem: &Problem, cuts: &[Vec<usize>]) -> Result<Vec<usize>, Infeasible> {
    let predicted = cuts
        .iter()
        .filter_map(|cut| Some((problem.predict(cut).ok()?, cut)));
    let costs = predicted.map(|(prediction, cut)| (problem.cost(&prediction), cut));
    match costs.min_by(|(a, _), (b, _)| a.total_cmp(b)) {
        Some((_, cut)) => Ok(cut.clone()),
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

/// Whether the program sees the whole load of each link: where several results go back, or something held does, these share
/// links, and it sees each of them alone.
pub(super) fn stages_are_exact(problem: &Problem) -> bool {
    let tensors = problem.graph().tensors().iter();
    let results = tensors.filter(|tensor| tensor.wanted_at.is_some()).count();
    problem.objective().interval == 0.0 || (results <= 1 && problem.graph().held_at() == [0])
}
