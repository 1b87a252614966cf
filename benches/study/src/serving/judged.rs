use super::contender::Contender;
use super::run::{Run, mean_accuracy, on_time_accuracy, violations};
use crate::interval::{Estimate, bootstrap};
use crate::report::{Report, Target};

/// A comparator counts as equally accurate if it is at most so much less accurate than ours.
const AS_ACCURATE: f64 = 0.005;
/// Below the first nothing can be told from nothing; above the second the comparator has collapsed.
const MEANINGFUL: std::ops::RangeInclusive<f64> = 0.005..=0.5;

/// Everybody's runs in one cell, all over the same seeds; ours first.
pub struct Judged {
    /// The cell, as it stands in the keys of rows.
    pub cell: String,
    /// Contenders with a run for each seed.
    pub runs: Vec<(Contender, Vec<Run>)>,
}

impl Judged {
    /// Our runs.
    pub fn ours(&self) -> &[Run] {
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
    pub fn best_as_accurate(&self) -> Option<&[Run]> {
        let least = mean_accuracy(self.ours()) - AS_ACCURATE;
        let eligible = self.comparators().filter(|runs| mean_accuracy(runs) >= least);
        eligible.min_by(|a, b| violations(a).total_cmp(&violations(b)))
    }

    /// Whether the violations of the two can be compared.
    pub fn is_meaningful(&self) -> bool {
        self.best_as_accurate()
            .is_some_and(|best| MEANINGFUL.contains(&violations(best)))
    }

    /// Our on-time accuracy against the best comparator's. Its interval is that of the paired difference, laid at the
    /// comparator's value, so that it is judged as a pair.
    pub fn on_time_accuracy(&self, report: &mut Report) {
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
    pub fn violations(&self, report: &mut Report) {
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
}

fn paired(ours: &[Run], theirs: &[Run], statistic: impl Fn(&[Run], &[Run]) -> f64) -> Estimate {
    let pairs: Vec<(Run, Run)> = ours.iter().copied().zip(theirs.iter().copied()).collect();
    bootstrap(&pairs, |pairs| {
        let (ours, theirs): (Vec<Run>, Vec<Run>) = pairs.iter().copied().unzip();
        statistic(&ours, &theirs)
    })
}
