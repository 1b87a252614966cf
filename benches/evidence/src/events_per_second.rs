//! `sim_events_per_s`: how many events the simulator handles each second on one core.
//!
//! The scenario is a network of 100 M/M/1 queues with load 0.7. An event is a pop of the event queue with the call of a policy: a
//! request comes and its route is chosen, or one is done and the policy of its node says what runs next. No trace is kept.
//! A second is one of processor time, so that other work on the machine does not count; `sim_events_per_wall_s` is by the
//! clock on the wall.

use anyhow::Result;
use karman_sim::Scenario;
use karman_study::interval::bootstrap;
use karman_study::machine::processor_time_of;
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
    let rates: Vec<_> = (0..=runs)
        .map(|seed| rates(&scenario, seed))
        .collect::<Result<_>>()?;
    let (of_processor, of_wall): (Vec<f64>, Vec<f64>) = rates[1..].iter().copied().unzip();
    for (key, rates, target) in [
        ("sim_events_per_s", of_processor, Target::AtLeast(1e6)),
        ("sim_events_per_wall_s", of_wall, Target::Shown),
    ] {
        report.estimate(
            key,
            bootstrap(&rates, |rates| median(rates.to_vec())),
            "1/s",
            target,
        );
        report.keep_raw(key, &rates);
    }
    Ok(())
}

/// Events in a second of processor time, and in one on the wall.
fn rates(scenario: &Scenario, seed: u64) -> Result<(f64, f64)> {
    let scenario = Scenario {
        seed,
        ..scenario.clone()
    };
    let me = std::process::id();
    let (wall, processor) = (Instant::now(), processor_time_of(me)?);
    let events = scenario.run()?.events as f64;
    let processor = processor_time_of(me)? - processor;
    Ok((events / processor, events / wall.elapsed().as_secs_f64()))
}
