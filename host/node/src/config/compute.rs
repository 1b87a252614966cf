use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::num::NonZeroUsize;

/// How fast models run on a node that stands for a slower one.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ComputeProfile {
    /// How many times longer they take than on this machine, one after the other, 1 to 1000. Default 1: as fast as it is.
    #[serde(deserialize_with = "slowdown")]
    pub slowdown: f64,
    /// Threads of one run on ONNX Runtime; tract has one. Default 1, because a node runs many tasks. A node that is made slower has one
    /// whatever is said here: the time of others could not be followed by a wait.
    pub threads: NonZeroUsize,
}

fn slowdown<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let times = f64::deserialize(deserializer)?;
    match (1.0..=1000.0).contains(&times) {
        true => Ok(times),
        false => Err(D::Error::custom(format!("{times} is not from 1 to 1000"))),
    }
}

impl Default for ComputeProfile {
    fn default() -> Self {
        Self {
            slowdown: 1.0,
            threads: NonZeroUsize::MIN,
        }
    }
}
