//! A cut that stays: what an operator wants as it is, and what a study compares with.

use super::hindsight::assignment;
use super::{Optimality, Partitioner, Plan, PlanError, Problem};
use serde::{Deserialize, Serialize};

/// Always the same cut of the layers' order into one interval for each tier, whatever is measured. Where it cannot run there is no
/// plan, and the previous one is kept.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Pinned {
    /// For each tier but the last, how many layers come before the next one's; none smaller than the one before. Tiers that are not
    /// named get nothing, so that of no end at all the first tier runs everything.
    pub ends: Vec<usize>,
}

impl Pinned {
    /// The cut by this policy's ends, for a problem of its kind.
    ///
    /// # Errors
    ///
    /// [`PlanError::NotForThis`] when there are more ends than borders between tiers, one lies behind the last layer, or one before
    /// the end of the tier before.
    fn assignment(&self, problem: &Problem) -> Result<Vec<usize>, PlanError> {
        let refused = |why| PlanError::NotForThis {
            policy: self.name(),
            why,
        };
        let order = problem.graph().order();
        let borders = problem.tiers().len() - 1;
        if self.ends.len() > borders {
            return Err(refused("no more ends than there are tiers after the first"));
        }
        if self.ends.iter().any(|end| *end > order.len()) {
            return Err(refused("ends that do not lie behind the last layer"));
        }
        if !self.ends.is_sorted() {
            return Err(refused("ends of which none is smaller than the one before"));
        }
        let mut ends = self.ends.clone();
        ends.resize(borders, order.len());
        Ok(assignment(order, &ends))
    }
}

impl Partitioner for Pinned {
    fn name(&self) -> &'static str {
        "pinned"
    }

    fn moves(&self) -> bool {
        false
    }

    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
        let chosen = self.assignment(problem)?;
        Ok(Plan::new(
            problem,
            self.name(),
            chosen,
            Vec::new(),
            Optimality::Unknown,
        )?)
    }
}
