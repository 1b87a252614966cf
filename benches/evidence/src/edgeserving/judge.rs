use super::contenders::{Contender, Run, mean_accuracy, on_time_accuracy, violations};
use karman_study::interval::{Estimate, bootstrap};
use karman_study::report::{Report, Target};

/// A comparator counts as equally accurate if it is at most so much less accurate than ours.
const AS_ACCURATE: f64 = 0.005;
/// Below the first nothing can be told from nothing; above the second the comparator has collapsed.
const MEANINGFUL: std::ops::RangeInclusive<f64> = 0.005..=0.5;

/// Everybody's runs in one cell, all over the same seeds.
pub(super) struct Judged {
    pub(super) cell: String,
    pub(super) family: String,
    pub(super) runs: Vec<(Contender, Vec<Run>)>,
}

impl Judged {
    fn ours(&self) -> &[Run] {
        &self.runs[0].1
    }

    fn comparators(&self) -> impl Iterator<Item = &[Run]> {
        let comparators = self
            .runs
            .iter()
            .filter(|(contender, _)| contender.is_comparator());
        comparators.map(|(_, runs)| &runs[..])
    }

    /// Of the comparators that are as accurate as ours, the one with the fewest violations.
    fn best_as_accurate(&self) -> Option<&[Run]> {
        let least = mean_accuracy(self.ours()) - AS_ACCURATE;
        let eligible = self.comparators().filter(|runs| mean_accuracy(runs) >= least);
        eligible.min_by(|a, b| violations(a).total_cmp(&violations(b)))
    }

    /// Whether the violations of the two can be compared.
    pub(super) fn is_meaningful(&self) -> bool {
        self.best_as_accurate()
            .is_some_and(|best| MEANINGFUL.contains(&violations(best)))
    }

    /// Our on-time accuracy against the best comparator's. Its interval is that of the paired difference, laid at the
    /// comparator's value, so that it is judged as a pair.
    pub(super) fn on_time_accuracy(&self, report: &mut Report) {
        let key = format!("on_time_accuracy.{}", self.cell);
        let best = self
            .comparators()
            .max_by(|a, b| on_time_accuracy(a).total_cmp(&on_time_accuracy(b)));
        let Some(best) = best else {
            return report.void(&key, "no comparators");
        };
        let difference = paired(self.ours(), best, |ours, best| {
            on_time_accuracy(ours) - on_time_accuracy(best)
        });
        let theirs = on_time_accuracy(best);
        let ours = Estimate {
            value: theirs + difference.value,
            lo: theirs + difference.lo,
            hi: theirs + difference.hi,
        };
        report.estimate(&key, ours, "share", Target::AtLeast(theirs));
    }

    /// Our violations over those of the best comparator that is as accurate.
    pub(super) fn violations(&self, report: &mut Report) {
        let key = format!("violations_vs_best_comparator.{}", self.cell);
        match self.best_as_accurate() {
            Some(best) if self.is_meaningful() => {
                let ratio = paired(self.ours(), best, |ours, best| {
                    violations(ours) / violations(best)
                });
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
    }

    /// The logarithm of the ratio of violations over these runs, where both are counted half a request higher: none is not
    /// infinitely better than one.
    fn log_ratio(&self, chosen: &[usize]) -> f64 {
        let count = |runs: &[Run]| chosen.iter().map(|index| runs[*index].violations).sum::<f64>() + 0.5;
        self.best_as_accurate()
            .map_or(0.0, |best| (count(self.ours()) / count(best)).ln())
    }
}

/// The geometric mean of the ratios of violations over the cells in which they mean something.
pub(super) fn geometric_mean(judged: &[Judged], cells: &[String], report: &mut Report) {
    let key = "violations_vs_best_comparator.geometric_mean";
    let meant = |judged: &&Judged| cells.contains(&judged.cell) && judged.is_meaningful();
    let meaningful: Vec<&Judged> = judged.iter().filter(meant).collect();
    let Some(first) = meaningful.first() else {
        return report.void(key, "no cell means something");
    };
    let seeds: Vec<usize> = (0..first.ours().len()).collect();
    let mean = bootstrap(&seeds, |seeds| {
        let logs = meaningful.iter().map(|judged| judged.log_ratio(seeds));
        (logs.sum::<f64>() / meaningful.len() as f64).exp()
    });
    report.estimate(key, mean, "ratio", Target::AtMost(1.0));
}

/// For each family of cells and each policy: violations, accuracy and the 95th percentile, over its cells.
pub(super) fn context(judged: &[Judged], report: &mut Report) {
    for cells in judged.chunk_by(|a, b| a.family == b.family) {
        for index in 0..cells[0].runs.len() {
            let (contender, family) = (cells[0].runs[index].0, &cells[0].family);
            let seeds: Vec<usize> = (0..cells[0].ours().len()).collect();
            let over = |statistic: &dyn Fn(&[Run]) -> f64| {
                bootstrap(&seeds, |seeds| {
                    let of = |cell: &Judged| {
                        let runs: Vec<Run> = seeds.iter().map(|seed| cell.runs[index].1[*seed]).collect();
                        statistic(&runs)
                    };
                    cells.iter().map(of).sum::<f64>() / cells.len() as f64
                })
            };
            let p95 = |runs: &[Run]| runs.iter().map(|run| run.p95_ms).sum::<f64>() / runs.len() as f64;
            for (what, unit, estimate) in [
                ("violations", "share", over(&violations)),
                ("mean_accuracy", "share", over(&mean_accuracy)),
                ("on_time_accuracy_all", "share", over(&on_time_accuracy)),
                ("p95_ms", "ms", over(&p95)),
            ] {
                let key = format!("{what}.{family}.{}", contender.name());
                report.estimate(&key, estimate, unit, Target::Shown);
            }
        }
    }
}

fn paired(ours: &[Run], theirs: &[Run], statistic: impl Fn(&[Run], &[Run]) -> f64) -> Estimate {
    let pairs: Vec<(Run, Run)> = ours.iter().copied().zip(theirs.iter().copied()).collect();
    bootstrap(&pairs, |pairs| {
        let (ours, theirs): (Vec<Run>, Vec<Run>) = pairs.iter().copied().unzip();
        statistic(&ours, &theirs)
    })
}
