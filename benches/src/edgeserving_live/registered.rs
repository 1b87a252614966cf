//! What was written down before: SLOs, loads, seeds.

use anyhow::Result;
use karman_study::registered::{Seeds, each_with, read};
use karman_types::serde_duration;
use serde::Deserialize;
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Registered {
    pub(super) images: usize,
    pub(super) most: usize,
    pub(super) shares: [f64; 3],
    pub(super) slos: Vec<f64>,
    pub(super) loads: Vec<f64>,
    pub(super) margins: Vec<f64>,
    pub(super) evaluation: Blocks,
    pub(super) quick: Blocks,
}

/// How often everything is run, and for how long.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Blocks {
    pub(super) seeds: Seeds,
    pub(super) tuning_seeds: Vec<u64>,
    pub(super) profile: usize,
    #[serde(with = "serde_duration")]
    pub(super) length: Duration,
    #[serde(with = "serde_duration")]
    pub(super) warm_up: Duration,
    #[serde(with = "serde_duration")]
    pub(super) cool_down: Duration,
}

/// A cell as it was written down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) slo: f64,
    pub(super) load: f64,
}

impl Registered {
    pub(super) fn read() -> Result<Self> {
        read(include_str!("registered.toml"))
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        let cells = each_with(&self.slos, &self.loads).into_iter();
        cells.map(|(slo, load)| Cell { slo, load }).collect()
    }
}

impl Blocks {
    /// Whether a request that is due to come then counts.
    pub(super) fn counts(&self, came: Duration) -> bool {
        came >= self.warm_up && came < self.length.saturating_sub(self.cool_down)
    }
}

impl Cell {
    /// `live.slo5.4-l1.65`.
    pub(super) fn name(&self) -> String {
        format!("live.slo{}-l{}", self.slo, self.load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_cells_are_written_down() {
        let registered = Registered::read().unwrap();
        let names: Vec<String> = registered.cells().iter().map(Cell::name).collect();
        assert_eq!(names.len(), 4);
        assert_eq!(names[3], "live.slo5.4-l1.65");
        let seeds = registered.evaluation.seeds;
        assert!(seeds.count() >= 30);
        let tuned = &registered.evaluation.tuning_seeds;
        assert!(seeds.all().all(|seed| !tuned.contains(&seed)));
    }
}
