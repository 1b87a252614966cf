//! The rows of policies that plugins bring.

use super::cells::Grid;
use super::profiles::Recorded;
use super::replay::{Draws, Perturbation, replay};
use super::{Judged, Row, of_policy};
use crate::plugins::{engine, load};
use anyhow::Result;
use karman_sched::plugin::During;
use karman_sched::select::FailureCounts;
use karman_study::report::{Report, Target};
use std::collections::BTreeMap;

/// The plugins, and how many seeds each is run with: Python takes some hundred times as long.
const PLUGINS: [(&str, usize); 2] = [("prices", usize::MAX), ("throttle", 10)];

pub(super) fn rows(
    report: &mut Report,
    grid: &Grid,
    profiles: &BTreeMap<String, Recorded>,
    cells: &[Judged],
) -> Result<()> {
    let engine = engine()?;
    for (name, seeds) in PLUGINS {
        let Some(plugin) = load(&engine, name)? else {
            let why = format!("target/guests/{name}.wasm is not there: `cargo xtask guests {name}`");
            report.void(&format!("compliant_share.{name}"), why);
            continue;
        };
        let (mut rows, failures) = (Vec::new(), FailureCounts::default());
        for seed in grid.seeds().take(seeds) {
            let draws = Draws::new(seed);
            for (cell, of) in grid.cells.iter().enumerate() {
                let (workload, slo) = (of.workload(profiles), of.slo(1.0));
                let mut policy = plugin.over(&workload.tasks, &slo, &failures)?;
                let run = replay(&workload, &slo, &draws, Perturbation::default(), &mut policy)?;
                rows.push(Row {
                    cell,
                    policy: name,
                    perturbation: String::new(),
                    seed,
                    run,
                });
            }
        }
        of_policy(report, cells, name, &rows.iter().collect::<Vec<_>>());
        let failures = failures.borrow();
        let not_decided = failures
            .iter()
            .filter(|((during, _), _)| *during == During::Choose);
        let not_decided: u64 = not_decided.map(|(_, times)| times).sum();
        report.figure(
            &format!("fell_back.{name}"),
            not_decided as f64,
            "",
            Target::Shown,
        );
        let failures: BTreeMap<_, _> = failures
            .iter()
            .map(|((_, words), times)| (words, times))
            .collect();
        report.keep_raw(&format!("failures.{name}"), &failures);
        report.keep_raw(&format!("runs.{name}"), &rows);
    }
    Ok(())
}
