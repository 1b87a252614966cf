use super::LatencyLaw;
use karman_types::{Implementation, ProfileError, Slo, SloError};
use serde::{Deserialize, Serialize};

/// A task of a workflow, with those who may serve it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Task {
    /// Its name in the workflow.
    pub name: String,
    /// How often a request calls it, in the mean: 0.3 for a branch that three of ten requests take. A first guess; what is seen
    /// takes its place.
    pub visits: f64,
    /// Its share of the workflow's latency limit, over 0 and at most 1. On every way through the workflow the shares must come
    /// to at most 1: branches of which a request takes one may each have the whole.
    pub within: f64,
    /// Who may serve it.
    pub candidates: Vec<Implementation>,
}

/// Tasks or limits that no policy can work with.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The limits.
    #[error(transparent)]
    Slo(#[from] SloError),
    /// The profile of a candidate.
    #[error("task `{task}`: {error}")]
    Profile {
        /// The task.
        task: String,
        /// What is wrong.
        #[source]
        error: ProfileError,
    },
    /// Nothing to decide.
    #[error("the workflow has no tasks")]
    NoTasks,
    /// Nobody to serve.
    #[error("task `{task}` has no candidates")]
    NoCandidates {
        /// The task.
        task: String,
    },
    /// A number of a task outside its bounds.
    #[error("task `{task}`: `{field}` is {value}; it must be {bounds}")]
    Value {
        /// The task.
        task: String,
        /// The field.
        field: &'static str,
        /// What was given.
        value: f64,
        /// What may be given.
        bounds: &'static str,
    },
    /// A limit on energy, and a candidate whose energy nobody has measured.
    #[error("task `{task}`: the energy of `{candidate}` is not measured, so no limit on energy can be kept")]
    EnergyUnknown {
        /// The task.
        task: String,
        /// The candidate.
        candidate: String,
    },
    /// A candidate that is none.
    #[error("task `{task}` has no candidate {candidate}; it has {candidates}")]
    NoSuchCandidate {
        /// The task.
        task: String,
        /// What was given.
        candidate: usize,
        /// How many there are.
        candidates: usize,
    },
    /// A choice is given for another number of tasks than there are.
    #[error("{given} candidates are given for {tasks} tasks")]
    Choices {
        /// How many are given.
        given: usize,
        /// How many tasks there are.
        tasks: usize,
    },
    /// The mix of the linear program.
    #[error(transparent)]
    Plan(#[from] super::PlanError),
    /// A setting of the policy outside its bounds.
    #[error("setting `{field}` is {value}; it must be {bounds}")]
    Setting {
        /// The setting.
        field: &'static str,
        /// What was given.
        value: f64,
        /// What may be given.
        bounds: &'static str,
    },
}

impl Task {
    /// The most calls of one task that a request makes in the mean.
    pub const MAX_VISITS: f64 = 1e6;

    /// Milliseconds that a call may take, if there is a limit.
    pub(crate) fn latency_limit(&self, slo: &Slo) -> Option<f64> {
        slo.latency_p95
            .map(|limit| limit.as_secs_f64() * 1e3 * self.within)
    }

    /// The share of a candidate's calls that take longer than the task may; 0 without a limit.
    pub(crate) fn late_share(&self, slo: &Slo, candidate: usize) -> f64 {
        let law = LatencyLaw::of(&self.candidates[candidate].profile);
        self.latency_limit(slo).map_or(0.0, |limit| law.share_over(limit))
    }

    /// The accuracy of a candidate. One that nobody has measured counts as the least that was: what is not known is no reason
    /// to choose it.
    pub(crate) fn accuracy(&self, candidate: usize) -> f64 {
        let known = |candidate: &Implementation| candidate.profile.accuracy;
        known(&self.candidates[candidate]).unwrap_or_else(|| {
            let least = self.candidates.iter().filter_map(known).min_by(f64::total_cmp);
            least.unwrap_or(0.0)
        })
    }
}

/// Whether a policy can work with these.
pub(crate) fn check(tasks: &[Task], slo: &Slo) -> Result<(), SelectError> {
    slo.check()?;
    if tasks.is_empty() {
        return Err(SelectError::NoTasks);
    }
    tasks.iter().try_for_each(|task| check_one(task, slo))
}

fn check_one(task: &Task, slo: &Slo) -> Result<(), SelectError> {
    let name = || task.name.clone();
    let value = |field, value, bounds| SelectError::Value {
        task: name(),
        field,
        value,
        bounds,
    };
    if task.candidates.is_empty() {
        return Err(SelectError::NoCandidates { task: name() });
    }
    if !(task.visits > 0.0 && task.visits <= Task::MAX_VISITS) {
        return Err(value("visits", task.visits, "over 0 and at most 1e6"));
    }
    if !(task.within > 0.0 && task.within <= 1.0) {
        return Err(value("within", task.within, "over 0 and at most 1"));
    }
    for candidate in &task.candidates {
        candidate
            .check()
            .map_err(|error| SelectError::Profile { task: name(), error })?;
        if slo.energy.is_some() && candidate.profile.energy.is_none() {
            return Err(SelectError::EnergyUnknown {
                task: name(),
                candidate: candidate.name.clone(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{candidate, task};
    use super::*;

    #[test]
    fn bad_input_is_named() {
        let slo = Slo::over(100);
        assert_eq!(check(&[], &slo), Err(SelectError::NoTasks));
        assert!(matches!(
            check(&[task("a", vec![])], &slo),
            Err(SelectError::NoCandidates { .. })
        ));
        let good = task("a", vec![candidate("m", 0.9, 100.0, 0.1)]);
        assert_eq!(check(std::slice::from_ref(&good), &slo), Ok(()));
        for visits in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let bad = Task {
                visits,
                ..good.clone()
            };
            assert!(matches!(
                check(&[bad], &slo),
                Err(SelectError::Value { field: "visits", .. })
            ));
        }
        for within in [0.0, 1.1, f64::NAN] {
            let bad = Task {
                within,
                ..good.clone()
            };
            assert!(matches!(
                check(&[bad], &slo),
                Err(SelectError::Value { field: "within", .. })
            ));
        }
        let energy = Slo {
            energy: Some(1.0),
            ..slo
        };
        assert!(matches!(
            check(&[good], &energy),
            Err(SelectError::EnergyUnknown { .. })
        ));
    }

    #[test]
    fn an_unknown_accuracy_is_the_least() {
        let mut task = task(
            "a",
            vec![candidate("s", 0.7, 1.0, 0.1), candidate("m", 0.9, 1.0, 0.1)],
        );
        task.candidates[1].profile.accuracy = None;
        assert_eq!(task.accuracy(1), 0.7);
    }
}
