//! Tasks and candidates for the tests of this module.

use super::{Ask, Call, Selector, Served, Task};
use karman_types::{Binding, Implementation, Profile};
use std::time::Duration;

pub(crate) fn millis(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}

/// A candidate with this p95 in milliseconds, half of that in the median.
pub(crate) fn candidate(name: &str, accuracy: f64, p95: f64, cost: f64) -> Implementation {
    Implementation {
        name: name.into(),
        binding: Binding::Model(name.into()),
        profile: Profile {
            accuracy: Some(accuracy),
            mean: millis(p95 * 0.6),
            p50: millis(p95 / 2.0),
            p95: millis(p95),
            p99: millis(p95 * 1.5),
            cost,
            energy: None,
            samples: 500,
        },
    }
}

pub(crate) fn task(name: &str, candidates: Vec<Implementation>) -> Task {
    Task {
        name: name.into(),
        visits: 1.0,
        within: 1.0,
        candidates,
    }
}

/// Asks for one call of the first task and reports it with this latency, at the cost of the profile. Returns the choice.
pub(crate) fn serve(policy: &mut dyn Selector, tasks: &[Task], latency: impl FnOnce(usize) -> f64) -> usize {
    let decision = policy.choose(&Ask::default()).unwrap();
    let latency = millis(latency(decision.chosen));
    policy
        .report(&Served {
            now: Duration::ZERO,
            queue: 0,
            latency,
            calls: &[Call {
                task: 0,
                candidate: decision.chosen,
                latency,
                cost: tasks[0].candidates[decision.chosen].profile.cost,
                energy: None,
                right: None,
            }],
        })
        .unwrap();
    decision.chosen
}
