//! The rows of the study.

use super::batch::Run;
use super::policies::policies;
use super::profiles::{Cell, Profiles};
use super::registered::Place;
use super::workload::Workload;
use anyhow::Error;
use karman_study::choosing;
use karman_study::interval::bootstrap;
use karman_study::report::{Report, Target};
use std::collections::BTreeMap;

const OURS: &str = choosing::POLICIES[0];
const KEYS: [&str; 2] = ["ours_compliant_share", "accuracy_gap_to_oracle_points"];

/// What is written down before anything is run.
pub(super) fn keys(cells: &[Place]) -> Vec<String> {
    let judged = cells.iter().flat_map(|cell| of_cell(&cell.name()));
    judged.chain(["cpu_demand".to_owned()]).collect()
}

fn of_cell(name: &str) -> [String; 2] {
    KEYS.map(|key| format!("{key}.{name}"))
}

/// A cell that there is not, and why.
pub(super) fn void(report: &mut Report, cell: Place, error: &Error) {
    for key in of_cell(&cell.name()) {
        report.void(&key, format!("{error:#}"));
    }
}

/// Puts everything that is told of the runs of a workload.
pub(super) fn put(
    report: &mut Report,
    workload: &Workload,
    cells: &[Cell],
    profiles: &Profiles,
    runs: &[Run],
) {
    for (place, cell) in cells.iter().enumerate() {
        let ours = |run: &&Run| run.cell == place && run.policy == OURS;
        let ours: Vec<&Run> = runs.iter().filter(ours).collect();
        let [share, gap] = of_cell(&cell.name);
        let compliant = bootstrap(&ours, |runs| {
            mean(runs, &|run| f64::from(u8::from(run.compliant)))
        });
        report.estimate(&share, compliant, "share", Target::AtLeast(0.95));
        let points = bootstrap(&ours, |runs| {
            100.0 * (cell.program - mean(runs, &|run| run.accuracy))
        });
        report.estimate(&gap, points, "points", Target::AtMost(1.0));
    }
    let nobody = match cells.is_empty() {
        true => "there is no cell",
        false => "no single choice keeps the limits of any cell",
    };
    for policy in policies() {
        let of: Vec<&Run> = runs.iter().filter(|run| run.policy == policy).collect();
        match of.is_empty() {
            true => report.void(&format!("compliant_share.{}.{policy}", workload.name), nobody),
            false => of_policy(report, (workload.name, policy), cells, &of),
        }
    }
    of_profiles(report, workload, profiles);
}

/// What was measured before.
fn of_profiles(report: &mut Report, workload: &Workload, profiles: &Profiles) {
    let name = workload.name;
    let after = format!("{name}_after_step");
    for (when, known) in [(name, &profiles.before), (after.as_str(), &profiles.after)] {
        // The same in every task.
        for candidate in known.iter().take(1).flatten() {
            let key = format!("p95_ms.{when}.{}", candidate.name);
            let p95_ms = candidate.profile.p95.as_secs_f64() * 1e3;
            report.figure(&key, p95_ms, "ms", Target::Shown);
        }
    }
    for (task, task_name) in workload.tasks.iter().enumerate() {
        // The same on every tier.
        for (model, model_name) in workload.models.iter().enumerate() {
            let key = format!("known_accuracy.{name}.{task_name}.{model_name}");
            let points = 100.0 * profiles.accuracy(task, model);
            report.figure(&key, points, "points", Target::Shown);
        }
    }
}

/// What one policy made of all cells.
fn of_policy(report: &mut Report, (workload, policy): (&str, &str), cells: &[Cell], runs: &[&Run]) {
    let mut show = |key: &str, unit, value: &dyn Fn(&Run) -> f64| {
        let blocks = by_block(runs, value);
        let estimate = bootstrap(&blocks, |blocks| blocks.iter().sum::<f64>() / blocks.len() as f64);
        report.estimate(
            &format!("{key}.{workload}.{policy}"),
            estimate,
            unit,
            Target::Shown,
        );
    };
    show("compliant_share", "share", &|run| {
        f64::from(u8::from(run.compliant))
    });
    show("accuracy", "points", &|run| run.accuracy * 100.0);
    show("right", "points", &|run| run.right * 100.0);
    show("cost_of_budget", "ratio", &|run| {
        run.cost / cells[run.cell].slo.cost.unwrap_or(f64::NAN)
    });
    show("p95_of_limit", "ratio", &|run| {
        let limit = cells[run.cell].slo.latency_p95;
        limit.map_or(f64::NAN, |limit| run.p95_ms / (limit.as_secs_f64() * 1e3))
    });
    show("switches", "", &|run| f64::from(run.switches));
}

/// The mean over cells, block by block: cells of one block share their minutes.
fn by_block(runs: &[&Run], value: &dyn Fn(&Run) -> f64) -> Vec<f64> {
    let mut blocks: BTreeMap<u64, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        blocks.entry(run.seed).or_default().push(run);
    }
    blocks.values().map(|runs| mean(runs, value)).collect()
}

fn mean(runs: &[&Run], value: &dyn Fn(&Run) -> f64) -> f64 {
    runs.iter().map(|run| value(run)).sum::<f64>() / runs.len() as f64
}
