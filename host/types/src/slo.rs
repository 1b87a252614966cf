use crate::units::serde_optional_duration;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a user wants of a workflow, over a number of requests. What is left out is not limited.
///
/// ```
/// let slo = karman_types::Slo::from_toml(r#"
///     requests = 869
///     accuracy = 0.85
///     latency-p95 = "900 ms"
///     cost = 0.03
/// "#)?;
/// assert_eq!(slo.late_allowed(), 43);
/// # Ok::<(), karman_types::SloError>(())
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Slo {
    /// The requests of one batch: the budgets below are for all of them together, and begin anew with the next batch.
    pub requests: u64,
    /// The share of answers that are right, from 0 to 1: at least this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// The 95th percentile of the time from request to answer: at most this.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "serde_optional_duration"
    )]
    pub latency_p95: Option<Duration>,
    /// Money for the batch, in the currency of the profiles: at most this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Joules for the batch: at most this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<f64>,
}

/// A service-level objective that is not valid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SloError {
    /// The text is not what an SLO looks like.
    #[error("slo: {0}")]
    Text(#[from] crate::KeyError),
    /// A value outside its bounds.
    #[error("slo: `{field}` is {value}; it must be {bounds}")]
    Value {
        /// The field.
        field: &'static str,
        /// What was given.
        value: f64,
        /// What may be given.
        bounds: &'static str,
    },
}

impl Slo {
    /// The most requests of one batch.
    pub const MAX_REQUESTS: u64 = 1 << 40;

    /// The requests of one batch where the user does not say.
    pub const USUAL_REQUESTS: u64 = 1_000;

    /// No limits over this many requests.
    pub const fn over(requests: u64) -> Self {
        Self {
            requests,
            accuracy: None,
            latency_p95: None,
            cost: None,
            energy: None,
        }
    }

    /// Reads and checks what a user wrote.
    ///
    /// # Errors
    /// Those of [`Slo::check`]; [`SloError::Text`] for what does not read.
    pub fn from_toml(text: &str) -> Result<Self, SloError> {
        let slo: Self = crate::from_toml(text)?;
        slo.check()?;
        Ok(slo)
    }

    /// Whether it means something.
    ///
    /// # Errors
    /// [`SloError::Value`] names the first field that is outside its bounds, or no number.
    pub fn check(&self) -> Result<(), SloError> {
        let value = |field, value, bounds| Err(SloError::Value { field, value, bounds });
        if self.requests == 0 || self.requests > Self::MAX_REQUESTS {
            return value("requests", self.requests as f64, "from 1 to 2^40");
        }
        match self.accuracy {
            Some(accuracy) if !(0.0..=1.0).contains(&accuracy) => {
                return value("accuracy", accuracy, "from 0 to 1");
            }
            _ => {}
        }
        if self.latency_p95 == Some(Duration::ZERO) {
            return value("latency-p95", 0.0, "longer than nothing");
        }
        for (field, budget) in [("cost", self.cost), ("energy", self.energy)] {
            match budget {
                Some(budget) if !(budget >= 0.0 && budget.is_finite()) => {
                    return value(field, budget, "finite and not below 0");
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// How many of the batch may take longer than [`Slo::latency_p95`]: the nearest-rank percentile is at most the limit just
    /// when no more than these are over it.
    pub const fn late_allowed(&self) -> u64 {
        self.requests / 20
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_field() {
        for (text, field) in [
            ("requests = 0", "`requests` is 0"),
            ("requests = 1\naccuracy = 1.5", "`accuracy` is 1.5"),
            ("requests = 1\naccuracy = nan", "`accuracy` is NaN"),
            ("requests = 1\nlatency-p95 = \"0 ms\"", "`latency-p95` is 0"),
            ("requests = 1\ncost = -1.0", "`cost` is -1"),
            ("requests = 1\nenergy = inf", "`energy` is inf"),
            (
                "requests = 1\nlatency-p59 = \"1 s\"",
                "did you mean `latency-p95`?",
            ),
        ] {
            let error = Slo::from_toml(text).unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }

    #[test]
    fn an_slo_reads_what_it_writes() {
        let slo = Slo {
            accuracy: Some(0.8),
            latency_p95: Some(Duration::from_micros(900_500)),
            ..Slo::over(50)
        };
        assert_eq!(Slo::from_toml(&toml::to_string(&slo).unwrap()), Ok(slo));
    }
}
