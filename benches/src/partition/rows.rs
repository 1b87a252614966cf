//! The rows of one cell.

use super::MODEL;
use super::outcome::Outcome;
use karman_study::contest::{self, Draw};
use karman_study::report::Report;
use karman_study::trace::Trace;

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
    let draws: Vec<Draw> = passes.iter().map(|pass| pass.draw.clone()).collect();
    contest::put(report, cell, trace, &draws);
    report.keep_raw(cell, &passes);
}
