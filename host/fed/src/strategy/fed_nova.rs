use super::{Aggregate, Facts, Strategy, StrategyError, descend};
use serde::{Deserialize, Serialize};

/// Updates are averaged per local step, so that clients that do more steps do not pull harder (Wang et al. 2020):
/// `w += rate · (Σ p_k a_k) · Σ p_k D_k / a_k` with the steps a_k of plain gradient descent. In the first sum nobody has done more than
/// a hundred times the median: else one client that declares a large number would multiply what all others have learnt.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedNova {
    /// The server's step. Default 1.
    pub rate: f64,
}

/// How many times the median of all the steps of one client count at most.
const MOST_STEPS: u32 = 100;

impl Default for FedNova {
    fn default() -> Self {
        Self { rate: 1.0 }
    }
}

impl Strategy for FedNova {
    fn name(&self) -> &str {
        "fed-nova"
    }

    fn factor(&self, facts: &Facts) -> f64 {
        facts.weight as f64 / f64::from(facts.steps.max(1))
    }

    fn step(&mut self, model: &mut [f32], aggregate: &Aggregate<'_>) -> Result<(), StrategyError> {
        let weight: u128 = aggregate.facts.iter().map(|facts| u128::from(facts.weight)).sum();
        let mut all: Vec<u32> = aggregate.facts.iter().map(|facts| facts.steps.max(1)).collect();
        all.sort_unstable();
        let median = all.get(all.len() / 2).copied().unwrap_or(1);
        let most = median.saturating_mul(MOST_STEPS);
        let steps = aggregate
            .facts
            .iter()
            .map(|facts| u128::from(facts.weight) * u128::from(facts.steps.clamp(1, most)));
        let mean_steps = steps.sum::<u128>() as f64 / weight.max(1) as f64;
        descend(model, self.rate * mean_steps, aggregate.update);
        Ok(())
    }
}
