//! Limits of an SLO on the command line.

use crate::cli::pair;
use karman_sched::partition::Bounded;
use karman_types::{Slo, TaskError, parse_duration};

/// A limit of an SLO, as a user states it: `p95=50ms`.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    name: String,
    value: String,
}

/// Reads one.
pub(crate) fn limit(text: &str) -> Result<Limit, String> {
    let (name, value) = pair(text)?;
    let limit = Limit { name, value };
    limit.set(&mut Slo::over(1))?;
    Ok(limit)
}

/// What the cut of a model is to keep, as a user states it.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    Limit(Limit),
    /// As little as the other limits allow: `energy=min`.
    Least(Bounded),
}

/// Reads it.
pub(crate) fn kept(text: &str) -> Result<Kept, String> {
    let (name, value) = pair(text)?;
    match (name.as_str(), value.as_str()) {
        ("p95" | "latency" | "latency-p95", "min") => Ok(Kept::Least(Bounded::Latency)),
        ("energy", "min") => Ok(Kept::Least(Bounded::Energy)),
        ("p95" | "latency" | "latency-p95" | "energy" | "requests", _) => limit(text).map(Kept::Limit),
        (other, _) => Err(format!(
            "`{other}` is nothing that a cut keeps: p95, energy or requests"
        )),
    }
}

/// Puts these limits in the place of those of an SLO.
///
/// # Errors
/// `invalid` for numbers that are no limits.
pub(crate) fn limited<'a>(
    slo: &mut Slo,
    limits: impl IntoIterator<Item = &'a Limit>,
) -> Result<(), TaskError> {
    let wrong = |says: String| TaskError::invalid(says).with_field("slo");
    for limit in limits {
        limit.set(slo).map_err(wrong)?;
    }
    slo.check().map_err(|error| wrong(error.to_string()))
}

impl Limit {
    fn set(&self, slo: &mut Slo) -> Result<(), String> {
        let number = || {
            self.value
                .parse::<f64>()
                .map_err(|_| format!("`{}` is no number", self.value))
        };
        match self.name.as_str() {
            "accuracy" => slo.accuracy = Some(number()?),
            "cost" => slo.cost = Some(number()?),
            "energy" => slo.energy = Some(number()?),
            "p95" | "latency" | "latency-p95" => {
                slo.latency_p95 = Some(parse_duration(&self.value).map_err(|error| error.to_string())?);
            }
            "requests" => {
                slo.requests = self
                    .value
                    .parse()
                    .map_err(|_| format!("`{}` is no count", self.value))?;
            }
            other => {
                return Err(format!(
                    "`{other}` is no limit: accuracy, p95, cost, energy or requests"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_wrong_ones_named() {
        let mut slo = Slo::over(9);
        for text in [
            "accuracy=0.9",
            "p95=50ms",
            "latency=50ms",
            "cost=0.5",
            "energy=20",
            "requests=100",
        ] {
            limit(text).unwrap().set(&mut slo).unwrap();
        }
        let all = limited(&mut Slo::over(9), &[limit("accuracy=2").unwrap()]);
        assert!(all.unwrap_err().message.contains("`accuracy` is 2"));
        assert_eq!(
            (slo.requests, slo.accuracy, slo.energy),
            (100, Some(0.9), Some(20.0))
        );
        for (text, says) in [
            ("speed=1", "no limit"),
            ("cost=x", "no number"),
            ("p95=3", "no"),
            ("cost", "KEY"),
        ] {
            assert!(limit(text).unwrap_err().contains(says), "{text}");
        }
    }

    #[test]
    fn a_cut_keeps_times_and_energy() {
        assert!(kept("latency=120ms").is_ok() && kept("energy=0.2").is_ok());
        assert!(matches!(kept("energy=min"), Ok(Kept::Least(Bounded::Energy))));
        assert!(matches!(kept("p95=min"), Ok(Kept::Least(Bounded::Latency))));
        for text in ["accuracy=0.9", "cost=1", "speed=1"] {
            assert!(
                kept(text).unwrap_err().ends_with("p95, energy or requests"),
                "{text}"
            );
        }
        assert!(kept("p95=3").is_err() && kept("requests=min").is_err());
    }
}
