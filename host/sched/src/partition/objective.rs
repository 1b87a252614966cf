//! What counts, and what one more millisecond of each thing costs by it.

use super::problem::not_negative;
use super::{Link, ProblemError, Tier};
use serde::{Deserialize, Serialize};

/// What a plan is judged by: a weighted sum that is to be small. Memory is no part of it but a limit.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Objective {
    /// Per millisecond until a request that runs alone has its result.
    pub latency: f64,
    /// Per millijoule that all tiers together draw for it.
    pub energy: f64,
    /// Per millisecond of the slowest stage, tier or link: the time between two results of a saturated pipeline.
    pub interval: f64,
}

impl Objective {
    /// Latency alone.
    pub const LATENCY: Self = Self::weighing(1.0, 0.0, 0.0);
    /// Energy alone.
    pub const ENERGY: Self = Self::weighing(0.0, 1.0, 0.0);
    /// Throughput alone.
    pub const THROUGHPUT: Self = Self::weighing(0.0, 0.0, 1.0);

    /// These weights.
    pub const fn weighing(latency: f64, energy: f64, interval: f64) -> Self {
        Self {
            latency,
            energy,
            interval,
        }
    }

    /// The weights that a service-level objective gives: what is bounded counts by the share of its bound that it uses. With
    /// no bound, latency counts alone.
    ///
    /// # Errors
    ///
    /// A bound that is zero, negative or no number.
    pub fn within(
        latency_ms: Option<f64>,
        energy_mj: Option<f64>,
        interval_ms: Option<f64>,
    ) -> Result<Self, ProblemError> {
        let bounds = [
            ("latency_ms", latency_ms),
            ("energy_mj", energy_mj),
            ("interval_ms", interval_ms),
        ];
        for (field, bound) in bounds {
            if let Some(value) = bound.filter(|bound| !(bound.is_finite() && *bound > 0.0)) {
                return Err(ProblemError::Number {
                    field,
                    of: "the objective".into(),
                    value,
                    bound: "above zero",
                });
            }
        }
        let [latency, energy, interval] = bounds.map(|(_, bound)| bound.map_or(0.0, |bound| 1.0 / bound));
        match latency + energy + interval > 0.0 {
            true => Ok(Self::weighing(latency, energy, interval)),
            false => Ok(Self::LATENCY),
        }
    }

    pub(crate) fn check(&self, tiers: &[Tier]) -> Result<(), ProblemError> {
        let of = || "the objective".into();
        not_negative("latency", of, self.latency)?;
        not_negative("energy", of, self.energy)?;
        not_negative("interval", of, self.interval)?;
        let power = |tier: &Tier| tier.power.busy_w + tier.power.idle_w + tier.power.transmit_w;
        if self.latency + self.energy + self.interval <= 0.0 {
            return Err(ProblemError::NoObjective);
        }
        if self.energy > 0.0 && tiers.iter().all(|tier| power(tier) <= 0.0) {
            return Err(ProblemError::NoPower);
        }
        Ok(())
    }

    /// What a millisecond costs during which `tier` computes and all others wait.
    pub(crate) fn compute_price(&self, tiers: &[Tier], tier: usize) -> f64 {
        let Tier { power, .. } = &tiers[tier];
        self.latency + self.energy * (idle_w(tiers) + power.busy_w - power.idle_w)
    }

    /// What a millisecond costs during which something is under way over this link and all tiers wait for it.
    pub(crate) fn transfer_price(&self, tiers: &[Tier], link: &Link) -> f64 {
        self.latency + self.energy * (idle_w(tiers) + tiers[link.from].power.transmit_w)
    }

    /// What a millisecond costs during which weights are under way over this link, beside the requests.
    pub(crate) fn shipping_price(&self, tiers: &[Tier], link: &Link) -> f64 {
        self.latency + self.interval + self.energy * tiers[link.from].power.transmit_w
    }
}

/// What all tiers together draw while they wait.
pub(crate) fn idle_w(tiers: &[Tier]) -> f64 {
    tiers.iter().map(|tier| tier.power.idle_w).sum()
}
