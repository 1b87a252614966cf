//! What was written down before: tiers, prices, limits, seeds.

use anyhow::Result;
use karman_study::registered::{Seeds, each_with, read};
use karman_types::serde_duration;
use serde::Deserialize;
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Registered {
    pub(super) edge_slowdown: f64,
    pub(super) cloud_slowdown: f64,
    #[serde(with = "serde_duration")]
    pub(super) link: Duration,
    pub(super) tenant: f64,
    pub(super) tenant_images: usize,
    pub(super) edge_prices: [f64; 3],
    pub(super) cloud_prices: [f64; 3],
    pub(super) limits: Vec<f64>,
    pub(super) budgets: Vec<f64>,
    pub(super) evaluation: Blocks,
    pub(super) quick: Blocks,
}

/// How often everything is run, and how long.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Blocks {
    pub(super) seeds: Seeds,
    pub(super) requests: u64,
    pub(super) profile: usize,
}

/// A cell as it was written down: where the limit lies, and the price for each request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) limit: f64,
    pub(super) budget: f64,
}

impl Registered {
    pub(super) fn read() -> Result<Self> {
        read(include_str!("registered.toml"))
    }

    pub(super) fn cells(&self) -> Vec<Place> {
        let cells = each_with(&self.limits, &self.budgets).into_iter();
        cells.map(|(limit, budget)| Place { limit, budget }).collect()
    }
}

impl Blocks {
    /// The request from which on the other tenant is there.
    pub(super) const fn step(&self) -> usize {
        self.requests as usize / 3
    }
}

impl Place {
    /// `live.l0.5.c3`.
    pub(super) fn name(&self) -> String {
        format!("live.l{}.c{}", self.limit, self.budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_cells_are_written_down() {
        let registered = Registered::read().unwrap();
        let names: Vec<String> = registered.cells().iter().map(Place::name).collect();
        assert_eq!(
            names,
            ["live.l0.5.c3", "live.l0.5.c8", "live.l1.2.c3", "live.l1.2.c8"]
        );
        assert!(registered.evaluation.seeds.count() >= 30);
        // One candidate at least can be paid for with every budget.
        let cheapest = registered.edge_prices[0];
        assert!(registered.budgets.iter().all(|budget| *budget > cheapest));
    }
}
