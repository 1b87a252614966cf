use crate::{Instant, Samples};
use serde::Serialize;

/// The outcome of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The seed it ran with.
    pub seed: u64,
    /// How many events happened.
    pub events: u64,
    /// What became of the requests, for each workload.
    pub workloads: Vec<WorkloadOutcome>,
    /// What the nodes did, for each group.
    pub nodes: Vec<GroupOutcome>,
    /// What it was a run of. Default empty: only who has read it knows its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scenario: String,
    /// What policies failed in that plugins bring, as those tell who have brought them.
    pub policy_failures: Vec<PolicyFailure>,
    /// When the groups were looked at, in seconds.
    #[serde(skip)]
    pub sampled: Vec<f64>,
    /// Every request that counts and has ended, where that was asked for.
    #[serde(skip)]
    pub answers: Vec<Answer>,
}

/// What became of the requests of a workload that count. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WorkloadOutcome {
    /// Its name.
    pub name: String,
    /// How many came.
    pub requests: u64,
    /// Answered in time.
    pub on_time: u64,
    /// Answered too late.
    pub late: u64,
    /// Refused by a policy.
    pub refused: u64,
    /// Gone with a node or a link.
    pub lost: u64,
    /// Neither answered nor ended otherwise.
    pub unfinished: u64,
    /// The share of all answers that are right, whenever they came; nothing where there are none.
    pub mean_accuracy: Option<f64>,
    /// Money for all answers.
    pub cost: f64,
    /// Answers of each model, where the model was chosen; exits below are those of all of them, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub served_by: Vec<(String, u64)>,
    /// Answers in time of each exit.
    pub on_time_by_exit: Vec<u64>,
    /// Answers of each exit.
    pub answered_by_exit: Vec<u64>,
    /// The accuracy of each exit.
    pub accuracy_of_exit: Vec<f64>,
    /// How long answers took, one by one.
    #[serde(skip)]
    pub responses: Samples,
    /// How long they took on average.
    pub mean_response: Option<f64>,
    /// How long half of them took at most.
    pub p50_response: Option<f64>,
    /// How long 95 of 100 took at most.
    pub p95_response: Option<f64>,
    /// How long 99 of 100 took at most.
    pub p99_response: Option<f64>,
}

impl WorkloadOutcome {
    /// The share of requests that were not answered in time: late, refused, lost or unfinished.
    pub fn violations(&self) -> f64 {
        1.0 - self.on_time as f64 / self.requests as f64
    }

    /// The accuracy of all answers together, whenever they came.
    pub fn accuracy_sum(&self) -> f64 {
        sum(&self.answered_by_exit, &self.accuracy_of_exit)
    }

    /// The accuracy of the answers in time together: over the requests, it is the share of requests that were answered in time
    /// and right.
    pub fn on_time_accuracy_sum(&self) -> f64 {
        sum(&self.on_time_by_exit, &self.accuracy_of_exit)
    }
}

/// Counts first, so that the sum does not depend on the order of the answers.
fn sum(counts: &[u64], accuracies: &[f64]) -> f64 {
    let pairs = counts.iter().zip(accuracies);
    pairs.map(|(count, accuracy)| *count as f64 * accuracy).sum()
}

/// How often a policy that a plugin brings failed in one way.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct PolicyFailure {
    /// The plugin, with its version.
    pub policy: String,
    /// How often.
    pub times: u64,
    /// What it did not do, and why.
    pub why: String,
}

/// The statistics of a group of nodes after the warm-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupOutcome {
    /// Its name.
    pub name: String,
    /// The share of core time spent at work.
    pub utilisation: f64,
    /// What they drew.
    pub joules: f64,
    /// How often one failed.
    pub failures: u64,
    /// How many requests waited at one, on average, each time they were looked at.
    #[serde(skip)]
    pub waiting: Vec<f64>,
    /// Which share of cores worked, each time they were looked at.
    #[serde(skip)]
    pub busy: Vec<f64>,
}

/// The outcome of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// Which workload.
    pub workload: u32,
    /// The number of the node at which it came.
    pub home: u32,
    /// The number of the node that served or lost it.
    pub node: u32,
    /// When it came.
    pub came: Instant,
    /// When it was over.
    pub ended: Instant,
    /// How.
    pub verdict: Verdict,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// With an answer.
    Answered {
        /// By which exit of its model.
        exit: usize,
        /// How accurate that is.
        accuracy: f64,
    },
    /// A policy refused it.
    Refused,
    /// It went with a node or a link.
    Lost,
}
