//! Model selection on the recorded profiles of PLAIground: 869 questions of ARC, eleven language models. All rows are replayed:
//! choices are real, latencies and answers are drawn from the profiles. The live part is the study `pixie-live`, which `cargo xtask bench
//! pixie` runs as well.
//!
//! | key | what |
//! |---|---|
//! | `ours_compliant_share.CELL` | runs of `pixie` that keep cost, p95 and least accuracy, over all runs |
//! | `attainable_share.CELL` | where that is not at least 0.95: what no policy can exceed; a cell is void where this is less than 0.95 itself |
//! | `ours_compliant_share_median` | its median over cells |
//! | `accuracy_gap_to_oracle_points.CELL` | accuracy of the linear program within the limits, less ours, in points |
//! | `gain_captured.CELL` | ours over the best fixed choice, of what the linear program gains over it; where that is a point or more |
//! | `compliant_share.POLICY` | the same share over all cells, for every policy; `fixed` is the best fixed choice, in the cells where one keeps the limits in the mean |
//! | `accuracy.POLICY`, `cost_of_budget.POLICY`, `p95_of_limit.POLICY`, `switches.POLICY` | means over cells and runs |
//! | `compliant_share.POLICY.PERTURBATION`, `limits_kept.POLICY.PERTURBATION` | where something happens that the profiles do not say; the second counts cost and p95 only |
//! | `compliant_share.PLUGIN` and the like | the same of the policies that `plugins/prices` (Rust) and `plugins/throttle` (Python, fewer seeds) bring |
//! | `fell_back.PLUGIN` | decisions that the default policy made in their place |
//! | `law_mean_error.MODEL` | the mean of the assumed law of latencies over the recorded mean, less 1 |
//!
//! Accuracy is that of the chosen models' profiles on each question's true difficulty; what is drawn is feedback, never the score.
//! The recorded costs of the two Haiku models look exchanged; they are used as recorded. `compass` sees no queue here and no cost.
//! Under perturbations the least accuracy is often out of anybody's reach. A run is one seed: order of questions, luck of the classifier, latencies, answers, the same for every policy.

#[cfg(feature = "plugins")]
mod brought;
mod ceiling;
mod cells;
mod fixed;
mod profiles;
mod replay;

use anyhow::{Result, ensure};
use ceiling::ceiling;
use cells::{Cell, Grid, registered};
use fixed::best_fixed;
use karman_sched::select::{LatencyLaw, Selector, Task, mix_within};
use karman_study::choosing::{POLICIES, policy};
use karman_study::interval::{Estimate, bootstrap, mean};
use karman_study::pairs::median;
use karman_study::report::{Kind, Report, Target};
use karman_types::Slo;
use profiles::{QUESTIONS, Recorded, load};
use replay::{Draws, Perturbation, Run, replay};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Seeds of each perturbation.
const PERTURBED_SEEDS: usize = 30;
/// The least share of runs that are to keep all limits.
const LEAST_COMPLIANT: f64 = 0.95;

/// One run of one policy in one cell.
#[derive(Clone, Debug, Serialize)]
struct Row {
    cell: usize,
    policy: &'static str,
    perturbation: String,
    seed: u64,
    #[serde(flatten)]
    run: Run,
}

/// A cell with what the program reaches in it.
struct Judged {
    name: String,
    cell: Cell,
    program: f64,
    fixed: Option<f64>,
}

