use super::{Aggregate, Strategy, StrategyError, descend, grown};
use crate::StateError;
use crate::state::{pack_arrays, unpack_arrays};
use serde::{Deserialize, Serialize};

/// [FedAvg](super::FedAvg) with momentum at the server (Hsu et al. 2019): `v = momentum · v + D; w += rate · v`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedAvgM {
    /// The server's step. Default 1.
    pub rate: f64,
    /// How much of the last velocity goes on. Default 0.9.
    pub momentum: f64,
    #[serde(skip)]
    velocity: Vec<f32>,
}

impl Default for FedAvgM {
    fn default() -> Self {
        Self::new(1.0, 0.9)
    }
}

impl FedAvgM {
    /// With this step and momentum.
    pub const fn new(rate: f64, momentum: f64) -> Self {
        let velocity = Vec::new();
        Self {
            rate,
            momentum,
            velocity,
        }
    }
}

impl Strategy for FedAvgM {
    fn name(&self) -> &str {
        "fed-avg-m"
    }

    fn step(&mut self, model: &mut [f32], aggregate: &Aggregate<'_>) -> Result<(), StrategyError> {
        let velocity = grown(&mut self.velocity, model.len(), 0.0);
        for (velocity, change) in velocity.iter_mut().zip(aggregate.update) {
            *velocity = (self.momentum * f64::from(*velocity) + f64::from(*change)) as f32;
        }
        descend(model, self.rate, velocity);
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        pack_arrays([&self.velocity])
    }

    fn load(&mut self, state: &[u8]) -> Result<(), StateError> {
        [self.velocity] = unpack_arrays(self.name(), state)?;
        Ok(())
    }
}
