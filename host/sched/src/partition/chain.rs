//! Two tiers, every cut tried: the plainest policy, exact for chains under every objective and limit.

use super::{Infeasible, Optimality, Partitioner, Plan, PlanError, Problem};

/// Looks at every place in the order of the layers at which the source could hand over to one other tier. With more than two
/// tiers it takes the best pair. Cost: one prediction for each layer and pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chain;

impl Partitioner for Chain {
    fn name(&self) -> &'static str {
        "chain"
    }

    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
        let source = source(problem, self.name())?;
        let cuts = pairs(problem, source);
        let two = problem.tiers().len() <= 2 && problem.graph().is_line();
        let optimality = if two {
            Optimality::Proven
        } else {
            Optimality::Unknown
        };
        let mut last = Infeasible::NotAvailable { tier: source };
        let mut best: Option<(f64, usize)> = None;
        for (index, cut) in cuts.iter().enumerate() {
            match problem.predict(cut).map(|prediction| problem.cost(&prediction)) {
                Ok(cost) if best.is_none_or(|(least, _)| cost < least) => best = Some((cost, index)),
                Ok(_) => {}
                Err(why) => last = why,
            }
        }
        let (_, index) = best.ok_or(last)?;
        Ok(Plan::new(
            problem,
            self.name(),
            cuts[index].clone(),
            cuts,
            optimality,
        )?)
    }
}

/// The one tier at which everything is that is held.
pub(super) fn source(problem: &Problem, policy: &'static str) -> Result<usize, PlanError> {
    match problem.graph().held_at()[..] {
        [source] => Ok(source),
        [] => Ok(0),
        _ => Err(PlanError::NotForThis {
            policy,
            why: "inputs on one tier",
        }),
    }
}

/// Every cut between the source and one other tier, the whole network on either of them included.
pub(super) fn pairs(problem: &Problem, source: usize) -> Vec<Vec<usize>> {
    let order = problem.graph().order();
    let mut cuts = vec![vec![source; order.len()]];
    for other in (0..problem.tiers().len()).filter(|other| *other != source) {
        let mut cut = vec![source; order.len()];
        // Activations go to later tiers only: before the source, the other one can just have the head.
        let row: Box<dyn Iterator<Item = &usize>> = match other > source {
            true => Box::new(order.iter().rev()),
            false => Box::new(order.iter()),
        };
        for layer in row {
            cut[*layer] = other;
            cuts.push(cut.clone());
        }
    }
    cuts
}
