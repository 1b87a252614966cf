use super::adaptive::{Moments, Rates};
use super::{Aggregate, Strategy, StrategyError};
use crate::StateError;
use serde::{Deserialize, Serialize};

/// Yogi at the server (Reddi et al. 2021): `v = v − (1 − b2) D² sign(v − D²)`, which grows and shrinks by the same amount, so that rare
/// large updates are not forgotten at once.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedYogi {
    /// The server's step. Default 0.01.
    pub rate: f64,
    /// How slowly the mean of the updates follows. Default 0.9.
    pub beta_1: f64,
    /// How slowly their size follows. Default 0.99.
    pub beta_2: f64,
    /// What keeps small updates from large steps. Default 0.001.
    pub tau: f64,
    #[serde(skip)]
    moments: Moments,
}

impl Default for FedYogi {
    fn default() -> Self {
        Self::new(0.01)
    }
}

impl FedYogi {
    /// With this step, the rest as by default.
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            beta_1: 0.9,
            beta_2: 0.99,
            tau: 1e-3,
            moments: Moments::default(),
        }
    }
}

impl Strategy for FedYogi {
    fn name(&self) -> &str {
        "fed-yogi"
    }

    fn step(&mut self, model: &mut [f32], aggregate: &Aggregate<'_>) -> Result<(), StrategyError> {
        let rates = Rates {
            rate: self.rate,
            beta_1: self.beta_1,
            tau: self.tau,
        };
        let beta = self.beta_2;
        let follow = |v: f64, square: f64| match v.total_cmp(&square) {
            std::cmp::Ordering::Equal => v,
            order => v - (1.0 - beta) * square * f64::from(order as i8),
        };
        self.moments.step(model, aggregate.update, &rates, follow);
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        self.moments.save()
    }

    fn load(&mut self, state: &[u8]) -> Result<(), StateError> {
        self.moments.load("fed-yogi", state)
    }
}
