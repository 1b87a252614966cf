use crate::NodeId;
use crate::units::serde_duration;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// One way to fulfil a task contract, with what was measured of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Implementation {
    /// By which it is spoken of: `digits-m@edge`.
    pub name: String,
    /// What runs it.
    pub binding: Binding,
    /// What was measured.
    pub profile: Profile,
}

/// What runs a task: a plugin, a model or another node.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Binding {
    /// A plugin of this node, by its name.
    Plugin(String),
    /// A model of this node, by its name.
    Model(String),
    /// What another node offers.
    Remote {
        /// The node.
        node: NodeId,
        /// The name in its offer.
        task: String,
    },
    /// A server that speaks the Open Inference Protocol.
    Endpoint {
        /// Where it listens.
        url: String,
        /// The model there.
        model: String,
    },
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plugin(name) => write!(f, "plugin {name}"),
            Self::Model(name) => write!(f, "model {name}"),
            Self::Remote { node, task } => write!(f, "{task} on {node}"),
            Self::Endpoint { url, model } => write!(f, "{model} at {url}"),
        }
    }
}

/// The measured cost and quality of an implementation, for one call.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Profile {
    /// The share of right answers, from 0 to 1; nothing while it is not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Mean time of a call.
    #[serde(with = "serde_duration")]
    pub mean: Duration,
    /// Half of the calls take no longer.
    #[serde(with = "serde_duration")]
    pub p50: Duration,
    /// 95 of a hundred take no longer.
    #[serde(with = "serde_duration")]
    pub p95: Duration,
    /// 99 of a hundred take no longer.
    #[serde(with = "serde_duration")]
    pub p99: Duration,
    /// Money for a call.
    #[serde(default)]
    pub cost: f64,
    /// Joules of a call; nothing while they are not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<f64>,
    /// How many calls were measured.
    pub samples: u64,
}

/// A profile that no measurement gives.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("profile of `{name}`: `{field}` is {value}; it must be {bounds}")]
pub struct ProfileError {
    /// Of which implementation.
    pub name: String,
    /// The field.
    pub field: &'static str,
    /// What was given; times in seconds.
    pub value: f64,
    /// What may be given.
    pub bounds: &'static str,
}

impl Implementation {
    /// Whether its profile can have been measured.
    ///
    /// # Errors
    /// Names the first field that is no number, outside its bounds, or out of order.
    pub fn check(&self) -> Result<(), ProfileError> {
        let Profile {
            accuracy,
            mean,
            p50,
            p95,
            p99,
            cost,
            energy,
            samples,
        } = &self.profile;
        let budget = |value: f64| value >= 0.0 && value.is_finite();
        let share = accuracy.is_none_or(|accuracy| (0.0..=1.0).contains(&accuracy));
        let seconds = Duration::as_secs_f64;
        let energy_or_none = energy.unwrap_or_default();
        let checks = [
            ("accuracy", share, accuracy.unwrap_or_default(), "from 0 to 1"),
            ("mean", !mean.is_zero(), 0.0, "longer than nothing"),
            ("p50", !p50.is_zero(), 0.0, "longer than nothing"),
            ("p95", p95 >= p50, seconds(p95), "at least `p50`"),
            ("p99", p99 >= p95, seconds(p99), "at least `p95`"),
            ("cost", budget(*cost), *cost, "finite and not below 0"),
            (
                "energy",
                budget(energy_or_none),
                energy_or_none,
                "finite and not below 0",
            ),
            ("samples", *samples > 0, 0.0, "at least 1: a profile is measured"),
        ];
        match checks.into_iter().find(|(_, holds, ..)| !holds) {
            None => Ok(()),
            Some((field, _, value, bounds)) => Err(ProfileError {
                name: self.name.clone(),
                field,
                value,
                bounds,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn implementation() -> Implementation {
        crate::from_toml(
            r#"
            name = "digits-m@edge"
            binding = { endpoint = { url = "http://10.0.0.7:8000", model = "digits-m" } }

            [profile]
            accuracy = 0.97
            mean = "12 ms"
            p50 = "11 ms"
            p95 = "20 ms"
            p99 = "31 ms"
            samples = 1000
            "#,
        )
        .unwrap()
    }

    #[test]
    fn an_implementation_reads_what_it_writes() {
        let implementation = implementation();
        assert_eq!(implementation.check(), Ok(()));
        let written = toml::to_string(&implementation).unwrap();
        assert_eq!(crate::from_toml(&written), Ok(implementation));
    }

    #[test]
    fn errors_name_the_field() {
        type Spoil = fn(&mut Profile);
        let broken: [(&str, Spoil); 6] = [
            ("accuracy", |profile| profile.accuracy = Some(f64::NAN)),
            ("mean", |profile| profile.mean = Duration::ZERO),
            ("p95", |profile| profile.p95 = Duration::from_millis(1)),
            ("cost", |profile| profile.cost = f64::INFINITY),
            ("energy", |profile| profile.energy = Some(-1.0)),
            ("samples", |profile| profile.samples = 0),
        ];
        for (field, spoil) in broken {
            let mut implementation = implementation();
            spoil(&mut implementation.profile);
            assert_eq!(implementation.check().unwrap_err().field, field);
        }
    }
}
