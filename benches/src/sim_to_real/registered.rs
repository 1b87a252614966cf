//! What was written down before: nodes, routes, loads, seeds.

use anyhow::Result;
use karman_sim::Route;
use karman_study::registered::{Seeds, each_with, read};
use karman_types::serde_duration;
use serde::Deserialize;
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Registered {
    pub(super) nodes: u32,
    pub(super) slowdown: f64,
    pub(super) images: usize,
    pub(super) routes: Vec<Route>,
    pub(super) loads: Vec<f64>,
    #[serde(with = "serde_duration")]
    pub(super) telemetry: Duration,
    pub(super) calibration: Calibration,
    pub(super) evaluation: Blocks,
    pub(super) quick: Blocks,
}

/// How the parameters of the simulator are measured.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Calibration {
    pub(super) seed: u64,
    pub(super) saturated: usize,
    pub(super) single: usize,
    pub(super) load: f64,
    pub(super) route: Route,
    #[serde(with = "serde_duration")]
    length: Duration,
    #[serde(with = "serde_duration")]
    warm_up: Duration,
    #[serde(with = "serde_duration")]
    cool_down: Duration,
}

/// How often everything is run, and for how long.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Blocks {
    pub(super) seeds: Seeds,
    #[serde(with = "serde_duration")]
    length: Duration,
    #[serde(with = "serde_duration")]
    warm_up: Duration,
    #[serde(with = "serde_duration")]
    cool_down: Duration,
}

/// When requests come, and which of them count: the same words as in a scenario.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) length: Duration,
    pub(super) warm_up: Duration,
    pub(super) cool_down: Duration,
}

/// One of the nine: a route under a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) route: Route,
    pub(super) load: f64,
}

impl Registered {
    pub(super) fn read() -> Result<Self> {
        read(include_str!("registered.toml"))
    }

    /// Every route under every load; those of one load beside each other.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let cells = each_with(&self.loads, &self.routes).into_iter();
        cells.map(|(load, route)| Cell { route, load }).collect()
    }
}

impl Calibration {
    pub(super) const fn window(&self) -> Window {
        Window {
            length: self.length,
            warm_up: self.warm_up,
            cool_down: self.cool_down,
        }
    }
}

impl Blocks {
    pub(super) const fn window(&self) -> Window {
        Window {
            length: self.length,
            warm_up: self.warm_up,
            cool_down: self.cool_down,
        }
    }
}

impl Window {
    /// From when on a request counts, from when on it does not any more, and when the run is over, in seconds.
    pub(super) fn seconds(&self) -> (f64, f64, f64) {
        let until = self.length.saturating_sub(self.cool_down);
        (
            self.warm_up.as_secs_f64(),
            until.as_secs_f64(),
            self.length.as_secs_f64(),
        )
    }
}

impl Cell {
    /// `least-loaded.l0.5`.
    pub(super) fn name(&self) -> String {
        format!("{}.l{}", name(self.route), self.load)
    }
}

/// As scenarios write it.
pub(super) const fn name(route: Route) -> &'static str {
    match route {
        Route::Here => "here",
        Route::Random => "random",
        Route::RoundRobin => "round-robin",
        Route::LeastLoaded => "least-loaded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_cells_are_written_down() {
        let registered = Registered::read().unwrap();
        let names: Vec<String> = registered.cells().iter().map(Cell::name).collect();
        assert_eq!(names.len(), 9);
        assert_eq!(
            (names[0].as_str(), names[8].as_str()),
            ("random.l0.3", "least-loaded.l0.7")
        );
        let (from, until, end) = registered.evaluation.window().seconds();
        assert!(0.0 < from && from < until && until < end);
        assert!(registered.evaluation.seeds.count() >= 30);
    }
}
