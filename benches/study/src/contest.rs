//! What a contender that moves makes of a trace, between the best that stays and one that knows.

use crate::interval::{Estimate, bootstrap};
use crate::report::{Report, Target};
use crate::trace::Trace;

/// A cut that stays of which the oracle gains less leaves nothing to capture.
const LEAST_GAIN: f64 = 0.05;
/// The least share of the oracle's gain to be captured; where there is none, the most that may be lost.
const BOUNDS: (f64, f64) = (0.8, 1.02);

/// One draw of a trace, as sums over its requests: ours, the best static cut in hindsight, the oracle.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Contest {
    /// Ours.
    pub ours: f64,
    /// The best cut that stays, known when everything is over.
    pub fixed: f64,
    /// One that knows the true speeds of the moment.
    pub oracle: f64,
}

/// Puts a row: what part of the gain that there was we took (unit `share`); where there was none, what we lost (unit `O/S`).
pub fn gain(report: &mut Report, key: &str, draws: &[Contest]) {
    let sum = |draws: &[Contest], part: fn(&Contest) -> f64| draws.iter().map(part).sum::<f64>();
    let fixed = |draws: &[Contest]| sum(draws, |draw| draw.fixed);
    let ours = |draws: &[Contest]| sum(draws, |draw| draw.ours);
    let oracle = |draws: &[Contest]| sum(draws, |draw| draw.oracle);
    if fixed(draws) - oracle(draws) >= LEAST_GAIN * fixed(draws) {
        let captured = bootstrap(draws, |draws| {
            (fixed(draws) - ours(draws)) / (fixed(draws) - oracle(draws))
        });
        report.estimate(key, captured, "share", Target::AtLeast(BOUNDS.0));
    } else {
        let lost = bootstrap(draws, |draws| ours(draws) / fixed(draws));
        report.estimate(key, lost, "O/S", Target::AtMost(BOUNDS.1));
    }
}

/// A ratio of sums over draws, bootstrapped over draws.
pub fn ratio_of_sums<T: Clone>(draws: &[T], over: impl Fn(&T) -> f64, under: impl Fn(&T) -> f64) -> Estimate {
    bootstrap(draws, |draws| {
        draws.iter().map(&over).sum::<f64>() / draws.iter().map(&under).sum::<f64>()
    })
}

/// What ours may take over an oracle on this trace.
pub const fn most_over_oracle(trace: Trace) -> Target {
    match trace {
        Trace::Outage => Target::AtMost(1.25),
        _ => Target::AtMost(1.05),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_count_not_means_of_ratios() {
        let draws = vec![(1.0, 2.0), (9.0, 2.0)];
        let ratio = ratio_of_sums(&draws, |draw| draw.0, |draw| draw.1);
        assert_eq!(ratio.value, 2.5);
    }
}
