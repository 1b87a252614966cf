//! The rows of one cell.

use super::outcome::{Outcome, wattages};
use karman_study::contest::{Contest, gain, most_over_oracle, ratio_of_sums};
use karman_study::report::{Report, Target};
use karman_study::trace::Trace;

/// Puts everything that is told of a cell.
pub(crate) fn put(report: &mut Report, cell: &str, trace: Trace, worlds: &[Outcome]) {
    let contests = |of: fn(&Outcome) -> Contest| worlds.iter().map(of).collect::<Vec<Contest>>();
    gain(
        report,
        &format!("gain_captured.{cell}.latency"),
        &contests(|world| world.latency),
    );
    gain(
        report,
        &format!("gain_captured.{cell}.energy"),
        &contests(|world| world.energy),
    );
    let mut row = |key: &str, over: fn(&Outcome) -> f64, under: fn(&Outcome) -> f64, target| {
        let ratio = ratio_of_sums(worlds, over, under);
        report.estimate(&format!("{key}.{cell}"), ratio, "ratio", target);
    };
    let ours: fn(&Outcome) -> f64 = |world| world.latency.ours;
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
        most_over_oracle(trace),
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
        ratio_of_sums(
            &varied,
            |world| world.wattages[index][0],
            |world| world.wattages[index][1],
        )
    });
    let worst = by_wattage.max_by(|a, b| a.hi.total_cmp(&b.hi));
    let key = format!("modelled_energy_vs_static.{cell}.worst_wattage");
    match worst {
        Some(worst) => report.estimate(&key, worst, "ratio", Target::Shown),
        None => report.void(&key, "no wattage was changed"),
    }
    report.keep_raw(cell, &worlds);
}
