//! Which model serves a task of a request.
//!
//! A user states an [`Slo`](karman_types::Slo) for a workflow of [`Task`]s; each task has candidates, implementations with a measured
//! profile. Before every call a [`Selector`] is asked which of them serves it ([`Ask`], [`Decision`]); when the request is answered it
//! is told what that took ([`Served`]). A choice holds for the next call; a call that runs is never touched.
//!
//! There is one clock: it counts requests, however many calls a request makes. Budgets are for a batch of
//! [`Slo::requests`](karman_types::Slo::requests), the p95 limit among them: of 869 requests 43 may be late, and every late one is spent like money.
//!
//! | file | policy |
//! |---|---|
//! | `pixie` | plans the mix of candidates that is most accurate within what is left of the budgets, and follows it |
//! | `pixie_prototype` | the thresholds of PLAIground's published prototype |
//! | `compass` | one step faster when the queue is long, one step more accurate when it is short |
//! | `greedy`, `fixed` | chosen once |
//! | `oracle` | the mix of the linear program over the profiles, without feedback |
//! | `brought` | whatever a plugin brings, with Pixie in reserve |
//! | `built_in` | which of them users name, and how |
//!
//! | file | what they share |
//! |---|---|
//! | `plan` | the linear program |
//! | `pareto` | candidates that another one beats in everything |
//! | `latency_law` | from three quantiles of a profile to the share of calls over a limit |
//! | `estimate` | what is known of a candidate: its profile, and what was seen since; the binomial alarm |
//! | `ledger` | what is left of the budgets |
//! | `credit` | following a mix call by call |
//! | `task` | tasks and candidates, checked |
//! | `bounds` | what one request wants, and who meets it |

mod bounds;
mod brought;
mod built_in;
mod compass;
mod credit;
mod estimate;
mod fixed;
mod greedy;
mod latency_law;
mod ledger;
mod oracle;
mod pareto;
mod pixie;
mod pixie_prototype;
mod plan;
mod reason;
mod task;
#[cfg(test)]
pub(crate) mod testing;

pub use bounds::{Bound, Bounds, Unmet};
pub use brought::{Brought, Choice, FailureCounts, Guest, Unlogged};
pub use built_in::{BuiltIn, NotBuiltIn};
pub use compass::Compass;
pub use fixed::Fixed;
pub use greedy::{Aim, Greedy};
pub use latency_law::LatencyLaw;
pub use oracle::{Oracle, mix_within};
pub use pareto::pareto_front;
pub use pixie::{Pixie, PixieSettings};
pub use pixie_prototype::PixiePrototype;
pub use plan::{Group, Mix, PlanError, Resource, Use, best_mix, nearest_mix, safest_mix};
pub use reason::Reason;
pub use task::{SelectError, Task};

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A policy that binds a task to one of its candidates, call by call.
pub trait Selector {
    /// Its name, as tables and logs write it.
    fn name(&self) -> &str;

    /// Which candidate serves the next call of a task.
    ///
    /// # Errors
    /// There is no such task, or none of its candidates can be reached: whether the request then waits or fails is the
    /// caller's to say.
    fn choose(&mut self, ask: &Ask<'_>) -> Result<Decision, NoChoice>;

    /// What became of a request. Every request that made a call is reported once, a failed one too.
    ///
    /// # Errors
    /// A call of a task or candidate that there is not, a cost that is no number; nothing of the report is taken in.
    fn report(&mut self, served: &Served<'_>) -> Result<(), ReportError>;
}

/// A call that needs a candidate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// Time since some start.
    pub now: Duration,
    /// The task, by its place in the workflow.
    pub task: usize,
    /// Requests that wait or are served, this one included.
    pub queue: usize,
    /// Candidates without a way to them now.
    pub unreachable: &'a [usize],
}

/// The same, to be written down.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Asked {
    /// Time since some start.
    pub now: Duration,
    /// The task, by its place in the workflow.
    pub task: usize,
    /// Requests that wait or are served, this one included.
    pub queue: usize,
    /// Candidates without a way to them now.
    pub unreachable: Vec<usize>,
}

impl Asked {
    /// As a policy is asked it.
    pub fn as_ask(&self) -> Ask<'_> {
        Ask {
            now: self.now,
            task: self.task,
            queue: self.queue,
            unreachable: &self.unreachable,
        }
    }
}

impl Ask<'_> {
    pub(crate) fn reaches(&self, candidate: usize) -> bool {
        !self.unreachable.contains(&candidate)
    }
}

/// What a policy decided.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Decision {
    /// The task.
    pub task: usize,
    /// The candidate that serves, by its place in the task.
    pub chosen: usize,
    /// The one that would have served otherwise.
    pub runner_up: Option<usize>,
    /// Why.
    pub reason: Reason,
}

