//! The best choice that never changes.

use super::profiles::Workload;
use anyhow::Result;
use karman_sched::select::{Fixed, LatencyLaw, Task};
use karman_study::choosing::every_choice;
use karman_types::Slo;

/// The most accurate fixed choice whose expected cost and late share are within the limits, with its expected accuracy; nothing when
/// none is.
pub(super) fn best_fixed(workload: &Workload, slo: &Slo) -> Result<Option<(Fixed, f64)>> {
    let limit_ms = slo
        .latency_p95
        .map_or(f64::INFINITY, |limit| limit.as_secs_f64() * 1e3);
    let most = slo.cost.unwrap_or(f64::INFINITY) / slo.requests as f64;
    let mut best: Option<(Vec<usize>, f64)> = None;
    for choice in every_choice(&workload.tasks) {
        let chosen = || workload.tasks.iter().zip(&choice);
        let sum = |of: &dyn Fn(&Task, usize) -> f64| -> f64 {
            chosen().map(|(task, n)| task.visits * of(task, *n)).sum()
        };
        let cost = sum(&|task, n| task.candidates[n].profile.cost);
        let late =
            sum(&|task, n| LatencyLaw::of(&task.candidates[n].profile).share_over(limit_ms * task.within));
        let accuracy = sum(&|task, n| task.candidates[n].profile.accuracy.unwrap_or_default());
        if cost <= most && late <= 0.05 && best.as_ref().is_none_or(|(_, most)| accuracy > *most) {
            best = Some((choice, accuracy));
        }
    }
    let fixed = |(choice, accuracy)| Ok((Fixed::new(workload.tasks.clone(), slo, choice)?, accuracy));
    best.map(fixed).transpose()
}
