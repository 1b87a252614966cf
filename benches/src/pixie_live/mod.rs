//! `pixie-live`: the live part of `pixie`. Our own models on two emulated tiers, a load step, real latencies.
//!
//! Edge and cloud are processes of their own with a shaped link between them, and run models on tract, some times slower than the
//! machine, one after the other. Every request goes to the edge's node, which runs the model itself or calls the cloud's. The policies are
//! those of the replayed study, each fresh for every run, with profiles that were measured before; they hear how long each call took
//! and whether its answer was right. From a third of the requests on, another tenant loads the cloud. Cells, prices, seeds and hypotheses
//! are in `registered.toml`.
//!
//! | workflow | tasks | models |
//! |---|---|---|
//! | `live` | which digit is it? | `digits-s`, `digits-m`, `digits-l` |
//! | `flood` | is there water in this tile of a satellite's picture (`screen`), and if so, where (`segment`)? | `flood-s`, `flood-l`, in both |
//!
//! The second stands for the published workflow of fires on satellite images (a detection, and a report where something was found):
//! what is looked for is what our own models find. It is asked as two tasks of
//! `plugins/flood/flood.toml` are, tile by tile, with a choice in both.
//!
//! | key | what | bound |
//! |---|---|---|
//! | `ours_compliant_share.CELL` | runs of `pixie` that keep cost, p95 and least accuracy, over all runs | 0.95 |
//! | `accuracy_gap_to_oracle_points.CELL` | accuracy of the linear program, which knows the profiles before and after the step, less ours, in points | 1.0 |
//! | `cpu_demand` | cores in use by both nodes and this program | 1.6 |
//! | `compliant_share.WORKFLOW.POLICY`, `accuracy...`, `right...`, `cost_of_budget...`, `p95_of_limit...`, `switches...` | means over cells and runs, for every policy; `fixed` is the best single choice in hindsight of the step, in the cells where one keeps the limits; `right` counts requests of which every answer was right | shown |
//! | `p95_ms.WORKFLOW.CANDIDATE`, `p95_ms.WORKFLOW_after_step.CANDIDATE`, `known_accuracy.WORKFLOW.TASK.MODEL` | the profiles | shown |
//!
//! A cell begins with the name of its workflow. Accuracy is that of the chosen models: on the digits held back, as their training found
//! it, and on tiles that are there for nothing else; which answers were right is feedback. A run is one order of digits or tiles; in a block
//! every policy runs in every cell once, in random order. Raw rows hold every request. A cell whose limits no mix keeps is void.

mod batch;
mod flood;
mod policies;
mod profiles;
mod registered;
mod rows;
mod tiers;
mod workload;

use anyhow::{Context, Result};
use batch::{Batch, Run};
use karman_study::report::{Report, Target};
use policies::{policies, policy};
use profiles::{Cell, Profiles};
use registered::{Grid, Registered};
use std::time::Instant;
use tiers::Tiers;
use tokio::runtime::Runtime;
use workload::Workload;

/// Calls of each candidate before anything is measured.
const WARM_UP: usize = 10;

/// Runs the study.
pub(crate) fn run(quick: bool) -> Result<Report> {
    let registered = Registered::read()?;
    let workloads = [Workload::digits(&registered)?, Workload::flood(&registered)?];
    let grids = [&registered.digits, &registered.flood];
    let places = workloads.iter().zip(grids);
    let places: Vec<_> = places
        .flat_map(|(workload, grid)| grid.cells(workload.name))
        .collect();
    let mut report = Report::new("pixie-live");
    report.register(rows::keys(&places));
    let folder = tempfile::tempdir()?;
    Runtime::new()?.block_on(async {
        let tiers = Tiers::start(&registered, &workloads, folder.path()).await?;
        for workload in &workloads {
            warm_up(&tiers, workload).await?;
        }
        // The first run of a batch is planned for its size, which takes longer.
        tiers.tenant_once().await?;
        let (used, started) = (tiers.processor_time()?, Instant::now());
        for (workload, grid) in workloads.iter().zip(grids) {
            of_workload(&mut report, &tiers, (workload, grid), quick).await?;
        }
        let cores = (tiers.processor_time()? - used) / started.elapsed().as_secs_f64();
        report.figure("cpu_demand", cores, "cores", Target::AtMost(1.6));
        Ok(report)
    })
}

/// Calls every candidate, as soon as the edge has heard of it.
async fn warm_up(tiers: &Tiers, workload: &Workload) -> Result<()> {
    let first = workload.examples().first().context("there are no examples")?;
    for candidate in &workload.candidates {
        tiers.find(candidate, first.body()).await?;
        for _ in 0..WARM_UP {
            tiers.call(candidate, first.body()).await?;
        }
    }
    Ok(())
}

/// Measures the profiles of a workflow, and runs every policy in every cell of it, block after block.
async fn of_workload(
    report: &mut Report,
    tiers: &Tiers,
    (workload, grid): (&Workload, &Grid),
    quick: bool,
) -> Result<()> {
    let blocks = grid.blocks(quick);
    let profiles = Profiles::measure(tiers, workload, blocks.profile).await?;
    let mut cells: Vec<Cell> = Vec::new();
    for place in grid.cells(workload.name) {
        match profiles.cell(place, blocks) {
            Ok(cell) => cells.push(cell),
            Err(error) => rows::void(report, place, &error),
        }
    }
    let mut runs: Vec<Run> = Vec::new();
    for seed in blocks.seeds.all() {
        for (place, name) in order(cells.len(), seed) {
            let cell = &cells[place];
            let Some(policy) = policy(name, &profiles, cell)? else {
                continue;
            };
            let mut batch = Batch::new(tiers, workload, policy, seed);
            batch.run(blocks).await?;
            let run = batch.outcome((cell, place), &profiles, (name, seed));
            let kept = if run.compliant { "kept" } else { "missed" };
            eprintln!(
                "{} {name} {seed}: {kept}, {:.1} ms, {:.1}",
                cell.name, run.p95_ms, run.cost
            );
            runs.push(run);
        }
    }
    rows::put(report, workload, &cells, &profiles, &runs);
    report.keep_raw(&format!("profiles.{}", workload.name), &profiles);
    report.keep_raw(&format!("cells.{}", workload.name), &cells);
    report.keep_raw(&format!("runs.{}", workload.name), &runs);
    Ok(())
}

/// Every policy in every cell, as the seed shuffles them.
fn order(cells: usize, seed: u64) -> Vec<(usize, &'static str)> {
    let all = (0..cells).flat_map(|cell| policies().map(move |policy| (cell, policy)));
    let mut all: Vec<(usize, &'static str)> = all.collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut all);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_runs_in_every_cell_once() {
        let mut all = order(4, 1);
        assert_ne!(all, order(4, 2));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4 * policies().count());
    }
}
