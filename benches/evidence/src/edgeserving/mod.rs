//! `edgeserving`: many models with early exits on one device, on the recorded profiles, simulated.
//!
//! | key | what |
//! |---|---|
//! | `violations_vs_best_comparator.CELL` | late, refused and unfinished requests, ours over the least among the comparators whose answers are on average at most half a point less accurate; void where that least is below 0.5 % or above 50 % |
//! | `violations_vs_best_comparator.geometric_mean` | over those cells |
//! | `on_time_accuracy.CELL` | the accuracy of our answers in time, summed, over all requests; the target is the best comparator's |
//!
//! Comparators: earliest deadline first with the deepest exit in time and with the final exit, deferred batching without and
//! with early exits (each tuned for each cell on other seeds), the longest queue. EdgeServing as published is shown beside
//! them. All see the same requests, the same exits (those no other exit beats) and plan with the 95th percentile. For each family of
//! cells, violations, accuracy and 95th percentile of every policy are rows as well; every cell's are in the raw file.
//!
//! Cells, seeds and perturbations are in `registered.toml`. The live part is the study `edgeserving-live`, which `cargo xtask bench
//! edgeserving` runs as well.

mod cells;
mod contenders;
mod judge;

use anyhow::Result;
use cells::{Cell, Network, Registered};
use judge::Played;
use karman_study::report::{Kind, Report};
use karman_study::serving::Judged;
use std::path::Path;

const QUICK: u64 = 4;

pub(crate) fn run(data: &Path, quick: bool) -> Result<()> {
    let registered = Registered::read()?;
    let cells = registered.cells(&Network::read_all(data)?)?;
    if registered.violations.is_empty() {
        return list_meaningful(&registered, &cells);
    }
    let mut report = Report::new("edgeserving");
    report.kind(Kind::Simulated);
    let accuracies = cells.iter().map(|cell| format!("on_time_accuracy.{}", cell.name));
    let violations = registered.violations.iter();
    let violations = violations.map(|cell| format!("violations_vs_best_comparator.{cell}"));
    report.register(accuracies.chain(violations));
    let seeds: Vec<u64> = (1..=if quick { QUICK } else { registered.seeds }).collect();
    let mut played = Vec::new();
    for cell in &cells {
        let cell = play(cell, &registered, &seeds)?;
        let judged = &cell.judged;
        report.keep_raw(&judged.cell, &judged.runs);
        judged.on_time_accuracy(&mut report);
        if registered.violations.contains(&judged.cell) {
            judged.violations(&mut report);
        }
        played.push(cell);
    }
    judge::geometric_mean(&played, &registered.violations, &mut report);
    judge::context(&played, &mut report);
    report.write_and_print()
}

/// Everybody in one cell, over these seeds.
fn play(cell: &Cell, registered: &Registered, seeds: &[u64]) -> Result<Played> {
    let runs = contenders::all(cell, registered)?
        .into_iter()
        .map(|of| Ok((of, contenders::runs(of, cell, seeds.iter().copied())?)));
    Ok(Played {
        family: cell.family.clone(),
        judged: Judged {
            cell: cell.name.clone(),
            runs: runs.collect::<Result<_>>()?,
        },
    })
}

/// Says which cells belong under `violations` in `registered.toml`: that is found on the tuning seeds, before the study runs.
fn list_meaningful(registered: &Registered, cells: &[Cell]) -> Result<()> {
    for cell in cells {
        let played = play(cell, registered, &registered.tuning_seeds)?;
        if played.judged.is_meaningful() {
            println!("    \"{}\",", cell.name);
        }
    }
    Ok(())
}
