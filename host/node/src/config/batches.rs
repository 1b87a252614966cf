use karman_types::{pattern_matches, serde_duration};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most requests that an operator may allow in one batch.
const MOST: usize = 256;

/// How requests for one item each that wait for the same model at the same time are run as one. A model without this runs each by itself.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BatchConfig {
    /// The most requests in one run, 2 to 256. Default 8.
    #[serde(deserialize_with = "at_most")]
    pub at_most: usize,
    /// How long a request waits at most for others while the device is free: less where even the largest batch would not be done
    /// `within` after that. Default 0 ms: only what comes while the device is busy is run together.
    #[serde(with = "serde_duration")]
    pub wait: Duration,
    /// How soon after a request its answer should be there: of several models the one that is closest to being late is next. A request that
    /// has less time than this runs by itself, at once. Default 100 ms.
    #[serde(serialize_with = "serde_duration::serialize", deserialize_with = "above_zero")]
    pub within: Duration,
    /// How often an early exit has to be right, from 0 to 1, so that it may answer in the place of the whole model where that would be late.
    /// The model says how accurate each is (`karman model add --exit`). Default: no early exit answers.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "share")]
    pub accuracy: Option<f64>,
}

fn at_most<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let requests = usize::deserialize(deserializer)?;
    match (2..=MOST).contains(&requests) {
        true => Ok(requests),
        false => Err(D::Error::custom(format!("{requests} is not from 2 to {MOST}"))),
    }
}

fn above_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let time = serde_duration::deserialize(deserializer)?;
    match time.is_zero() {
        true => Err(D::Error::custom("it has to be longer than 0")),
        false => Ok(time),
    }
}

fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let share = f64::deserialize(deserializer)?;
    match (0.0..=1.0).contains(&share) {
        true => Ok(Some(share)),
        false => Err(D::Error::custom(format!("{share} is not from 0 to 1"))),
    }
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self {
            at_most: 8,
            wait: Duration::ZERO,
            within: Duration::from_millis(100),
            accuracy: None,
        }
    }
}

/// What an operator allows for this model. Its own name counts before patterns.
pub(crate) fn batch_of<'a>(all: &'a BTreeMap<String, BatchConfig>, model: &str) -> Option<&'a BatchConfig> {
    let mut patterns = all.iter();
    let by_pattern =
        || patterns.find_map(|(pattern, batch)| pattern_matches(pattern, model).then_some(batch));
    all.get(model).or_else(by_pattern)
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::from_toml;

    #[test]
    fn a_model_is_run_in_batches_as_its_name_says_before_a_pattern() {
        let text = "[\"digits-*\"]\nwait = \"2 ms\"\n[digits-s]\nat-most = 32\n";
        let all: BTreeMap<String, BatchConfig> = from_toml(text).unwrap();
        let of = |model| batch_of(&all, model).map(|batch| (batch.at_most, batch.wait.as_millis()));
        assert_eq!(of("digits-s"), Some((32, 0)));
        assert_eq!(of("digits-m"), Some((8, 2)));
        assert_eq!(of("flood-s"), None);
    }

    #[test]
    fn what_makes_no_batch_is_refused() {
        for wrong in [
            "at-most = 1",
            "at-most = 257",
            "within = \"0 ms\"",
            "accuracy = 98.0",
            "most = 8",
        ] {
            assert!(from_toml::<BatchConfig>(wrong).is_err(), "{wrong}");
        }
        let exits = from_toml::<BatchConfig>("accuracy = 0.98").unwrap();
        assert_eq!(exits.accuracy, Some(0.98));
        assert_eq!(from_toml::<BatchConfig>("").unwrap(), BatchConfig::default());
    }
}
