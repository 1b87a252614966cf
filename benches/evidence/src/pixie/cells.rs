//! What was written down before: cells, seeds, perturbations.

use super::profiles::{QUESTIONS, Recorded, Workload};
use super::replay::Perturbation;
use anyhow::{Context, Result};
use karman_types::Slo;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Registered {
    pub(super) evaluation: Grid,
    pub(super) tuning: Grid,
    pub(super) perturbations: BTreeMap<String, Perturbation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Grid {
    first_seed: u64,
    seeds: u64,
    pub(super) cells: Vec<Cell>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Cell {
    workload: Kind,
    classifier: Option<f64>,
    pub(super) cost: f64,
    pub(super) latency_ms: f64,
    pub(super) accuracy: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Pool,
    Router,
}

pub(super) fn registered() -> Result<Registered> {
    toml::from_str(include_str!("registered.toml")).context("registered.toml")
}

impl Grid {
    pub(super) fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        self.first_seed..self.first_seed + self.seeds
    }
}

impl Cell {
    /// `router80.c0.012.l950`.
    pub(super) fn name(&self) -> String {
        let workload = match (self.workload, self.classifier) {
            (Kind::Pool, _) => "pool".into(),
            (Kind::Router, right) => format!("router{:.0}", right.unwrap_or(1.0) * 100.0),
        };
        format!("{workload}.c{}.l{}", self.cost, self.latency_ms)
    }

    pub(super) fn workload(&self, profiles: &BTreeMap<String, Recorded>) -> Workload {
        let mut workload = match self.workload {
            Kind::Pool => Workload::pool(profiles),
            Kind::Router => Workload::router(profiles, self.classifier.unwrap_or(1.0)),
        };
        workload.tasks = workload.within(self.latency_ms);
        workload
    }

    /// Its limits, with cost and latency cut to this share of them.
    pub(super) fn slo(&self, share: f64) -> Slo {
        Slo {
            accuracy: Some(self.accuracy),
            latency_p95: Some(Duration::from_secs_f64(self.latency_ms * share / 1e3)),
            cost: Some(self.cost * share),
            ..Slo::over(QUESTIONS as u64)
        }
    }
}
