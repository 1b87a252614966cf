//! Who says where a model is cut.

use super::order::SplitOrder;
use karman_sched::partition::{MinCut, Neurosurgeon, Partitioner, Pinned, Plan, PlanError, Problem, Tiers};
use serde::{Deserialize, Serialize};

/// The policy that cuts a model.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CutBy {
    /// An interval of layers for each node, or along branches where that is better.
    #[default]
    Best,
    /// One cut between this node and one other, as Neurosurgeon does: to compare with.
    Neurosurgeon,
}

/// What cuts one model.
#[derive(Debug)]
pub(super) enum Policy {
    By(CutBy),
    /// As the operator said, whatever is measured.
    Pinned(Pinned),
}

impl Policy {
    pub(super) fn of(order: &SplitOrder) -> Self {
        match &order.cut {
            Some(ends) => Self::Pinned(Pinned { ends: ends.clone() }),
            None => Self::By(order.policy),
        }
    }
}

impl Partitioner for Policy {
    fn name(&self) -> &'static str {
        match self {
            Self::By(CutBy::Best) => "tiers or min-cut",
            Self::By(CutBy::Neurosurgeon) => Neurosurgeon.name(),
            Self::Pinned(pinned) => pinned.name(),
        }
    }

    fn moves(&self) -> bool {
        matches!(self, Self::By(_))
    }

    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
        match self {
            Self::By(CutBy::Best) => best(problem),
            Self::By(CutBy::Neurosurgeon) => Neurosurgeon.plan(problem),
            Self::Pinned(pinned) => pinned.plan(problem),
        }
    }
}

/// Intervals of layers are quick and, for chains, best; a graph with branches may be cut better along them.
fn best(problem: &Problem) -> Result<Plan, PlanError> {
    let intervals = Tiers.plan(problem);
    if problem.graph().is_line() {
        return intervals;
    }
    match (intervals, MinCut.plan(problem)) {
        (Ok(one), Ok(other)) => Ok(if other.cost < one.cost { other } else { one }),
        (plan @ Ok(_), Err(_)) | (Err(_), plan) => plan,
    }
}
