//! What is told of several cells together.

use karman_study::interval::bootstrap;
use karman_study::report::{Report, Target};
use karman_study::serving::{Judged, Run, mean_accuracy, on_time_accuracy, p95_ms, violations};

/// A cell that was played, and the family of cells that it belongs to.
pub(super) struct Played {
    pub(super) family: String,
    pub(super) judged: Judged,
}

/// The logarithm of the ratio of violations over these runs, where both are counted half a request higher: none is not
/// infinitely better than one.
fn log_ratio(judged: &Judged, chosen: &[usize]) -> f64 {
    let count = |runs: &[Run]| chosen.iter().map(|index| runs[*index].violations).sum::<f64>() + 0.5;
    judged
        .best_as_accurate()
        .map_or(0.0, |best| (count(judged.ours()) / count(best)).ln())
}

/// The geometric mean of the ratios of violations over the cells in which they mean something.
pub(super) fn geometric_mean(played: &[Played], cells: &[String], report: &mut Report) {
    let key = "violations_vs_best_comparator.geometric_mean";
    let meant = |judged: &&Judged| cells.contains(&judged.cell) && judged.is_meaningful();
    let judged = played.iter().map(|cell| &cell.judged);
    let meaningful: Vec<&Judged> = judged.filter(meant).collect();
    let Some(first) = meaningful.first() else {
        return report.void(key, "no cell means something");
    };
    let seeds: Vec<usize> = (0..first.ours().len()).collect();
    let mean = bootstrap(&seeds, |seeds| {
        let logs = meaningful.iter().map(|judged| log_ratio(judged, seeds));
        (logs.sum::<f64>() / meaningful.len() as f64).exp()
    });
    report.estimate(key, mean, "ratio", Target::AtMost(1.0));
}

/// For each family of cells and each policy: violations, accuracy and the 95th percentile, over its cells.
pub(super) fn context(played: &[Played], report: &mut Report) {
    for cells in played.chunk_by(|a, b| a.family == b.family) {
        for index in 0..cells[0].judged.runs.len() {
            let (contender, family) = (cells[0].judged.runs[index].0, &cells[0].family);
            let seeds: Vec<usize> = (0..cells[0].judged.ours().len()).collect();
            let over = |statistic: &dyn Fn(&[Run]) -> f64| {
                bootstrap(&seeds, |seeds| {
                    let of = |cell: &Played| {
                        let all = &cell.judged.runs[index].1;
                        let runs: Vec<Run> = seeds.iter().map(|seed| all[*seed]).collect();
                        statistic(&runs)
                    };
                    cells.iter().map(of).sum::<f64>() / cells.len() as f64
                })
            };
            for (what, unit, estimate) in [
                ("violations", "share", over(&violations)),
                ("mean_accuracy", "share", over(&mean_accuracy)),
                ("on_time_accuracy_all", "share", over(&on_time_accuracy)),
                ("p95_ms", "ms", over(&p95_ms)),
            ] {
                let key = format!("{what}.{family}.{}", contender.name());
                report.estimate(&key, estimate, unit, Target::Shown);
            }
        }
    }
}
