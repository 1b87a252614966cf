//! What was written down before.

use anyhow::Result;
use serde::Deserialize;
use std::ops::Range;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Registered {
    #[cfg_attr(not(feature = "plugins"), allow(dead_code, reason = "the screen is a plugin"))]
    pub(super) screening: Screening,
    pub(super) fleet: Fleet,
    pub(super) training: Training,
    evaluation: Seeds,
    quick: Seeds,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[cfg_attr(not(feature = "plugins"), allow(dead_code, reason = "the screen is a plugin"))]
pub(super) struct Screening {
    pub(super) vehicles: u32,
    pub(super) seconds: f64,
    pub(super) every_s: f64,
}

/// Vehicles, and windows of each.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fleet {
    pub(super) vehicles: u32,
    pub(super) windows: usize,
    pub(super) held: usize,
}

/// How each contender trains.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Training {
    /// Passes of each contender over each window; where vehicles learn together, rounds.
    pub(super) passes: u32,
    pub(super) central: Steps,
    pub(super) federated: Federated,
    pub(super) local: Steps,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Steps {
    pub(super) batch: u32,
    pub(super) learning_rate: f32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Federated {
    pub(super) batch: u32,
    pub(super) learning_rate: f32,
    /// Of the server.
    pub(super) momentum: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Seeds {
    first_seed: u64,
    seeds: u64,
}

impl Registered {
    pub(super) fn read() -> Result<Self> {
        Ok(karman_types::from_toml(include_str!("registered.toml"))?)
    }

    pub(super) fn seeds(&self, quick: bool) -> Range<u64> {
        let Seeds { first_seed, seeds } = match quick {
            true => self.quick,
            false => self.evaluation,
        };
        first_seed..first_seed + seeds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_down_reads_and_has_thirty_seeds() {
        let registered = Registered::read().unwrap();
        assert_eq!(registered.seeds(false).count(), 30);
        let apart = registered
            .seeds(true)
            .all(|seed| !registered.seeds(false).contains(&seed));
        assert!(apart && registered.training.passes > 0);
    }
}
