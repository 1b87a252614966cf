//! `sim_events_per_s`: how many events the simulator handles each second on one core.
//!
//! The scenario is a network of 100 M/M/1 queues with load 0.7. An event is a pop of the event queue with the call of a policy: a
//! request comes and its route is chosen, or one is done and the policy of its node says what runs next. No trace is kept.

use anyhow::Result;
use karman_sim::{Outcome, Scenario};
use karman_study::interval::{Estimate, bootstrap};
use karman_study::pairs::median;
use karman_study::report::{Report, Target};
use std::time::Instant;

const SCENARIO: &str = include_str!("plain_queues.toml");
const RUNS: u64 = 30;

/// The row alone.
pub(crate) fn run(quick: bool) -> Result<()> {
    let mut report = Report::new("sim-speed");
    report.register(["sim_events_per_s".to_owned()]);
    row(&mut report, quick)?;
    report.write_and_print()
}

/// Puts the row into a report: the median of runs with different seeds.
pub(crate) fn row(report: &mut Report, quick: bool) -> Result<()> {
    let scenario = Scenario::from_toml(SCENARIO)?;
    let runs = if quick { 3 } else { RUNS };
    // The first one warms the caches and the allocator up.
    let rates: Vec<f64> = (0..=runs)
        .map(|seed| rate(&scenario, seed))
        .collect::<Result<_>>()?;
    let rates = &rates[1..];
    let estimate: Estimate = bootstrap(rates, |rates| median(rates.to_vec()));
    report.keep_raw("sim_events_per_s", &rates);
    report.estimate("sim_events_per_s", estimate, "1/s", Target::AtLeast(1e6));
    Ok(())
}

fn rate(scenario: &Scenario, seed: u64) -> Result<f64> {
    let scenario = Scenario {
        seed,
        ..scenario.clone()
    };
    let start = Instant::now();
    let Outcome { events, .. } = scenario.run()?;
    Ok(events as f64 / start.elapsed().as_secs_f64())
}
