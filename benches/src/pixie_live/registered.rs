//! What was written down before: tiers, workflows, prices, limits, seeds.

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
    pub(super) digits: Grid,
    pub(super) flood: Grid,
    pub(super) tiles: Tiles,
}

/// The cells of a workflow.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Grid {
    pub(super) edge_prices: Vec<f64>,
    pub(super) cloud_prices: Vec<f64>,
    limits: Vec<f64>,
    budgets: Vec<f64>,
    evaluation: Blocks,
    quick: Blocks,
}

/// How often everything is run, and how long.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Blocks {
    pub(super) seeds: Seeds,
    pub(super) requests: u64,
    pub(super) profile: usize,
}

/// Which tiles of pictures are asked about.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Tiles {
    pub(super) seed: u64,
    pub(super) examples: usize,
    pub(super) requests: usize,
}

/// A cell as it was written down: where the limit lies, and the price for each request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) workflow: &'static str,
    pub(super) limit: f64,
    pub(super) budget: f64,
}

impl Registered {
    pub(super) fn read() -> Result<Self> {
        read(include_str!("registered.toml"))
    }
}

impl Grid {
    /// Its cells, for the workflow of this name.
    pub(super) fn cells(&self, workflow: &'static str) -> Vec<Place> {
        let cells = each_with(&self.limits, &self.budgets).into_iter();
        let place = |(limit, budget)| Place {
            workflow,
            limit,
            budget,
        };
        cells.map(place).collect()
    }

    pub(super) const fn blocks(&self, quick: bool) -> Blocks {
        match quick {
            true => self.quick,
            false => self.evaluation,
        }
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
        format!("{}.l{}.c{}", self.workflow, self.limit, self.budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_cells_of_each_workflow_are_written_down() {
        let Registered { digits, flood, .. } = Registered::read().unwrap();
        let names = |grid: &Grid, workflow| -> Vec<String> {
            let cells = grid.cells(workflow);
            cells.iter().map(Place::name).collect()
        };
        assert_eq!(
            names(&digits, "live"),
            ["live.l0.5.c3", "live.l0.5.c8", "live.l1.2.c3", "live.l1.2.c8"]
        );
        assert_eq!(
            names(&flood, "flood"),
            [
                "flood.l0.5.c2.5",
                "flood.l0.5.c5",
                "flood.l1.2.c2.5",
                "flood.l1.2.c5"
            ]
        );
        // One candidate at least can be paid for with every budget, in each task that a request can come to.
        for (grid, tasks) in [(digits, 1.0), (flood, 2.0)] {
            assert!(grid.blocks(false).seeds.count() >= 30);
            let least = tasks * grid.edge_prices[0];
            assert!(grid.budgets.iter().all(|budget| *budget > least));
        }
    }
}
