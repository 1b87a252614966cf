//! `pixie-live`: the live part of `pixie`. The three digit models on two emulated tiers, a load step, real latencies.
//!
//! Edge and cloud are processes of their own with a shaped link between them, and run models on tract, some times slower than the
//! machine, one after the other. Every request goes to the edge's node, which runs the model itself or calls the cloud's. The policies are
//! those of the replayed study, each fresh for every run, with profiles that were measured before; they hear how long each call took
//! and whether its answer was right. From a third of the requests on, another tenant loads the cloud. Cells, prices, seeds and hypotheses
//! are in `registered.toml`.
//!
//! | key | what | bound |
//! |---|---|---|
//! | `ours_compliant_share.live.CELL` | runs of `pixie` that keep cost, p95 and least accuracy, over all runs | 0.95 |
//! | `accuracy_gap_to_oracle_points.live.CELL` | accuracy of the linear program, which knows the profiles before and after the step, less ours, in points | 1.0 |
//! | `cpu_demand` | cores in use by both nodes and this program | 1.6 |
//! | `compliant_share.live.POLICY`, `accuracy.live.POLICY`, `right.live.POLICY`, `cost_of_budget.live.POLICY`, `p95_of_limit.live.POLICY`, `switches.live.POLICY` | means over cells and runs, for every policy; `fixed` is the best single candidate in hindsight of the step, in the cells where one keeps the limits; `right` is what was answered | shown |
//! | `p95_ms.live.CANDIDATE`, `p95_ms.live_after_step.CANDIDATE` | the profiles | shown |
//!
//! Accuracy is that of the chosen models on the digits held back, as their training found it; which answers were right is feedback. A run is
//! one order of digits; in a block every policy runs in every cell once, in random order. Raw rows hold every request.

mod batch;
mod policies;
mod profiles;
mod registered;
mod rows;
mod tiers;

use crate::digits::held_out;
use anyhow::Result;
use batch::{Batch, Run};
use karman_study::report::{Report, Target};
use policies::{policies, policy};
use profiles::{Cell, Profiles};
use registered::Registered;
use std::time::Instant;
use tiers::Tiers;
use tokio::runtime::Runtime;

/// Calls of each candidate before anything is measured.
const WARM_UP: usize = 10;

/// Runs the study.
pub(crate) fn run(quick: bool) -> Result<Report> {
    let registered = Registered::read()?;
    let blocks = match quick {
        true => registered.quick,
        false => registered.evaluation,
    };
    let places = registered.cells();
    let digits = held_out()?;
    let mut report = Report::new("pixie-live");
    report.register(rows::keys(&places));
    let folder = tempfile::tempdir()?;
    Runtime::new()?.block_on(async {
        let tiers = Tiers::start(&registered, folder.path()).await?;
        for candidate in 0..tiers.candidates.len() {
            tiers.find(candidate, &digits[0].request).await?;
            for _ in 0..WARM_UP {
                tiers.call(candidate, &digits[0].request).await?;
            }
        }
        // The first run of a batch is planned for its size, which takes longer.
        tiers.tenant_once().await?;
        let (used, started) = (tiers.processor_time()?, Instant::now());
        let profiles = Profiles::measure(&tiers, &digits, blocks.profile).await?;
        let cells = places.iter().map(|place| profiles.cell(*place, blocks));
        let cells: Vec<Cell> = cells.collect::<Result<_>>()?;
        let mut runs: Vec<Run> = Vec::new();
        for seed in blocks.seeds.all() {
            for (place, name) in order(cells.len(), seed) {
                let cell = &cells[place];
                let Some(policy) = policy(name, &profiles.before, cell)? else {
                    continue;
                };
                let mut batch = Batch::new(&tiers, &digits, policy, seed);
                batch.run(blocks).await?;
                let run = batch.outcome((cell, place), &profiles, (name, seed));
                eprintln!(
                    "{} {name} {seed}: {:.1} ms, {:.1}",
                    cell.name, run.p95_ms, run.cost
                );
                runs.push(run);
            }
        }
        let cores = (tiers.processor_time()? - used) / started.elapsed().as_secs_f64();
        rows::put(&mut report, &cells, &profiles, &runs);
        report.figure("cpu_demand", cores, "cores", Target::AtMost(1.6));
        report.keep_raw("profiles", &profiles);
        report.keep_raw("cells", &cells);
        report.keep_raw("runs", &runs);
        Ok(report)
    })
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
