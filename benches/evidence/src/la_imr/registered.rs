//! What was written down before.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Registered {
    pub(super) system: System,
    pub(super) tuning: Tuning,
    pub(super) evaluation: Evaluation,
    pub(super) perturbations: BTreeMap<String, Monitoring>,
}

/// Seconds, unless their names say otherwise.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct System {
    pub(super) service: f64,
    pub(super) service_sigma: f64,
    pub(super) start_up: f64,
    pub(super) client_round_trip: f64,
    pub(super) cloud_round_trip: f64,
    pub(super) cloud_speed: f64,
    pub(super) cloud_price: f64,
    pub(super) most: u32,
    pub(super) most_above: u32,
    pub(super) burst_exponent: f64,
    pub(super) burst_most: f64,
    pub(super) scrape: f64,
    pub(super) window: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Tuning {
    pub(super) seeds: Vec<u64>,
    pub(super) load: f64,
    pub(super) cost_bound: f64,
    pub(super) warm_up: f64,
    pub(super) seconds: f64,
    pub(super) la_imr: OurGrid,
    pub(super) latency_triggered: TheirGrid,
    pub(super) hpa: HpaGrid,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct OurGrid {
    pub(super) route_over: Vec<f64>,
    pub(super) plan_for: Vec<f64>,
    pub(super) hold: Vec<f64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TheirGrid {
    pub(super) target: Vec<f64>,
    pub(super) offload_over: Vec<f64>,
    pub(super) p95: Vec<bool>,
    pub(super) down_window: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HpaGrid {
    pub(super) target: Vec<f64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Evaluation {
    first_seed: u64,
    seeds: u64,
    pub(super) loads: Vec<f64>,
    pub(super) judged_load: f64,
    pub(super) warm_up: f64,
    pub(super) seconds: f64,
}

/// How late, imprecise and incomplete readings are.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Monitoring {
    pub(super) lag: f64,
    pub(super) noise: f64,
    pub(super) dropped: f64,
}

impl Registered {
    /// Those of the evaluation; for a quick look some of the tuning's.
    pub(super) fn seeds(&self, quick: bool) -> Vec<u64> {
        let Evaluation {
            first_seed, seeds, ..
        } = self.evaluation;
        match quick {
            true => self.tuning.seeds.clone(),
            false => (first_seed..first_seed + seeds).collect(),
        }
    }
}

pub(super) fn registered() -> Result<Registered> {
    toml::from_str(include_str!("registered.toml")).context("registered.toml")
}
