use super::{Aggregate, Gather, Strategy, StrategyError, descend};
use crate::Arithmetic;
use serde::{Deserialize, Serialize};

/// Per coordinate the mean without the smallest and the largest (Yin et al. 2018): floor(share · n) of n are dropped on each side. It
/// stands so many liars.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TrimmedMean {
    /// The share that is dropped on each side, 0 up to but without one half. Default 0.2.
    pub share: f64,
}

impl Default for TrimmedMean {
    fn default() -> Self {
        Self { share: 0.2 }
    }
}

impl Strategy for TrimmedMean {
    fn name(&self) -> &str {
        "trimmed-mean"
    }

    fn gather(&self) -> Gather {
        Gather::Together { least: 1 }
    }

    fn combine(&self, updates: &[&[f32]], arithmetic: &dyn Arithmetic) -> Result<Vec<f32>, StrategyError> {
        // A share like 0.3 is a little less in binary: of 10 updates it means 3.
        let drop = (self.share * updates.len() as f64 + 1e-9).floor() as usize;
        Ok(arithmetic.trimmed_mean(updates, drop)?)
    }

    fn step(&mut self, model: &mut [f32], aggregate: &Aggregate<'_>) -> Result<(), StrategyError> {
        descend(model, 1.0, aggregate.update);
        Ok(())
    }
}
