use super::{Aggregate, Gather, Strategy, StrategyError, descend};
use crate::Arithmetic;
use serde::{Deserialize, Serialize};

/// The median of each coordinate (Yin et al. 2018). It stands fewer than half.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Median {}

impl Strategy for Median {
    fn name(&self) -> &str {
        "median"
    }

    fn gather(&self) -> Gather {
        Gather::Together { least: 1 }
    }

    fn combine(&self, updates: &[&[f32]], arithmetic: &dyn Arithmetic) -> Result<Vec<f32>, StrategyError> {
        Ok(arithmetic.trimmed_mean(updates, usize::MAX)?)
    }

    fn step(&mut self, model: &mut [f32], aggregate: &Aggregate<'_>) -> Result<(), StrategyError> {
        descend(model, 1.0, aggregate.update);
        Ok(())
    }
}
