use super::{Aggregate, Extras, Strategy, StrategyError, descend};
use serde::{Deserialize, Serialize};

/// [FedAvg](super::FedAvg) whose clients are held near the model they got (Li et al. 2020): each adds `mu/2 ‖w − w_t‖²` to its loss, the
/// norm squared.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedProx {
    /// How strongly they are held. Default 0.01.
    pub mu: f32,
    /// The server's step. Default 1.
    pub rate: f64,
}

impl Default for FedProx {
    fn default() -> Self {
        Self { mu: 0.01, rate: 1.0 }
    }
}

impl Strategy for FedProx {
    fn name(&self) -> &str {
        "fed-prox"
    }

    fn begin(&self) -> Extras {
        Extras {
            proximal: self.mu,
            ..Extras::default()
        }
    }

    fn step(&mut self, model: &mut [f32], aggregate: &Aggregate<'_>) -> Result<(), StrategyError> {
        descend(model, self.rate, aggregate.update);
        Ok(())
    }
}
