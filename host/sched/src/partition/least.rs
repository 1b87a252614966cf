//! Least of one thing within a bound on another: `--slo p95=120ms --slo energy=min`.

use super::bounds::MOST_TRIES;
use super::{Bounded, Bounds, Objective, Partitioner, Plan, PlanError, Problem};

impl Bounds {
    /// The policy's plan that takes least of this among those that keep the other's bound, as far as weights lead to it; with the
    /// problem as it is judged by the weights that did. Where no plan keeps it, the one that comes nearest.
    ///
    /// With more weight on what is bounded a policy's plan takes never more of it, and never less of the other: the weights are halved
    /// toward the least that keeps it.
    ///
    /// # Errors
    ///
    /// A bound that is zero, negative or no number; those of the policy.
    pub(super) fn plan_least(
        &self,
        least: Bounded,
        policy: &impl Partitioner,
        problem: &Problem,
    ) -> Result<(Problem, Plan), PlanError> {
        self.objective()?;
        let judged_by = |weights: Objective| {
            let judged = problem.judged_by(weights)?;
            let plan = policy.plan(&judged)?;
            Ok::<_, PlanError>((judged, plan))
        };
        let bounded = least.other();
        let alone = judged_by(weighing(least, 1.0, 0.0))?;
        let Some(bound) = self
            .bound(bounded)
            .filter(|bound| bounded.taken(&alone.1.prediction) > *bound)
        else {
            return Ok(alone);
        };
        // What it takes of both, by its own measure: neither is lost beside the other.
        let unit = Some(least.taken(&alone.1.prediction))
            .filter(|unit| *unit > 0.0)
            .unwrap_or(1.0);
        let weighed = |share: f64| judged_by(weighing(least, (1.0 - share) / unit, share / bound));
        let mut best = weighed(1.0)?;
        if bounded.taken(&best.1.prediction) > bound {
            return Ok(best);
        }
        let (mut breaks, mut keeps) = (0.0, 1.0);
        for _ in 0..MOST_TRIES {
            let share = f64::midpoint(breaks, keeps);
            let Ok(next) = weighed(share) else { break };
            if bounded.taken(&next.1.prediction) > bound {
                breaks = share;
                continue;
            }
            keeps = share;
            if least.taken(&next.1.prediction) <= least.taken(&best.1.prediction) {
                best = next;
            }
        }
        Ok(best)
    }
}

impl Bounded {
    const fn other(self) -> Self {
        match self {
            Self::Latency => Self::Energy,
            Self::Energy => Self::Latency,
        }
    }
}

/// So much for this, and so much for the other.
const fn weighing(this: Bounded, weight: f64, other: f64) -> Objective {
    match this {
        Bounded::Latency => Objective::weighing(weight, other, 0.0),
        Bounded::Energy => Objective::weighing(other, weight, 0.0),
    }
}
