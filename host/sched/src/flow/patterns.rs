//! The eight shapes of compound AI systems: small workflows of tasks, each against one limit of a single large model.
//!
//! A [`Pattern`] has a [`Shape`], which a workflow is made of, and a closed formula for accuracy, latency and cost from what was
//! measured of its steps ([`Pattern::predict`]). The formulas take steps as independent of each other: models that fail on the same
//! inputs do worse than they say, so they plan, and measurements judge.
//!
//! After "Design methodology and performance trade-offs management for distributed and compound AI systems" (arXiv 2606.14350),
//! whose abstract speaks of eight patterns without naming them: the choice is ours.
//!
//! ```
//! use karman_sched::flow::patterns::{Pattern, Step};
//!
//! let small = Step { accuracy: 0.78, latency_ms: 130.0, cost: 0.005 };
//! let large = Step { accuracy: 0.96, latency_ms: 1770.0, cost: 1.65 };
//! // The small model is confident of eight in ten of its right answers and of one in ten of the wrong ones.
//! let cascade = Pattern::Cascade { confident_right: vec![0.8], confident_wrong: vec![0.1] };
//! let outlook = cascade.predict(&[small, large])?;
//! assert!(outlook.accuracy > 0.96 - 0.025 && outlook.cost < 0.4 * large.cost && outlook.latency_ms < 0.5 * large.latency_ms);
//! # Ok::<(), karman_sched::flow::patterns::PatternError>(())
//! ```

use serde::{Deserialize, Serialize};

mod predict;
#[cfg(test)]
mod tests;

/// A shape with its parameters. Shares and probabilities are from 0 to 1.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// A problem taken apart: each step works on what the one before gave. Steps: any number.
    Pipeline,
    /// A classifier sends each input to the branch for its kind. Steps: the classifier (its own accuracy is in `sends`), the branches.
    Router {
        /// How often each kind of input comes; together 1.
        kinds: Vec<f64>,
        /// For each kind, how often it is sent to each branch; together 1.
        sends: Vec<Vec<f64>>,
        /// For each kind, how often each branch is right.
        right: Vec<Vec<f64>>,
    },
    /// The cheapest first, and the next one when it is not confident. Steps: two or more.
    Cascade {
        /// For each step but the last, how often it is confident of a right answer.
        confident_right: Vec<f64>,
        /// And of a wrong one.
        confident_wrong: Vec<f64>,
    },
    /// All answer at once, and the majority holds; without one the answer counts as wrong. Steps: an odd number, at most 63.
    Vote,
    /// What is known about the input is looked up and given to the model. Steps: the retriever, whose accuracy is how often it
    /// finds something, and the model, whose accuracy is that with what was found.
    Retrieval {
        /// How often the model is right without.
        without: f64,
    },
    /// A critic looks at the answer, and one that it refuses is made anew; the last stands as it is. Steps: the author, the critic.
    Critic {
        /// How many answers are made at most, from 1.
        attempts: u32,
        /// How often the critic lets a right answer pass.
        passes_right: f64,
        /// And a wrong one.
        passes_wrong: f64,
    },
    /// A planner cuts the problem into parts, and workers with tools do them at the same time; all must be right. Steps: the
    /// planner, the worker.
    PlannerWorkers {
        /// How many parts, from 1.
        parts: u32,
    },
    /// What was answered before, or must not be answered, is caught in front. Steps: the guard, whose accuracy is that of what it
    /// answers itself, and the model.
    Guard {
        /// How often the guard answers.
        answers: f64,
    },
}

/// The measured accuracy, latency and cost of a step.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Step {
    /// How often it is right.
    pub accuracy: f64,
    /// Milliseconds of a call in the mean.
    pub latency_ms: f64,
    /// Money for a call.
    pub cost: f64,
}

/// The predicted accuracy, latency and cost of a request.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Outlook {
    /// How often the answer is right.
    pub accuracy: f64,
    /// Milliseconds in the mean. Of steps at the same time the slowest mean counts, which is too little where latencies vary.
    pub latency_ms: f64,
    /// Money.
    pub cost: f64,
}

/// A workflow's steps and the ways between them. It begins with the steps to which no way leads.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Shape {
    /// The tasks, by name.
    pub steps: Vec<String>,
    /// The ways.
    pub edges: Vec<Edge>,
}

/// A way from one step to another.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Edge {
    /// From this step, by its place.
    pub from: usize,
    /// To this one.
    pub to: usize,
    /// When it is taken.
    pub when: When,
}

/// When a way is taken.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// Always.
    Always,
    /// The step before chose this branch.
    Branch(u32),
    /// The step before is not confident enough.
    Unsure,
    /// The step before did not answer, so that the next one has to.
    Unanswered,
    /// The answer was refused, and so often that it may be made anew.
    Refused {
        /// How many answers are made at most.
        attempts: u32,
    },
    /// Once for each of this many parts, at the same time.
    Each(u32),
}

/// A pattern or steps that do not go together.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// Another number of steps.
    #[error("{pattern} has {given} steps; it takes {takes}")]
    Steps {
        /// The pattern's name.
        pattern: &'static str,
        /// How many were given.
        given: usize,
        /// How many it takes.
        takes: &'static str,
    },
    /// A number outside its bounds.
    #[error("{pattern}: `{field}` is {value}; it must be {bounds}")]
    Value {
        /// The pattern's name.
        pattern: &'static str,
        /// The field.
        field: &'static str,
        /// What was given.
        value: f64,
        /// What may be given.
        bounds: &'static str,
    },
    /// A list of another length, or one whose shares do not come to 1.
    #[error("{pattern}: `{field}` {problem}")]
    List {
        /// The pattern's name.
        pattern: &'static str,
        /// The field.
        field: &'static str,
        /// What is wrong.
        problem: String,
    },
}

impl Pattern {
    /// Its name, as it is written in files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline",
            Self::Router { .. } => "router",
            Self::Cascade { .. } => "cascade",
            Self::Vote => "vote",
            Self::Retrieval { .. } => "retrieval",
            Self::Critic { .. } => "critic",
            Self::PlannerWorkers { .. } => "planner-workers",
            Self::Guard { .. } => "guard",
        }
    }

    /// Its steps and ways, the steps by these names.
    ///
    /// # Errors
    /// Another number of steps than the pattern takes, or parameters outside their bounds.
    pub fn shape(&self, steps: &[&str]) -> Result<Shape, PatternError> {
        self.check(steps.len())?;
        let edge = |from, to, when| Edge { from, to, when };
        let last = steps.len() - 1;
        let mut names: Vec<String> = steps.iter().map(|name| (*name).to_owned()).collect();
        let edges = match self {
            Self::Pipeline | Self::Retrieval { .. } => {
                (0..last).map(|n| edge(n, n + 1, When::Always)).collect()
            }
            Self::Router { .. } => (1..)
                .zip(0..last as u32)
                .map(|(to, branch)| edge(0, to, When::Branch(branch)))
                .collect(),
            Self::Cascade { .. } => (0..last).map(|n| edge(n, n + 1, When::Unsure)).collect(),
            Self::Vote => {
                names.push("majority".into());
                (0..=last).map(|n| edge(n, last + 1, When::Always)).collect()
            }
            Self::Critic { attempts, .. } => {
                vec![
                    edge(0, 1, When::Always),
                    edge(1, 0, When::Refused { attempts: *attempts }),
                ]
            }
            Self::PlannerWorkers { parts } => vec![edge(0, 1, When::Each(*parts))],
            Self::Guard { .. } => vec![edge(0, 1, When::Unanswered)],
        };
        Ok(Shape { steps: names, edges })
    }
}
