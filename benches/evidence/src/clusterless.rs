//! Study `clusterless`: workflows with deadlines on six clusters at the edge, six policies.
//!
//! - `deadline_met_share.{uniform,skewed,dynamic}`: jobs that ended by arrival + deadline over all that came, with our policy, `triage`;
//!   bound by the published figures of ClusterLess less some points.
//! - `deadline_met_share.CELL.POLICY`: the same with the others (context): plain Kubernetes, ClusterLess without offloading, with a
//!   fixed random target, with targets in turn, and as it was published.
//! - `published_order_seeds.CELL`: of the seeds, the share in which the policies come in the published order, ours in the place of
//!   ClusterLess.
//! - `kubernetes_off.CELL`: how far plain Kubernetes is from its published share on the test seeds, in points.
//! - `execution_multiplier.CELL`: what the recorded execution times were multiplied with, tuned on other seeds before.
//! - `feasible_share.CELL`: jobs whose longest way fits into their time if they had the fastest nodes for themselves (context).
//! - `utilisation.CELL`: work of all jobs over what all nodes could do in that time (context): near 1 nobody can be in time.
//! - `cold_share.CELL`, `away_share.CELL`: tasks that started cold, and that ran in another cluster (context).
//!
//! Everything that is drawn, except for what the policies do, is in `clusterless.toml` and `clusterless/scenario.rs`.

mod scenario;

use crate::placement::in_parallel;
use crate::placement::world::{Outcome, Result as Ran, Scope, run};
use anyhow::Result;
use karman_sched::place::{ClusterLess, ClusterLessSettings, Kubernetes, Offload, Place, Triage};
use karman_study::interval::{Estimate, bootstrap};
use karman_study::report::{Kind, Report, Target};
use scenario::{CELLS, Scenario};
use std::path::Path;

/// The bound of each cell, as `CELLS`.
const BOUNDS: [f64; 3] = [0.90, 0.80, 0.90];

const POLICIES: [&str; 6] = [
    "kubernetes",
    "intra",
    "fixed",
    "round-robin",
    "triage",
    "clusterless",
];
/// The place of ours.
const OURS: usize = 4;

/// The published order of a cell, the worst first, as places in `POLICIES`.
fn published_order(cell: &str) -> [usize; 5] {
    match cell {
        "uniform" => [0, 2, 1, 3, 4],
        _ => [0, 1, 2, 3, 4],
    }
}

fn policy(name: &str, seed: u64) -> (Box<dyn Place>, Scope) {
    let with = |offload| -> Box<dyn Place> {
        Box::new(ClusterLess::new(ClusterLessSettings {
            offload,
            ..ClusterLessSettings::default()
        }))
    };
    match name {
        "kubernetes" => (Box::new(Kubernetes::default()), Scope::Home),
        "intra" => (with(Offload::Never), Scope::Own),
        "fixed" => (with(Offload::Fixed { seed }), Scope::Own),
        "round-robin" => (with(Offload::RoundRobin), Scope::Own),
        "triage" => (Box::new(Triage::default()), Scope::Own),
        _ => (with(Offload::Best), Scope::Own),
    }
}

