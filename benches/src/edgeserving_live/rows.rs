//! The rows of the study, judged as in the simulated one.

use super::registered::Cell;
use karman_study::interval::bootstrap;
use karman_study::report::{Report, Target};
use karman_study::serving::{Judged, Run, mean_accuracy, on_time_accuracy, p95_ms, violations};

/// What is written down before anything is run.
pub(super) fn keys(cells: &[Cell]) -> Vec<String> {
    let accuracies = cells
        .iter()
        .map(|cell| format!("on_time_accuracy.{}", cell.name()));
    accuracies.chain(["cpu_demand".to_owned()]).collect()
}

/// Puts everything that is told of a cell.
pub(super) fn put(report: &mut Report, judged: &Judged) {
    judged.on_time_accuracy(report);
    judged.violations(report);
    for (contender, runs) in &judged.runs {
        let mut show = |what: &str, unit, statistic: fn(&[Run]) -> f64| {
            let key = format!("{what}.{}.{}", judged.cell, contender.name());
            report.estimate(&key, bootstrap(runs, statistic), unit, Target::Shown);
        };
        show("violations", "share", violations);
        show("mean_accuracy", "share", mean_accuracy);
        show("on_time_accuracy", "share", on_time_accuracy);
        show("p95_ms", "ms", p95_ms);
    }
}
