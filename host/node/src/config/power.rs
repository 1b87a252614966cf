use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// Watts that an operator states of a node whose kernel counts none, from a data sheet or a meter at the plug: assumptions, from which energy
/// is derived.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct StatedPower {
    /// While it computes, 0 to 100000.
    #[serde(deserialize_with = "watts", skip_serializing_if = "Option::is_none")]
    pub busy: Option<f64>,
    /// While it does not.
    #[serde(deserialize_with = "watts", skip_serializing_if = "Option::is_none")]
    pub idle: Option<f64>,
    /// On top of the rest, while it sends.
    #[serde(deserialize_with = "watts", skip_serializing_if = "Option::is_none")]
    pub transmit: Option<f64>,
}

fn watts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let watts = f64::deserialize(deserializer)?;
    match (0.0..=1e5).contains(&watts) {
        true => Ok(Some(watts)),
        false => Err(D::Error::custom(format!("{watts} W is not from 0 to 100000"))),
    }
}
