//! The rows of one cell.

use super::outcome::{Contest, Outcome, wattages};
use super::world::Trace;
use karman_study::interval::bootstrap;
use karman_study::report::{Report, Target};

/// A static cut of which the oracle gains less leaves nothing to capture.
const LEAST_GAIN: f64 = 0.05;

/// Puts everything that is told of a cell.
pub(crate) fn put(report: &mut Report, cell: &str, trace: Trace, worlds: &[Outcome]) {
    let ratio = |over: fn(&Outcome) -> f64, under: fn(&Outcome) -> f64| {
        bootstrap(worlds, |worlds| {
            worlds.iter().map(over).sum::<f64>() / worlds.iter().map(under).sum::<f64>()
        })
    };
    gain(
        report,
        &format!("gain_captured.{cell}.latency"),
        worlds,
        |world| world.latency,
    );
    gain(report, &format!("gain_captured.{cell}.energy"), worlds, |world| {
        world.energy
    });
    let mut row = |key: &str, over, under, target| {
        report.estimate(&format!("{key}.{cell}"), ratio(over, under), "ratio", target);
    };
    let ours = |world: &Outcome| world.latency.ours;
    let bound = if trace == Trace::Outage { 1.25 } else { 1.05 };
    row(
        "latency_vs_static",
        ours,
        |world| world.latency.fixed,
        Target::Shown,
    );
    row(
        "modelled_energy_vs_static",
        |world| world.energy.ours,
        |world| world.energy.fixed,
        Target::Shown,
    );
    row(
        "latency_vs_oracle",
        ours,
        |world| world.latency.oracle,
        Target::AtMost(bound),
    );
    row(
        "latency_vs_neurosurgeon",
        ours,
        |world| world.neurosurgeon_ms,
        Target::AtMost(1.0),
    );
    row(
        "latency_p99_vs_static",
        |world| world.p99_ms[0],
        |world| world.p99_ms[1],
        Target::Shown,
    );
    row(
        "latency_vs_all_edge",
        ours,
        |world| world.all_edge_ms,
        Target::Shown,
    );
    row(
        "latency_vs_all_cloud",
        ours,
        |world| world.all_cloud_ms,
        Target::Shown,
    );
    let varied: Vec<Outcome> = worlds
        .iter()
        .filter(|world| !world.wattages.is_empty())
        .cloned()
        .collect();
    let by_wattage = (0..wattages().len()).map(|index| {
        bootstrap(&varied, |worlds| {
            let sum = |side: usize| {
                worlds
                    .iter()
                    .map(|world| world.wattages[index][side])
                    .sum::<f64>()
            };
            sum(0) / sum(1)
        })
    });
    let worst = by_wattage.max_by(|a, b| a.hi.total_cmp(&b.hi));
    let key = format!("modelled_energy_vs_static.{cell}.worst_wattage");
    match worst {
        Some(worst) => report.estimate(&key, worst, "ratio", Target::Shown),
        None => report.void(&key, "no wattage was changed"),
    }
    report.keep_raw(cell, &worlds);
}

/// What part of the gain that there was we took; where there was none, what we lost.
fn gain(report: &mut Report, key: &str, worlds: &[Outcome], of: fn(&Outcome) -> Contest) {
    let sum = |worlds: &[Outcome], part: fn(&Contest) -> f64| {
        worlds.iter().map(|world| part(&of(world))).sum::<f64>()
    };
    let fixed = |worlds: &[Outcome]| sum(worlds, |contest| contest.fixed);
    let ours = |worlds: &[Outcome]| sum(worlds, |contest| contest.ours);
    let oracle = |worlds: &[Outcome]| sum(worlds, |contest| contest.oracle);
    if fixed(worlds) - oracle(worlds) >= LEAST_GAIN * fixed(worlds) {
        let captured = bootstrap(worlds, |worlds| {
            (fixed(worlds) - ours(worlds)) / (fixed(worlds) - oracle(worlds))
        });
        report.estimate(key, captured, "share", Target::AtLeast(0.8));
    } else {
        let lost = bootstrap(worlds, |worlds| ours(worlds) / fixed(worlds));
        report.estimate(key, lost, "O/S", Target::AtMost(1.02));
    }
}