/// Runs the study. `quick`: the cells and seeds on which the settings were chosen.
pub(crate) fn run(data: &Path, quick: bool) -> Result<()> {
    let profiles = load(data)?;
    let registered = registered()?;
    let grid = if quick {
        &registered.tuning
    } else {
        &registered.evaluation
    };
    let mut report = Report::new("pixie");
    report.kind(Kind::Replayed);
    let keys = ["ours_compliant_share", "accuracy_gap_to_oracle_points"];
    report.register(keys.iter().flat_map(|key| {
        grid.cells
            .iter()
            .map(move |cell| format!("{key}.{}", cell.name()))
    }));

    law_errors(&mut report, &profiles);
    let cells: Vec<Judged> = grid
        .cells
        .iter()
        .map(|cell| judge(cell, &profiles))
        .collect::<Result<_>>()?;
    let rows = run_all(
        grid,
        &profiles,
        "",
        Perturbation::default(),
        &POLICIES,
        usize::MAX,
    )?;
    per_cell(&mut report, &cells, &profiles, &rows);
    per_policy(&mut report, &cells, &rows);
    #[cfg(feature = "plugins")]
    brought::rows(&mut report, grid, &profiles, &cells)?;
    for (name, perturbation) in &registered.perturbations {
        let policies = ["pixie", "pixie_prototype", "greedy_accuracy", "oracle"];
        let rows = run_all(grid, &profiles, name, *perturbation, &policies, PERTURBED_SEEDS)?;
        for policy in policies {
            let of: Vec<&Row> = rows.iter().filter(|row| row.policy == policy).collect();
            let mut show = |key: &str, holds: &dyn Fn(&Run) -> bool| {
                let shares = by_seed(&of, &|row| f64::from(u8::from(holds(&row.run))));
                report.estimate(
                    &format!("{key}.{policy}.{name}"),
                    bootstrap(&shares, mean),
                    "share",
                    Target::Shown,
                );
            };
            show("compliant_share", &|run| run.compliant);
            show("limits_kept", &|run| run.within);
        }
        report.keep_raw(name, &rows);
    }
    report.keep_raw("runs", &rows);
    report.keep_raw("cells", &cells.iter().map(|cell| &cell.name).collect::<Vec<_>>());
    report.write_and_print()
}

/// What the program and the best fixed choice reach; a cell that the program does not keep with something to spare is no cell.
fn judge(cell: &Cell, profiles: &BTreeMap<String, Recorded>) -> Result<Judged> {
    let workload = cell.workload(profiles);
    let accuracy = |share: f64| -> Result<f64> {
        Ok(mix_within(&workload.tasks, &cell.slo(share))?.value / QUESTIONS as f64)
    };
    let spare = accuracy(0.97)?;
    ensure!(
        spare >= cell.accuracy + 0.005,
        "{}: with 97 % of the limits the program reaches {spare:.4}, which is not half a point over {}",
        cell.name(),
        cell.accuracy
    );
    Ok(Judged {
        name: cell.name(),
        cell: cell.clone(),
        program: accuracy(1.0)?,
        fixed: best_fixed(&workload, &cell.slo(1.0))?.map(|(_, accuracy)| accuracy),
    })
}

fn run_all(
    grid: &Grid,
    profiles: &BTreeMap<String, Recorded>,
    name: &str,
    perturbation: Perturbation,
    policies: &[&'static str],
    seeds: usize,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for seed in grid.seeds().take(seeds) {
        let draws = Draws::new(seed);
        for (cell, of) in grid.cells.iter().enumerate() {
            let (workload, slo) = (of.workload(profiles), of.slo(1.0));
            let mut enter = |policy: &'static str, selector: &mut dyn Selector| -> Result<()> {
                let run = replay(&workload, &slo, &draws, perturbation, selector)?;
                let perturbation = name.to_owned();
                rows.push(Row {
                    cell,
                    policy,
                    perturbation,
                    seed,
                    run,
                });
                Ok(())
            };
            for name in policies {
                enter(name, policy(name, workload.tasks.clone(), &slo)?.as_mut())?;
            }
            if let Some((mut fixed, _)) = best_fixed(&workload, &slo)? {
                enter("fixed", &mut fixed)?;
            }
        }
    }
    Ok(rows)
}

fn per_cell(report: &mut Report, cells: &[Judged], profiles: &BTreeMap<String, Recorded>, rows: &[Row]) {
    let mut shares = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        let ours: Vec<Run> = rows
            .iter()
            .filter(|row| row.cell == index && row.policy == "pixie")
            .map(|row| row.run)
            .collect();
        let share = bootstrap(&ours, |runs| {
            mean_of(runs, |run| f64::from(u8::from(run.compliant)))
        });
        shares.push(share.value);
        compliant_share(report, cell, profiles, share);
        let gap = bootstrap(&ours, |runs| {
            100.0 * (cell.program - mean_of(runs, |run| run.accuracy))
        });
        report.estimate(
            &format!("accuracy_gap_to_oracle_points.{}", cell.name),
            gap,
            "points",
            Target::AtMost(1.0),
        );
        if let Some(fixed) = cell.fixed.filter(|fixed| cell.program - fixed >= 0.01) {
            let captured =
                |runs: &[Run]| (mean_of(runs, |run| run.accuracy) - fixed) / (cell.program - fixed);
            let captured = bootstrap(&ours, captured);
            report.estimate(
                &format!("gain_captured.{}", cell.name),
                captured,
                "share",
                Target::AtLeast(0.5),
            );
        }
    }
    report.figure(
        "ours_compliant_share_median",
        median(shares),
        "share",
        Target::AtLeast(1.0),
    );
}

