//! What the contenders come to in the simulator.

use super::cells::{Cell, Registered};
use anyhow::Result;
use karman_sched::serve::{RefuseLate, Serve};
use karman_sim::Outcome;
use karman_study::pairs::percentile;
use karman_study::serving::{Contender, Run};

/// Everybody in a cell, tuned for it on other seeds.
pub(super) fn all(cell: &Cell, registered: &Registered) -> Result<[Contender; 7]> {
    let seeds = || registered.tuning_seeds.iter().copied();
    Contender::tuned(&registered.margins, |contender| runs(contender, cell, seeds()))
}

/// One run for each seed.
pub(super) fn runs(
    contender: Contender,
    cell: &Cell,
    seeds: impl IntoIterator<Item = u64>,
) -> Result<Vec<Run>> {
    let policy = || -> Box<dyn Serve> {
        match cell.refuse_late {
            true => Box::new(RefuseLate(contender.policy())),
            false => contender.policy(),
        }
    };
    let run = |seed| Ok(of(&cell.scenario(seed).run_with(|_| policy())?));
    seeds.into_iter().map(run).collect()
}

/// All its requests count.
fn of(outcome: &Outcome) -> Run {
    let mut run = Run::default();
    let mut responses = Vec::new();
    for of in &outcome.workloads {
        run.requests += of.requests as f64;
        run.violations += (of.requests - of.on_time) as f64;
        run.answered += of.answered_by_exit.iter().sum::<u64>() as f64;
        run.accuracy += of.accuracy_sum();
        run.on_time_accuracy += of.on_time_accuracy_sum();
        responses.extend_from_slice(of.responses.values());
    }
    run.p95_ms = 1e3 * percentile(&responses, 0.95);
    run
}
