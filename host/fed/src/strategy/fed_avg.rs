use super::{Aggregate, Strategy, StrategyError, descend};
use serde::{Deserialize, Serialize};

/// The weighted mean of the updates (McMahan et al. 2017): `w += rate · Σ (n_k / n) D_k`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedAvg {
    /// The server's step. Default 1: the mean of the clients' models.
    pub rate: f64,
}

impl Default for FedAvg {
    fn default() -> Self {
        Self { rate: 1.0 }
    }
}

impl Strategy for FedAvg {
    fn name(&self) -> &str {
        "fed-avg"
    }

    fn step(&mut self, model: &mut [f32], aggregate: &Aggregate<'_>) -> Result<(), StrategyError> {
        descend(model, self.rate, aggregate.update);
        Ok(())
    }
}