fn compliant_share(
    report: &mut Report,
    Judged { name, cell, .. }: &Judged,
    profiles: &BTreeMap<String, Recorded>,
    ours: Estimate,
) {
    let key = format!("ours_compliant_share.{name}");
    let most = (ours.lo < LEAST_COMPLIANT).then(|| ceiling(cell, &cell.workload(profiles)));
    match most {
        Some(most) if most < LEAST_COMPLIANT => {
            let Estimate { value, lo, hi } = ours;
            report.void(
                &key,
                format!(
                    "no policy can expect to keep cost and p95 in more than {most:.3} of its runs; ours keeps all limits in {value:.2} [{lo:.2}, {hi:.2}]"
                ),
            );
        }
        _ => report.estimate(&key, ours, "share", Target::AtLeast(LEAST_COMPLIANT)),
    }
    if let Some(most) = most {
        report.figure(&format!("attainable_share.{name}"), most, "share", Target::Shown);
    }
}

fn per_policy(report: &mut Report, cells: &[Judged], rows: &[Row]) {
    for policy in POLICIES.into_iter().chain(["fixed"]) {
        let of: Vec<&Row> = rows.iter().filter(|row| row.policy == policy).collect();
        match of.is_empty() {
            true => report.void(
                &format!("compliant_share.{policy}"),
                "no fixed choice keeps the limits of any cell",
            ),
            false => of_policy(report, cells, policy, &of),
        }
    }
}

/// The rows of one policy, over all cells.
fn of_policy(report: &mut Report, cells: &[Judged], policy: &str, of: &[&Row]) {
    let mut show = |key: &str, unit, value: &dyn Fn(&Row) -> f64| {
        let by_seed = by_seed(of, value);
        report.estimate(
            &format!("{key}.{policy}"),
            bootstrap(&by_seed, mean),
            unit,
            Target::Shown,
        );
    };
    show("compliant_share", "share", &|row| {
        f64::from(u8::from(row.run.compliant))
    });
    show("accuracy", "points", &|row| row.run.accuracy * 100.0);
    show("cost_of_budget", "ratio", &|row| {
        row.run.cost / cells[row.cell].cell.cost
    });
    show("p95_of_limit", "ratio", &|row| {
        row.run.p95_ms / cells[row.cell].cell.latency_ms
    });
    show("switches", "", &|row| f64::from(row.run.switches));
}

/// The mean over cells, seed by seed: cells of one seed share their luck.
fn by_seed(rows: &[&Row], value: &dyn Fn(&Row) -> f64) -> Vec<f64> {
    let mut seeds: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for row in rows {
        seeds.entry(row.seed).or_default().push(value(row));
    }
    seeds.values().map(|values| mean(values)).collect()
}

fn mean_of(runs: &[Run], value: impl Fn(&Run) -> f64) -> f64 {
    runs.iter().map(value).sum::<f64>() / runs.len() as f64
}

fn law_errors(report: &mut Report, profiles: &BTreeMap<String, Recorded>) {
    for (name, recorded) in profiles {
        let law = LatencyLaw::of(&recorded.implementation(name, 1.0).profile);
        let error = Estimate::exact(law.mean() / recorded.avg_latency_ms - 1.0);
        report.estimate(&format!("law_mean_error.{name}"), error, "ratio", Target::Shown);
    }
}

/// One task with the eleven recorded candidates, and limits between them.
pub(crate) fn eleven_candidates(data: &Path) -> Result<(Vec<Task>, Slo)> {
    let registered = registered()?;
    let cell = &registered.evaluation.cells[ELEVEN];
    Ok((cell.workload(&load(data)?).tasks, cell.slo(1.0)))
}

/// The cell of the pool in which money and lateness both bind.
const ELEVEN: usize = 17;
