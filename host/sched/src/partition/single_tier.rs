//! The whole network on one tier: what people do who do not cut.

use super::{Optimality, Partitioner, Plan, PlanError, Problem};

/// A comparator: everything on the first or on the last tier.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SingleTier {
    /// Everything on the first tier, the edge.
    AllEdge,
    /// Everything on the last tier, the cloud.
    AllCloud,
}

impl Partitioner for SingleTier {
    fn name(&self) -> &'static str {
        match self {
            Self::AllEdge => "all_edge",
            Self::AllCloud => "all_cloud",
        }
    }

    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
        let tier = match self {
            Self::AllEdge => 0,
            Self::AllCloud => problem.tiers().len() - 1,
        };
        let all = vec![tier; problem.graph().layers().len()];
        Ok(Plan::new(
            problem,
            self.name(),
            all,
            Vec::new(),
            Optimality::Unknown,
        )?)
    }
}
