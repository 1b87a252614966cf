//! What one decision costs that a plugin makes in an instance of its own, for the study `decision-cost`.
//!
//! - `route_us.rendezvous`: beside those of the built-in orders, ten providers.
//! - `place_10_tasks_ms.{10,100}.min-min` and `place_10_tasks_1000_nodes_ms.min-min`: beside those of the built-in policies.
//!
//! All are context: what counts for a plugin is that its caller can wait so long.

use crate::decision_cost::providers;
use crate::placement_cost::{fleet, job, timed};
use crate::plugins;
use anyhow::{Result, ensure};
use karman_engine::policy::Policies;
use karman_engine::{Engine, Plugin};
use karman_sched::call::Picked;
use karman_sched::place::{Brought, Fleet, Job, Place};
use karman_sched::plugin::{ByName, Guests};
use karman_study::interval::{Estimate, bootstrap};
use karman_study::pairs::percentile;
use karman_study::report::{Report, Target};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Measures both plugins and puts their rows.
pub(crate) fn rows(report: &mut Report, quick: bool) -> Result<()> {
    let engine = plugins::engine()?;
    let repetitions = if quick { 60 } else { 400 };
    route(report, &engine, repetitions * 10)?;
    place(report, &engine, repetitions)
}

fn route(report: &mut Report, engine: &Engine, repetitions: usize) -> Result<()> {
    let Some(plugin) = plugins::built(engine, "rendezvous")? else {
        report.void("route_us.rendezvous", missing("rendezvous"));
        return Ok(());
    };
    let mut policy = ByName::new("rendezvous");
    policy.set_plugin(Some((plugin.route_policy()?, guests(plugin))));
    let views = providers();
    let mut times = Vec::with_capacity(repetitions);
    for turn in 0..repetitions {
        let view = black_box(views[turn % views.len()].clone());
        let start = Instant::now();
        let picked: Picked = black_box(policy.decide(Duration::ZERO, ("echo".into(), view)));
        times.push(start.elapsed().as_secs_f64() * 1e6);
        ensure!(picked.failed().is_none(), "rendezvous: {:?}", picked.failed());
    }
    row(report, "route_us.rendezvous", &times, "us");
    Ok(())
}

fn place(report: &mut Report, engine: &Engine, repetitions: usize) -> Result<()> {
    let plugin = plugins::built(engine, "min-min")?;
    for (nodes, key) in [
        (10, "place_10_tasks_ms.10.min-min"),
        (100, "place_10_tasks_ms.100.min-min"),
        (1_000, "place_10_tasks_1000_nodes_ms.min-min"),
    ] {
        let Some(plugin) = plugin.clone() else {
            report.void(key, missing("min-min"));
            continue;
        };
        let mut policy = Brought::new(plugin.place_policy()?, guests(plugin));
        let states: Vec<Fleet> = (0..8).map(|seed| fleet(nodes, seed)).collect();
        let jobs: Vec<Job> = (0..10).map(|id| job(id, nodes)).collect();
        let times = timed(repetitions, |turn| {
            let state = &states[turn % states.len()];
            black_box(policy.place(100.0 + turn as f64, black_box(&jobs), state));
        });
        let failures = policy.failures();
        ensure!(failures.is_empty(), "min-min: {:?}", failures[0]);
        row(report, key, &times, "ms");
    }
    Ok(())
}

fn guests(plugin: Arc<Plugin>) -> Arc<dyn Guests> {
    Arc::new([plugin].into_iter().collect::<Policies>())
}

fn missing(name: &str) -> String {
    format!("`cargo xtask guests {name}` has not built it")
}

fn row(report: &mut Report, key: &str, times: &[f64], unit: &'static str) {
    let p99: Estimate = bootstrap(times, |times| percentile(times, 0.99));
    report.estimate(key, p99, unit, Target::Shown);
    report.keep_raw(key, &times);
}
