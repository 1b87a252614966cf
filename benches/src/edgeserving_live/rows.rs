//! The rows of the study, judged as in the simulated one.

use super::contender::Contender;
use super::device::Run;
use super::registered::Cell;
use karman_study::interval::{Estimate, bootstrap};
use karman_study::report::{Report, Target};

/// A comparator counts as equally accurate if it is at most so much less accurate than ours.
const AS_ACCURATE: f64 = 0.005;
/// Below the first nothing can be told from nothing; above the second the comparator has collapsed.
const MEANINGFUL: std::ops::RangeInclusive<f64> = 0.005..=0.5;

/// The runs of one contender in a cell, seed by seed.
pub(super) type Entry = (Contender, Vec<Run>);

/// What is written down before anything is run.
pub(super) fn keys(cells: &[Cell]) -> Vec<String> {
    let accuracies = cells
        .iter()
        .map(|cell| format!("on_time_accuracy.{}", cell.name()));
    accuracies.chain(["cpu_demand".to_owned()]).collect()
}

/// Puts everything that is told of a cell, all over the same seeds; ours came first.
pub(super) fn put(report: &mut Report, cell: &str, entered: &[Entry]) {
    let Some(((_, ours), others)) = entered.split_first() else {
        return report.void(&format!("on_time_accuracy.{cell}"), "nobody ran");
    };
    let comparators = || {
        let comparators = others.iter().filter(|(contender, _)| contender.is_comparator());
        comparators.map(|(_, runs)| runs.as_slice())
    };
    let best = comparators().max_by(|a, b| on_time_accuracy(a).total_cmp(&on_time_accuracy(b)));
    judge_on_time(report, &format!("on_time_accuracy.{cell}"), ours, best);
    let least = mean_accuracy(ours) - AS_ACCURATE;
    let as_accurate = comparators().filter(|runs| mean_accuracy(runs) >= least);
    let best = as_accurate.min_by(|a, b| violations(a).total_cmp(&violations(b)));
    let key = format!("violations_vs_best_comparator.{cell}");
    match best {
        Some(best) if MEANINGFUL.contains(&violations(best)) => {
            let ratio = paired(ours, best, |ours, best| violations(ours) / violations(best));
            report.estimate(&key, ratio, "ratio", Target::AtMost(1.0));
        }
        Some(best) => {
            let theirs = 100.0 * violations(best);
            report.void(
                &key,
                format!("the best comparator as accurate has {theirs:.3} % violations"),
            );
        }
        None => report.void(&key, "no comparator is as accurate"),
    }
    for (contender, runs) in entered {
        let mut show = |what: &str, unit, statistic: fn(&[Run]) -> f64| {
            let key = format!("{what}.{cell}.{}", contender.name());
            report.estimate(&key, bootstrap(runs, statistic), unit, Target::Shown);
        };
        show("violations", "share", violations);
        show("mean_accuracy", "share", mean_accuracy);
        show("on_time_accuracy", "share", on_time_accuracy);
        show("p95_ms", "ms", |runs| {
            runs.iter().map(|run| run.p95_ms).sum::<f64>() / runs.len() as f64
        });
    }
}

/// Ours against the best comparator's. The interval is that of the paired difference, laid at the comparator's value, so that it is
/// judged as a pair.
fn judge_on_time(report: &mut Report, key: &str, ours: &[Run], best: Option<&[Run]>) {
    let Some(best) = best else {
        return report.void(key, "no comparators");
    };
    let difference = paired(ours, best, |ours, best| {
        on_time_accuracy(ours) - on_time_accuracy(best)
    });
    let theirs = on_time_accuracy(best);
    let laid = Estimate {
        value: theirs + difference.value,
        lo: theirs + difference.lo,
        hi: theirs + difference.hi,
    };
    report.estimate(key, laid, "share", Target::AtLeast(theirs));
}

fn paired(ours: &[Run], theirs: &[Run], statistic: impl Fn(&[Run], &[Run]) -> f64) -> Estimate {
    let pairs: Vec<(Run, Run)> = ours.iter().copied().zip(theirs.iter().copied()).collect();
    bootstrap(&pairs, |pairs| {
        let (ours, theirs): (Vec<Run>, Vec<Run>) = pairs.iter().copied().unzip();
        statistic(&ours, &theirs)
    })
}

fn ratio(runs: &[Run], part: impl Fn(&Run) -> f64, whole: impl Fn(&Run) -> f64) -> f64 {
    runs.iter().map(part).sum::<f64>() / runs.iter().map(whole).sum::<f64>()
}

/// Late, refused and unfinished over all requests.
fn violations(runs: &[Run]) -> f64 {
    ratio(runs, |run| run.violations, |run| run.requests)
}

/// The accuracy of the exits of all answers.
fn mean_accuracy(runs: &[Run]) -> f64 {
    ratio(runs, |run| run.accuracy, |run| run.answered)
}

/// The accuracy of answers in time over all requests.
pub(super) fn on_time_accuracy(runs: &[Run]) -> f64 {
    ratio(runs, |run| run.on_time_accuracy, |run| run.requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_count_by_their_requests() {
        let run = |requests: f64, violations: f64| Run {
            requests,
            violations,
            answered: requests,
            accuracy: 0.9 * requests,
            on_time_accuracy: 0.9 * (requests - violations),
            p95_ms: 1.0,
        };
        let runs = [run(100.0, 0.0), run(300.0, 40.0)];
        assert!((violations(&runs) - 0.1).abs() < 1e-9);
        assert!((mean_accuracy(&runs) - 0.9).abs() < 1e-9);
        assert!((on_time_accuracy(&runs) - 0.81).abs() < 1e-9);
    }
}
