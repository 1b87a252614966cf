use super::adaptive::{Moments, Rates};
use super::{Aggregate, Strategy, StrategyError};
use crate::StateError;
use serde::{Deserialize, Serialize};

/// Adagrad at the server (Reddi et al. 2021): `v = v + D²`, so that steps only ever get shorter.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedAdagrad {
    /// The server's step. Default 0.1.
    pub rate: f64,
    /// How slowly the mean of the updates follows. Default 0.0.
    pub beta_1: f64,

    /// What keeps small updates from large steps. Default 0.001.
    pub tau: f64,
    #[serde(skip)]
    moments: Moments,
}

impl Default for FedAdagrad {
    fn default() -> Self {
        Self::new(0.1)
    }
}

impl FedAdagrad {
    /// With this step, the rest as by default.
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            beta_1: 0.0,

            tau: 1e-3,
            moments: Moments::default(),
        }
    }
}

impl Strategy for FedAdagrad {
    fn name(&self) -> &str {
        "fed-adagrad"
    }

    fn step(&mut self, model: &mut [f32], aggregate: &Aggregate<'_>) -> Result<(), StrategyError> {
        let rates = Rates {
            rate: self.rate,
            beta_1: self.beta_1,
            tau: self.tau,
        };
        self.moments
            .step(model, aggregate.update, &rates, |v, square| v + square);
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        self.moments.save()
    }

    fn load(&mut self, state: &[u8]) -> Result<(), StateError> {
        self.moments.load("fed-adagrad", state)
    }
}
