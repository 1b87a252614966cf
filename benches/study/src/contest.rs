//! What a contender that moves makes of a trace, between the best that stays and one that knows.

use crate::interval::{Estimate, bootstrap};
use crate::report::{Report, Target};
use crate::trace::{Trace, other_watts};

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

/// One draw of a trace under everybody whom both studies of cuts enter, as sums over its requests.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Draw {
    /// What it was drawn by.
    pub seed: u64,
    /// Milliseconds of those that move for latency.
    pub latency: Contest,
    /// Millijoules of those that move for energy.
    pub energy: Contest,
    /// Milliseconds of Neurosurgeon.
    pub neurosurgeon_ms: f64,
    /// Milliseconds where everything runs at the edge.
    pub all_edge_ms: f64,
    /// Milliseconds where everything runs in the cloud.
    pub all_cloud_ms: f64,
    /// The 99th percentiles of ours and of the static cut.
    pub p99_ms: [f64; 2],
    /// Millijoules of ours and of the static cut, for each of the [other watts](other_watts); none where these were not computed.
    pub wattages: Vec<[f64; 2]>,
}

/// Puts everything that is told of a cell.
pub fn put(report: &mut Report, cell: &str, trace: Trace, draws: &[Draw]) {
    let contests = |of: fn(&Draw) -> Contest| draws.iter().map(of).collect::<Vec<Contest>>();
    let key = |what: &str| format!("gain_captured.{cell}.{what}");
    gain(report, &key("latency"), &contests(|draw| draw.latency));
    gain(report, &key("energy"), &contests(|draw| draw.energy));
    let mut row = |key: &str, over: fn(&Draw) -> f64, under: fn(&Draw) -> f64, target| {
        let ratio = ratio_of_sums(draws, over, under);
        report.estimate(&format!("{key}.{cell}"), ratio, "ratio", target);
    };
    let ours: fn(&Draw) -> f64 = |draw| draw.latency.ours;
    let shown = Target::Shown;
    row("latency_vs_static", ours, |draw| draw.latency.fixed, shown);
    row(
        "modelled_energy_vs_static",
        |draw| draw.energy.ours,
        |draw| draw.energy.fixed,
        shown,
    );
    let most = most_over_oracle(trace);
    row("latency_vs_oracle", ours, |draw| draw.latency.oracle, most);
    let most = Target::AtMost(1.0);
    row("latency_vs_neurosurgeon", ours, |draw| draw.neurosurgeon_ms, most);
    row(
        "latency_p99_vs_static",
        |draw| draw.p99_ms[0],
        |draw| draw.p99_ms[1],
        shown,
    );
    row("latency_vs_all_edge", ours, |draw| draw.all_edge_ms, shown);
    row("latency_vs_all_cloud", ours, |draw| draw.all_cloud_ms, shown);
    let key = format!("modelled_energy_vs_static.{cell}.worst_wattage");
    match worst_wattage(draws) {
        Some(worst) => report.estimate(&key, worst, "ratio", Target::Shown),
        None => report.void(&key, "no wattage was changed"),
    }
}

/// Energy of ours over that of the static cut, with the watts with which that is worst for us.
fn worst_wattage(draws: &[Draw]) -> Option<Estimate> {
    let varied = draws.iter().filter(|draw| !draw.wattages.is_empty());
    let varied: Vec<Draw> = varied.cloned().collect();
    let by_wattage = (0..other_watts().count()).map(|index| {
        ratio_of_sums(
            &varied,
            |draw| draw.wattages[index][0],
            |draw| draw.wattages[index][1],
        )
    });
    by_wattage.max_by(|one, other| one.hi.total_cmp(&other.hi))
}

/// Puts a row: what part of the gain that there was we took (unit `share`); where there was none, what we lost (unit `O/S`).
fn gain(report: &mut Report, key: &str, draws: &[Contest]) {
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
fn ratio_of_sums<T: Clone>(draws: &[T], over: impl Fn(&T) -> f64, under: impl Fn(&T) -> f64) -> Estimate {
    bootstrap(draws, |draws| {
        draws.iter().map(&over).sum::<f64>() / draws.iter().map(&under).sum::<f64>()
    })
}

/// What ours may take over an oracle on this trace.
const fn most_over_oracle(trace: Trace) -> Target {
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
