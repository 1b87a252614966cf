use super::krum::ranked;
use super::{Aggregate, Gather, Strategy, StrategyError, descend};
use crate::Arithmetic;
use serde::{Deserialize, Serialize};

/// Krum again and again, then a mean around the median of each coordinate (El Mhamdi et al. 2018). Among n updates of which f may lie,
/// theta = n − 2f are chosen, each the best by Krum of those left; of them the theta − 2f nearest to the median count in each
/// coordinate. Needs n ≥ 4f + 3.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Bulyan {
    /// Liars that it is to stand. Default 1.
    pub liars: usize,
}

impl Default for Bulyan {
    fn default() -> Self {
        Self { liars: 1 }
    }
}

impl Bulyan {
    const fn needs(&self) -> usize {
        self.liars.saturating_mul(4).saturating_add(3)
    }
}

impl Strategy for Bulyan {
    fn name(&self) -> &str {
        "bulyan"
    }

    fn gather(&self) -> Gather {
        Gather::Together { least: self.needs() }
    }

    fn combine(&self, updates: &[&[f32]], arithmetic: &dyn Arithmetic) -> Result<Vec<f32>, StrategyError> {
        let count = updates.len();
        if count < self.needs() {
            return Err(StrategyError::NotDefined {
                rule: "Bulyan",
                updates: count,
                liars: self.liars,
                needs: self.needs(),
            });
        }
        let distances = arithmetic.squared_distances(updates)?;
        let chosen = count - 2 * self.liars;
        let mut left: Vec<usize> = (0..count).collect();
        let mut best = Vec::with_capacity(chosen);
        while best.len() < chosen {
            let next = ranked(&distances, count, &left, self.liars)[0];
            left.retain(|i| *i != next);
            best.push(updates[next]);
        }
        Ok(arithmetic.mean_around_median(&best, chosen - 2 * self.liars)?)
    }

    fn step(&mut self, model: &mut [f32], aggregate: &Aggregate<'_>) -> Result<(), StrategyError> {
        descend(model, 1.0, aggregate.update);
        Ok(())
    }
}
