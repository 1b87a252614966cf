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

impl Default for BatchConfig {
    fn default() -> Self {
        Self {
            at_most: 8,
            wait: Duration::ZERO,
            within: Duration::from_millis(100),
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
        for wrong in ["at-most = 1", "at-most = 257", "within = \"0 ms\"", "most = 8"] {
            assert!(from_toml::<BatchConfig>(wrong).is_err(), "{wrong}");
        }
        assert_eq!(from_toml::<BatchConfig>("").unwrap(), BatchConfig::default());
    }
}
