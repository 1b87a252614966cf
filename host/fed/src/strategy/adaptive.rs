//! What FedAdam, FedYogi and FedAdagrad share (Reddi et al. 2021): `m = b1 m + (1 − b1) D; w += rate · m / (√v + tau)`. They differ in
//! how `v` follows D². As in the paper there is no correction of bias, and `v` starts at tau².

use super::grown;
use crate::StateError;
use crate::state::{pack_arrays, unpack_arrays};

/// The two moments, as long as the model once a round has closed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Moments {
    first: Vec<f32>,
    second: Vec<f32>,
}

/// The numbers of the server's step.
pub(super) struct Rates {
    pub(super) rate: f64,
    pub(super) beta_1: f64,
    pub(super) tau: f64,
}

impl Moments {
    /// One step; `follow` computes the next `v` from `v` and D².
    pub(super) fn step(
        &mut self,
        model: &mut [f32],
        update: &[f32],
        rates: &Rates,
        follow: impl Fn(f64, f64) -> f64,
    ) {
        let first = grown(&mut self.first, model.len(), 0.0);
        let second = grown(&mut self.second, model.len(), (rates.tau * rates.tau) as f32);
        for (((weight, change), m), v) in model.iter_mut().zip(update).zip(first).zip(second) {
            let change = f64::from(*change);
            let next_m = rates.beta_1 * f64::from(*m) + (1.0 - rates.beta_1) * change;
            let next_v = follow(f64::from(*v), change * change);
            let step = rates.rate * next_m / (next_v.max(0.0).sqrt() + rates.tau);
            *weight = (f64::from(*weight) + step) as f32;
            (*m, *v) = (next_m as f32, next_v as f32);
        }
    }

    pub(super) fn save(&self) -> Vec<u8> {
        pack_arrays([&self.first, &self.second])
    }

    pub(super) fn load(&mut self, of: &str, state: &[u8]) -> Result<(), StateError> {
        [self.first, self.second] = unpack_arrays(of, state)?;
        Ok(())
    }
}
