//! What is expected of a call by one candidate.

use crate::budget::{BUDGETS, Each};
use crate::exports::karman::policy::selector::{Call, Profile};

/// For how many calls a profile's cost, lateness and energy stand.
const WEIGHT: Each = [20.0, 100.0, 20.0];
/// Calls after which what was seen counts for a third of what it did.
const MEMORY: f64 = 300.0;
/// The 95th percentile of the standard normal distribution.
const Z95: f64 = 1.644_853_626_951_472_2;

/// A candidate: its accuracy, and what a call by it takes of each budget.
pub(crate) struct Candidate {
    pub(crate) accuracy: f64,
    by_profile: Each,
    /// What was seen, fading.
    pub(crate) sum: Each,
    pub(crate) count: Each,
    /// A call may take so long, in nanoseconds.
    limit: Option<f64>,
}

impl Candidate {
    pub(crate) fn new(profile: &Profile, accuracy: f64, limit: Option<f64>) -> Self {
        let late = limit.map_or(0.0, |limit| share_over(profile, limit));
        Self {
            accuracy,
            by_profile: [profile.cost, late, profile.energy.unwrap_or_default()],
            sum: [0.0; BUDGETS],
            count: [0.0; BUDGETS],
            limit,
        }
    }

    /// What a call is expected to take of each budget.
    pub(crate) fn takes(&self) -> Each {
        std::array::from_fn(|n| (self.by_profile[n] * WEIGHT[n] + self.sum[n]) / (WEIGHT[n] + self.count[n]))
    }

    /// Takes in what a call took.
    pub(crate) fn see(&mut self, call: &Call) {
        let late = self.limit.is_some_and(|limit| call.latency as f64 > limit);
        let took = [Some(call.cost), Some(f64::from(u8::from(late))), call.energy];
        for (n, took) in took.into_iter().enumerate() {
            if let Some(took) = took {
                let keep = 1.0 - 1.0 / MEMORY;
                self.sum[n] = self.sum[n] * keep + took;
                self.count[n] = self.count[n] * keep + 1.0;
            }
        }
    }
}

/// The share of calls that take longer than this: log-normal through p50 and p95, above that a Pareto tail through p99.
fn share_over(profile: &Profile, limit: f64) -> f64 {
    let [p50, p95, p99] = [profile.p50, profile.p95, profile.p99].map(|time| time.max(1) as f64);
    if limit >= p95 {
        return match p99 > p95 {
            // A fifth of the tail lies above p99.
            true => 0.05 * (p95 / limit).powf(5f64.ln() / (p99 / p95).ln()),
            false if limit > p95 => 0.0,
            false => 0.05,
        };
    }
    let deviation = (p95 / p50).ln() / Z95;
    match deviation > 0.0 && limit > 0.0 {
        true => libm::erfc((limit / p50).ln() / deviation / std::f64::consts::SQRT_2) / 2.0,
        false => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::{call, profile};

    #[test]
    fn a_profile_says_how_many_are_late() {
        let profile = profile(0.9, 100.0, 0.1);
        for (limit, share) in [(100.0, 0.05), (50.0, 0.5), (150.0, 0.01), (0.0, 1.0)] {
            let found = share_over(&profile, limit * 1e6);
            assert!((found - share).abs() < 1e-9, "{limit}: {found}");
        }
    }

    #[test]
    fn what_is_seen_counts_more_and_more() {
        let mut candidate = Candidate::new(&profile(0.9, 100.0, 0.1), 0.9, Some(100.0 * 1e6));
        assert!((candidate.takes()[1] - 0.05).abs() < 1e-9);
        for _ in 0..400 {
            candidate.see(&call(0, 0, 300.0, 0.4));
        }
        let takes = candidate.takes();
        assert!(takes[0] > 0.35 && takes[1] > 0.65 && takes[2] == 0.0, "{takes:?}");
    }
}
