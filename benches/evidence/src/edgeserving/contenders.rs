use super::cells::{Cell, Registered};
use anyhow::Result;
use karman_sched::serve::{Deferred, Edf, EdfFinal, EdgeServing, LongestQueue, RefuseLate, Serve};
use karman_sim::Outcome;
use serde::Serialize;

/// A policy in the study. The first is ours; the last is shown beside the comparators.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) enum Contender {
    EdgeServing,
    Edf,
    EdfFinal,
    LongestQueue,
    Deferred { margin: f64 },
    DeferredExits { margin: f64 },
    Published,
}

impl Contender {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::EdgeServing => "edgeserving",
            Self::Edf => "edf",
            Self::EdfFinal => "edf_final",
            Self::LongestQueue => "longest_queue",
            Self::Deferred { .. } => "deferred",
            Self::DeferredExits { .. } => "deferred_exits",
            Self::Published => "edgeserving_published",
        }
    }

    pub(super) const fn is_comparator(self) -> bool {
        !matches!(self, Self::EdgeServing | Self::Published)
    }

    fn policy(self, refuse_late: bool) -> Box<dyn Serve> {
        let policy: Box<dyn Serve> = match self {
            Self::EdgeServing => Box::new(EdgeServing::default()),
            Self::Edf => Box::new(Edf),
            Self::EdfFinal => Box::new(EdfFinal),
            Self::LongestQueue => Box::new(LongestQueue),
            Self::Deferred { margin } => Box::new(Deferred { exits: false, margin }),
            Self::DeferredExits { margin } => Box::new(Deferred { exits: true, margin }),
            Self::Published => Box::new(EdgeServing::published()),
        };
        match refuse_late {
            true => Box::new(RefuseLate(policy)),
            false => policy,
        }
    }

    /// Everybody in a cell, tuned for it on other seeds.
    pub(super) fn all(cell: &Cell, registered: &Registered) -> Result<Vec<Self>> {
        let tuned = |make: fn(f64) -> Self| -> Result<Self> {
            let mut best = (f64::NEG_INFINITY, make(0.0));
            for &margin in &registered.margins {
                let runs = make(margin).runs(cell, registered.tuning_seeds.iter().copied())?;
                let on_time = on_time_accuracy(&runs);
                if on_time > best.0 {
                    best = (on_time, make(margin));
                }
            }
            Ok(best.1)
        };
        Ok(vec![
            Self::EdgeServing,
            Self::Edf,
            Self::EdfFinal,
            Self::LongestQueue,
            tuned(|margin| Self::Deferred { margin })?,
            tuned(|margin| Self::DeferredExits { margin })?,
            Self::Published,
        ])
    }

    /// One run for each seed.
    pub(super) fn runs(self, cell: &Cell, seeds: impl IntoIterator<Item = u64>) -> Result<Vec<Run>> {
        let run = |seed| {
            let outcome = cell.scenario(seed).run_with(|_| self.policy(cell.refuse_late))?;
            Ok(Run::of(&outcome))
        };
        seeds.into_iter().map(run).collect()
    }
}

/// What came of one run, over all its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Run {
    pub(super) requests: f64,
    pub(super) violations: f64,
    pub(super) answered: f64,
    pub(super) accuracy: f64,
    pub(super) on_time_accuracy: f64,
    pub(super) p95_ms: f64,
}

impl Run {
    fn of(outcome: &Outcome) -> Self {
        let mut run = Self::default();
        let mut responses = Vec::new();
        for of in &outcome.workloads {
            run.requests += of.requests as f64;
            run.violations += (of.requests - of.on_time) as f64;
            run.answered += of.answered_by_exit.iter().sum::<u64>() as f64;
            run.accuracy += of.accuracy_sum();
            run.on_time_accuracy += of.on_time_accuracy_sum();
            responses.extend_from_slice(of.responses.values());
        }
        run.p95_ms = 1e3 * karman_study::pairs::percentile(&responses, 0.95);
        run
    }
}

fn ratio(runs: &[Run], part: impl Fn(&Run) -> f64, whole: impl Fn(&Run) -> f64) -> f64 {
    runs.iter().map(part).sum::<f64>() / runs.iter().map(whole).sum::<f64>()
}

/// Late, refused and unfinished over all requests.
pub(super) fn violations(runs: &[Run]) -> f64 {
    ratio(runs, |run| run.violations, |run| run.requests)
}

/// The accuracy of the exits of all answers.
pub(super) fn mean_accuracy(runs: &[Run]) -> f64 {
    ratio(runs, |run| run.accuracy, |run| run.answered)
}

/// The accuracy of answers in time over all requests.
pub(super) fn on_time_accuracy(runs: &[Run]) -> f64 {
    ratio(runs, |run| run.on_time_accuracy, |run| run.requests)
}
