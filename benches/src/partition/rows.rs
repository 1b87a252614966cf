//! The rows of one cell.

use super::MODEL;
use super::outcome::Outcome;
use karman_study::contest::{Contest, gain, most_over_oracle, ratio_of_sums};
use karman_study::report::{Report, Target};
use karman_study::trace::{Trace, other_watts};

/// What is written down before anything is run.
pub(super) fn cells() -> Vec<String> {
    let of_trace = |trace: Trace| {
        let cell = format!("{MODEL}.{}", trace.name());
        [
            format!("gain_captured.{cell}.latency"),
            format!("gain_captured.{cell}.energy"),
            format!("latency_vs_static.{cell}"),
            format!("modelled_energy_vs_static.{cell}"),
            format!("modelled_energy_vs_static.{cell}.worst_wattage"),
            format!("latency_vs_oracle.{cell}"),
            format!("latency_vs_neurosurgeon.{cell}"),
        ]
    };
    let demand = ["cpu_demand".to_owned()];
    Trace::ALL.into_iter().flat_map(of_trace).chain(demand).collect()
}

/// Puts everything that is told of a cell.
pub(super) fn put(report: &mut Report, cell: &str, trace: Trace, passes: &[Outcome]) {
    let contests = |of: fn(&Outcome) -> Contest| passes.iter().map(of).collect::<Vec<Contest>>();
    gain(
        report,
        &format!("gain_captured.{cell}.latency"),
        &contests(|pass| pass.latency),
    );
    gain(
        report,
        &format!("gain_captured.{cell}.energy"),
        &contests(|pass| pass.energy),
    );
    let ours: fn(&Outcome) -> f64 = |pass| pass.latency.ours;
    let mut row = |key: &str, over: fn(&Outcome) -> f64, under: fn(&Outcome) -> f64, target| {
        let ratio = ratio_of_sums(passes, over, under);
        report.estimate(&format!("{key}.{cell}"), ratio, "ratio", target);
    };
    row(
        "latency_vs_static",
        ours,
        |pass| pass.latency.fixed,
        Target::Shown,
    );
    row(
        "modelled_energy_vs_static",
        |pass| pass.energy.ours,
        |pass| pass.energy.fixed,
        Target::Shown,
    );
    row(
        "latency_vs_oracle",
        ours,
        |pass| pass.latency.oracle,
        most_over_oracle(trace),
    );
    row(
        "latency_vs_neurosurgeon",
        ours,
        |pass| pass.neurosurgeon_ms,
        Target::AtMost(1.0),
    );
    row(
        "latency_p99_vs_static",
        |pass| pass.p99_ms[0],
        |pass| pass.p99_ms[1],
        Target::Shown,
    );
    row(
        "latency_vs_all_edge",
        ours,
        |pass| pass.all_edge_ms,
        Target::Shown,
    );
    row(
        "latency_vs_all_cloud",
        ours,
        |pass| pass.all_cloud_ms,
        Target::Shown,
    );
    let by_wattage = (0..other_watts().count()).map(|index| {
        ratio_of_sums(
            passes,
            |pass| pass.wattages[index][0],
            |pass| pass.wattages[index][1],
        )
    });
    let key = format!("modelled_energy_vs_static.{cell}.worst_wattage");
    match by_wattage.max_by(|one, other| one.hi.total_cmp(&other.hi)) {
        Some(worst) => report.estimate(&key, worst, "ratio", Target::Shown),
        None => report.void(&key, "no wattage was changed"),
    }
    report.keep_raw(cell, &passes);
}
