use super::{Aim, Compass, Greedy, Pixie, PixieSettings, SelectError, Task};
use crate::log::Policy;
use karman_types::Slo;
use std::str::FromStr;

/// A policy that needs no plugin, as users name it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BuiltIn {
    /// See [`Pixie`].
    Pixie,
    /// See [`Compass`].
    Compass,
    /// See [`Greedy`].
    Greedy(Aim),
}

/// A name that no built-in policy has.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("there is no policy `{name}`; built in are {}", BuiltIn::names())]
pub struct NotBuiltIn {
    /// The name.
    pub name: String,
}

impl BuiltIn {
    /// Each of them, the default first.
    pub const ALL: [Self; 5] = [
        Self::Pixie,
        Self::Compass,
        Self::Greedy(Aim::Accuracy),
        Self::Greedy(Aim::Cost),
        Self::Greedy(Aim::Latency),
    ];

    /// By which workflows, nodes and scenarios name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pixie => "pixie",
            Self::Compass => "compass",
            Self::Greedy(Aim::Accuracy) => "greedy-accuracy",
            Self::Greedy(Aim::Cost) => "greedy-cost",
            Self::Greedy(Aim::Latency) => "greedy-latency",
        }
    }

    /// The names of all, for those who asked for another.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// This policy for these tasks within these limits.
    ///
    /// # Errors
    /// Names what is wrong with a task, a profile or a limit.
    pub fn over(self, tasks: Vec<Task>, slo: Slo) -> Result<Policy, SelectError> {
        Ok(match self {
            Self::Pixie => {
                let pixie = Pixie::new(tasks, slo, PixieSettings::default())?;
                Policy::Pixie(Box::new(pixie))
            }
            Self::Compass => Policy::Compass(Box::new(Compass::new(tasks, &slo)?)),
            Self::Greedy(aim) => Policy::Greedy(Box::new(Greedy::new(tasks, slo, aim)?)),
        })
    }
}

impl FromStr for BuiltIn {
    type Err = NotBuiltIn;

    fn from_str(name: &str) -> Result<Self, NotBuiltIn> {
        let mut all = Self::ALL.into_iter();
        all.find(|policy| policy.name() == name)
            .ok_or_else(|| NotBuiltIn { name: name.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_and_others_are_told_them() {
        for policy in BuiltIn::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        let error = "prices".parse::<BuiltIn>().unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no policy `prices`; built in are pixie, compass, greedy-accuracy, greedy-cost, greedy-latency"
        );
    }
}
