//! Graphs with branches: one minimum cut for K tiers, and multipliers where sums are not enough.

use super::dual::Dual;
use super::frame::{Frame, Prices, participants};
use super::tiers::why_none;
use super::{Optimality, Partitioner, Plan, PlanError, Problem, flow};

/// The minimum cut of DADS with the input pinned to where it is, and K-1 copies of each layer for K tiers.
///
/// Exact for sums (latency, energy, shipping). A slowest stage and a memory limit are no sums: they get multipliers, each of
/// which gives a lower bound and a cut, and each cut an order of the layers along which the interval program finds
/// the best cut that keeps the limits. What remains between the bound and the best cut found is stated in the plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct MinCut;

impl Partitioner for MinCut {
    fn name(&self) -> &'static str {
        "min_cut"
    }

    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
        let mut search = Search {
            problem,
            best: None,
            others: Vec::new(),
            bound: f64::INFINITY,
        };
        // All tiers at first: their cut is cheap enough to spare most of the others a second look.
        for tiers in participants(problem).into_iter().rev() {
            search.among(tiers);
        }
        let (cost, best) = search.best.ok_or_else(|| why_none(problem))?;
        let optimality = Optimality::between(search.bound, cost);
        Ok(Plan::new(problem, self.name(), best, search.others, optimality)?)
    }
}

/// The best cut so far.
struct Search<'a> {
    problem: &'a Problem,
    best: Option<(f64, Vec<usize>)>,
    others: Vec<Vec<usize>>,
    /// No cut costs less.
    bound: f64,
}

impl Search<'_> {
    /// Looks for the best cut among these tiers.
    fn among(&mut self, tiers: Vec<usize>) {
        let mut prices = Prices::of(self.problem);
        let mut frame = Frame::new(self.problem, tiers, &prices);
        let Some((cut, cost)) = flow::cheapest(&frame) else {
            return;
        };
        let mut bound = cost + frame.fixed_cost(&prices);
        let exact = self.offer(cut) && self.problem.objective().interval == 0.0;
        if !exact && self.promising(bound) {
            let mut dual = Dual::new(self.problem, &frame.tiers);
            if let Some(intervals) = dual.along(self.problem.graph().order()) {
                self.offer(intervals);
            }
            for _ in 0..Dual::ROUNDS {
                dual.price(&mut prices);
                frame.reprice(&prices);
                let Some((cut, cost)) = flow::cheapest(&frame) else {
                    break;
                };
                bound = bound.max(cost + frame.fixed_cost(&prices) - dual.constant());
                if let Some(repaired) = dual.repair(&cut) {
                    self.offer(repaired);
                }
                self.offer(cut.clone());
                if !self.promising(bound) {
                    break;
                }
                dual.learn(&cut, bound, self.best.as_ref().map(|(cost, _)| *cost));
            }
        }
        self.bound = self.bound.min(bound);
    }

    /// Whether something better than the best may be found above this bound.
    fn promising(&self, bound: f64) -> bool {
        match &self.best {
            Some((best, _)) => Optimality::between(bound, *best) != Optimality::Proven,
            None => true,
        }
    }

    /// Takes a cut into account; whether it can run.
    fn offer(&mut self, cut: Vec<usize>) -> bool {
        let Ok(prediction) = self.problem.predict(&cut) else {
            self.others.push(cut);
            return false;
        };
        let cost = self.problem.cost(&prediction);
        if self.best.as_ref().is_none_or(|(least, _)| cost < *least) {
            self.best = Some((cost, cut.clone()));
        }
        self.others.push(cut);
        true
    }
}
