//! The weights that a service-level objective gives.

use super::{Objective, Partitioner, Plan, PlanError, Prediction, Problem, ProblemError};
use karman_types::Slo;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How often the weights are moved toward a bound that is broken: after so many halvings they hardly differ.
pub(super) const MOST_TRIES: usize = 16;

/// What one request may take: what an SLO bounds of all that depends on where a network is cut.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Bounds {
    /// Milliseconds until the result, of a request that runs alone. Nothing: no bound.
    pub latency_ms: Option<f64>,
    /// Millijoules that all tiers together draw for it. Nothing: no bound.
    pub energy_mj: Option<f64>,
    /// What it is to take as little of as the bound on the other allows, without a bound of its own.
    pub least: Option<Bounded>,
}

/// What a request takes of what is bounded.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct BoundUse {
    /// What is bounded.
    pub of: Bounded,
    /// What the request takes, in the unit of that.
    pub takes: f64,
    /// What it may take.
    pub at_most: f64,
}

/// What a bound is for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bounded {
    /// Milliseconds until the result.
    Latency,
    /// Millijoules.
    Energy,
}

impl Bounds {
    /// What this SLO says of one request: its time is to be within the p95, and its energy is its share of that of the batch. A cut changes
    /// neither accuracy nor money.
    pub fn of(slo: &Slo) -> Self {
        Self {
            latency_ms: slo.latency_p95.map(|latency| latency.as_secs_f64() * 1e3),
            energy_mj: slo.energy.map(|joules| joules * 1e3 / slo.requests as f64),
            least: None,
        }
    }

    /// The weights to begin with: both bounds count by the share that a request uses of them, and what is to be least as it is.
    ///
    /// # Errors
    ///
    /// A bound that is zero, negative or no number.
    pub fn objective(&self) -> Result<Objective, ProblemError> {
        let or_least = |bound: Option<f64>, of| bound.or_else(|| (self.least == Some(of)).then_some(1.0));
        Objective::within(
            or_least(self.latency_ms, Bounded::Latency),
            or_least(self.energy_mj, Bounded::Energy),
            None,
        )
    }

    /// What a request takes of each bound.
    pub fn used(&self, prediction: &Prediction) -> Vec<BoundUse> {
        let bounded = [Bounded::Latency, Bounded::Energy].into_iter().filter_map(|of| {
            Some(BoundUse {
                of,
                takes: of.taken(prediction),
                at_most: self.bound(of)?,
            })
        });
        bounded.collect()
    }

    /// The bound on this.
    pub const fn bound(&self, of: Bounded) -> Option<f64> {
        match of {
            Bounded::Latency => self.latency_ms,
            Bounded::Energy => self.energy_mj,
        }
    }

    /// The policy's plan that keeps both bounds, if there are weights under which it has one; else the one that is over them by the
    /// least share. With it the problem, judged by the weights that led there: a plan that follows the conditions goes on with them.
    ///
    /// With more weight on the latency a policy's plan is never slower, and never draws less: where one bound is broken and the other one is
    /// kept, half of what is left is moved to the broken one.
    ///
    /// # Errors
    ///
    /// A bound that is zero, negative or no number; those of the policy.
    pub fn plan(&self, policy: &impl Partitioner, problem: &Problem) -> Result<(Problem, Plan), PlanError> {
        if let Some(least) = self.least {
            return self.plan_least(least, policy, problem);
        }
        let mut judged = problem.judged_by(self.objective()?)?;
        let mut plan = policy.plan(&judged)?;
        let (Some(latency_ms), Some(energy_mj)) = (self.latency_ms, self.energy_mj) else {
            return Ok((judged, plan));
        };
        let mut over = self.over(&plan.prediction);
        let (mut least, mut most) = (0.0, 1.0);
        let (mut of_latency, mut tried) = (0.5, self.used(&plan.prediction));
        for _ in 0..MOST_TRIES {
            let kept: Vec<bool> = tried.iter().map(BoundUse::is_kept).collect();
            match kept[..] {
                [false, true] => least = of_latency,
                [true, false] => most = of_latency,
                // Both are kept; or both are broken, and then no cut keeps both: by these weights none is better.
                _ => break,
            }
            of_latency = f64::midpoint(least, most);
            let weights = Objective::weighing(of_latency / latency_ms, (1.0 - of_latency) / energy_mj, 0.0);
            let other = problem.judged_by(weights)?;
            let Ok(next) = policy.plan(&other) else { break };
            tried = self.used(&next.prediction);
            let over_by = self.over(&next.prediction);
            if over_by < over {
                (judged, plan, over) = (other, next, over_by);
            }
        }
        Ok((judged, plan))
    }

    /// The largest share that a request uses of a bound: up to 1 it keeps them.
    fn over(&self, prediction: &Prediction) -> f64 {
        let used = self.used(prediction);
        used.iter()
            .map(|used| used.takes / used.at_most)
            .fold(0.0, f64::max)
    }
}

impl Bounded {
    /// What a request takes of it.
    pub(super) const fn taken(self, prediction: &Prediction) -> f64 {
        match self {
            Self::Latency => prediction.latency_ms,
            Self::Energy => prediction.energy_mj,
        }
    }
}

impl BoundUse {
    /// Whether it is no more than may be.
    pub fn is_kept(&self) -> bool {
        self.takes <= self.at_most
    }
}

impl fmt::Display for BoundUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, unit) = match self.of {
            Bounded::Latency => ("latency", "ms"),
            Bounded::Energy => ("energy", "mJ"),
        };
        let kept = if self.is_kept() { "kept" } else { "broken" };
        let Self { takes, at_most, .. } = self;
        write!(f, "{what} {takes:.3} {unit} of {at_most:.3} {unit}: {kept}")
    }
}