/// A request that has been answered, or has failed.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// Time since some start.
    pub now: Duration,
    /// Requests that still wait or are served.
    pub queue: usize,
    /// From the request to its answer.
    pub latency: Duration,
    /// Its calls, in any order.
    pub calls: &'a [Call],
}

/// The same, to be written down.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Heard {
    /// Time since some start.
    pub now: Duration,
    /// Requests that still wait or are served.
    pub queue: usize,
    /// From the request to its answer.
    pub latency: Duration,
    /// Its calls, in any order.
    pub calls: Vec<Call>,
}

impl Heard {
    /// As a policy is told it.
    pub fn as_served(&self) -> Served<'_> {
        Served {
            now: self.now,
            queue: self.queue,
            latency: self.latency,
            calls: &self.calls,
        }
    }
}

/// One call that a request made.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Call {
    /// The task.
    pub task: usize,
    /// The candidate that served.
    pub candidate: usize,
    /// How long it took.
    pub latency: Duration,
    /// What it cost.
    pub cost: f64,
    /// Its joules, where they are measured.
    pub energy: Option<f64>,
    /// Whether its answer was right, where that is known: from a label, a judge, or agreement, or because it was an error.
    pub right: Option<bool>,
}

impl Call {
    /// The same of a call that ended without an answer, where a request may take so long: it is over that, however soon it ended. One that
    /// fails at once would else look fast.
    #[must_use]
    pub fn unanswered(self, limit: Option<Duration>) -> Self {
        let late = limit.map_or(Duration::ZERO, |limit| {
            limit.saturating_add(Duration::from_micros(1))
        });
        Self {
            latency: self.latency.max(late),
            ..self
        }
    }
}

impl Served<'_> {
    /// Whether the calls can have been made to these tasks.
    pub(crate) fn check(&self, tasks: &[Task]) -> Result<(), ReportError> {
        for call in self.calls {
            let known = tasks
                .get(call.task)
                .is_some_and(|task| call.candidate < task.candidates.len());
            if !known {
                return Err(ReportError::Unknown {
                    task: call.task,
                    candidate: call.candidate,
                });
            }
            for (field, value) in [("cost", call.cost), ("energy", call.energy.unwrap_or_default())] {
                if !(value >= 0.0 && value.is_finite()) {
                    return Err(ReportError::Value { field, value });
                }
            }
        }
        Ok(())
    }
}

/// A report of what cannot have happened.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// No such candidate.
    #[error("there is no candidate {candidate} of task {task}")]
    Unknown {
        /// The task.
        task: usize,
        /// The candidate.
        candidate: usize,
    },
    /// A number that is none, or below zero.
    #[error("`{field}` of a call is {value}; it must be finite and not below 0")]
    Value {
        /// The field.
        field: &'static str,
        /// What was given.
        value: f64,
    },
}

/// Nobody serves.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NoChoice {
    /// No such task.
    #[error("there is no task {task}; the workflow has {tasks}")]
    Task {
        /// What was asked for.
        task: usize,
        /// How many there are.
        tasks: usize,
    },
    /// No candidate has a contact.
    #[error("none of the {candidates} candidates of `{task}` can be reached")]
    Unreachable {
        /// The task's name.
        task: String,
        /// How many there are.
        candidates: usize,
    },
}

/// The task of an ask, if a candidate of it can be reached.
pub(crate) fn task_of<'a>(tasks: &'a [Task], ask: &Ask<'_>) -> Result<&'a Task, NoChoice> {
    let task = tasks.get(ask.task).ok_or(NoChoice::Task {
        task: ask.task,
        tasks: tasks.len(),
    })?;
    match (0..task.candidates.len()).any(|candidate| ask.reaches(candidate)) {
        true => Ok(task),
        false => Err(NoChoice::Unreachable {
            task: task.name.clone(),
            candidates: task.candidates.len(),
        }),
    }
}

/// The best and the second best of some candidates, the earlier of equals.
pub(crate) fn best_two(candidates: impl Iterator<Item = (usize, f64)>) -> Option<(usize, Option<usize>)> {
    let mut best: Option<(usize, f64)> = None;
    let mut second: Option<(usize, f64)> = None;
    for (candidate, score) in candidates {
        if best.is_none_or(|(_, most)| score > most) {
            second = best;
            best = Some((candidate, score));
        } else if second.is_none_or(|(_, most)| score > most) {
            second = Some((candidate, score));
        }
    }
    best.map(|(best, _)| (best, second.map(|(second, _)| second)))
}