pub(crate) fn study(data: &Path, quick: bool) -> Result<()> {
    let scenario = Scenario::read(data)?;
    let seeds = if quick { 4 } else { scenario.seeds };
    let mut report = Report::new("clusterless");
    report.kind(Kind::Simulated);
    report.register(CELLS.iter().map(|cell| format!("deadline_met_share.{cell}")));
    for (cell, bound) in CELLS.into_iter().zip(BOUNDS) {
        let multiplier = calibrated(&scenario, cell);
        report.figure(
            &format!("execution_multiplier.{cell}"),
            multiplier,
            "",
            Target::Shown,
        );
        let ran = in_parallel((0..seeds).collect(), |&seed| {
            let trace = scenario.trace(cell, multiplier, seed);
            POLICIES.map(|name| {
                let (policy, scope) = policy(name, seed);
                run(&trace, policy, scope)
            })
        });
        let shares: Vec<[f64; POLICIES.len()]> = ran.iter().map(|row| row.each_ref().map(met)).collect();
        let ours: Vec<Ran> = ran
            .into_iter()
            .map(|mut row| std::mem::take(&mut row[OURS]))
            .collect();
        let feasible = (0..seeds).map(|seed| scenario.feasible(&scenario.trace(cell, multiplier, seed)));
        report.figure(
            &format!("feasible_share.{cell}"),
            mean(feasible),
            "share",
            Target::Shown,
        );
        let utilisation = scenario.utilisation(&scenario.trace(cell, multiplier, 0));
        report.figure(
            &format!("utilisation.{cell}"),
            utilisation,
            "share",
            Target::Shown,
        );
        rows(&mut report, cell, bound, &scenario, &shares, &ours);
    }
    report.write_and_print()
}

fn rows(
    report: &mut Report,
    cell: &str,
    bound: f64,
    scenario: &Scenario,
    shares: &[[f64; POLICIES.len()]],
    ours: &[Ran],
) {
    let mean = |policy: usize| bootstrap(shares, |rows| mean(rows.iter().map(|row| row[policy])));
    let key = format!("deadline_met_share.{cell}");
    report.estimate(&key, mean(OURS), "share", Target::AtLeast(bound));
    for (place, name) in POLICIES.iter().enumerate().filter(|(place, _)| *place != OURS) {
        report.estimate(&format!("{key}.{name}"), mean(place), "share", Target::Shown);
    }
    let order = published_order(cell);
    let ordered = |row: &&[f64; POLICIES.len()]| order.windows(2).all(|pair| row[pair[0]] <= row[pair[1]]);
    let share = shares.iter().filter(ordered).count() as f64 / shares.len() as f64;
    report.figure(
        &format!("published_order_seeds.{cell}"),
        share,
        "share",
        Target::AtLeast(28.0 / 30.0),
    );
    let off = 100.0 * (mean(0).value - scenario.published(cell));
    report.estimate(
        &format!("kubernetes_off.{cell}"),
        Estimate::exact(off),
        "points",
        Target::Shown,
    );
    let tasks = |ran: &Ran| ran.modes.iter().sum::<u64>() as f64;
    let cold = mean_of(ours, |ran| ran.modes[2] as f64 / tasks(ran));
    report.figure(&format!("cold_share.{cell}"), cold, "share", Target::Shown);
    let away = mean_of(ours, |ran| ran.away as f64 / tasks(ran));
    report.figure(&format!("away_share.{cell}"), away, "share", Target::Shown);
    report.keep_raw(&key, &shares);
    report.keep_raw(&format!("{key}.jobs"), &ours.first().map(|ran| &ran.outcomes));
}

/// The multiplier with which plain Kubernetes scores as published, by halving on the tuning seeds: later is never better for it.
fn calibrated(scenario: &Scenario, cell: &str) -> f64 {
    let share = |multiplier: f64| {
        let seeds = 1_000..1_000 + scenario.tuning_seeds;
        let shares = in_parallel(seeds.collect(), |&seed| {
            let (policy, scope) = policy("kubernetes", seed);
            met(&run(&scenario.trace(cell, multiplier, seed), policy, scope))
        });
        mean(shares.into_iter())
    };
    let (mut low, mut high) = (0.02f64, 2.0f64);
    for _ in 0..7 {
        let middle = (low * high).sqrt();
        match share(middle) > scenario.published(cell) {
            true => low = middle,
            false => high = middle,
        }
    }
    (low * high).sqrt()
}

fn met(ran: &Ran) -> f64 {
    ran.outcomes
        .iter()
        .filter(|outcome| Outcome::in_time(outcome))
        .count() as f64
        / ran.outcomes.len() as f64
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    sum / count
}

fn mean_of(ran: &[Ran], of: impl Fn(&Ran) -> f64) -> f64 {
    mean(ran.iter().map(of))
}
