//! What one decision takes, on this machine, warm.
//!
//! | key | what |
//! |---|---|
//! | `select_us` | p99 of one choice by `pixie` among 11 candidates, in microseconds |
//! | `select_report_us`, `select_pair_us` | the same of taking in what became of a request, which is where plans are made; and of both together |
//! | `select_us.PLUGIN` and the like | the same of the policies that `plugins/prices` (Rust) and `plugins/throttle` (Python) bring |
//! | `select_restart_us.PLUGIN` | the median of those of their choices before which a new instance takes over, one in 200 |
//! | `route_us.POLICY` | p99 of putting ten providers of a call in order, by each policy, in microseconds |
//! | `sim_events_per_s` | events that the simulator handles each second |
//!
//! Placement puts its rows beside these (`placement_cost`): `place_10_tasks_1000_nodes_ms`; so do plugins that route and that place
//! (`plugin_cost`).

use crate::pixie::eleven_candidates;
use crate::{events_per_second, placement_cost};
#[cfg(feature = "plugins")]
use crate::{plugin_cost, plugins};
use anyhow::Result;
use karman_sched::call::{Route, Taker};
use karman_sched::log::CHECKPOINT_EVERY;
use karman_sched::select::{Ask, Call, Pixie, PixieSettings, Selector, Served, Task};
use karman_study::interval::bootstrap;
use karman_study::pairs::{median, percentile};
use karman_study::report::{Report, Target};
use karman_types::NodeId;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

/// Blocks of requests; the p99 is taken in each.
const BLOCKS: usize = 30;
const REQUESTS: usize = 20_000;
/// The rows of each policy.
const KEYS: [&str; 3] = ["select_us", "select_report_us", "select_pair_us"];
#[cfg(feature = "plugins")]
const RESTART: &str = "select_restart_us";

/// Runs the study.
pub(crate) fn run(data: &Path, quick: bool) -> Result<()> {
    let mut report = Report::new("decision-cost");
    let own = ["select_us".into(), "sim_events_per_s".into()];
    let own = own.into_iter().chain(Route::ALL.map(route_key));
    report.register(own.chain(placement_cost::keys()));
    select(&mut report, data, quick)?;
    #[cfg(feature = "plugins")]
    select_plugins(&mut report, data, quick)?;
    routes(&mut report, quick);
    placement_cost::rows(&mut report, quick);
    #[cfg(feature = "plugins")]
    plugin_cost::rows(&mut report, quick)?;
    events_per_second::row(&mut report, quick)?;
    report.write_and_print()
}

fn select(report: &mut Report, data: &Path, quick: bool) -> Result<()> {
    let (tasks, slo) = eleven_candidates(data)?;
    let size = if quick { (3, REQUESTS) } else { (BLOCKS, REQUESTS) };
    let targets = [Target::AtMost(5.0), Target::Shown, Target::Shown];
    let pixie = || Ok(Pixie::new(tasks.clone(), slo.clone(), PixieSettings::default())?);
    select_rows(report, ("", size, targets), &tasks, pixie).map(drop)
}

/// The same of policies that plugins bring.
#[cfg(feature = "plugins")]
fn select_plugins(report: &mut Report, data: &Path, quick: bool) -> Result<()> {
    let engine = plugins::engine()?;
    let (tasks, slo) = eleven_candidates(data)?;
    for (name, requests) in [("prices", REQUESTS), ("throttle", REQUESTS / 10)] {
        let Some(plugin) = plugins::load(&engine, name)? else {
            for key in KEYS.into_iter().chain([RESTART]) {
                let why = format!("`cargo xtask guests {name}` has not built it");
                report.void(&format!("{key}.{name}"), why);
            }
            continue;
        };
        let size = (if quick { 3 } else { BLOCKS }, requests);
        let of = format!(".{name}");
        let restarts = select_rows(report, (&of, size, [Target::Shown; 3]), &tasks, || {
            plugin.over(&tasks, &slo, &Default::default())
        })?;
        row(report, &format!("{RESTART}{of}"), &restarts, Target::Shown);
    }
    Ok(())
}

/// Three rows of one policy: blocks of requests, the p99 of each. Gives the median of each block's choices at a checkpoint.
fn select_rows<S: Selector>(
    report: &mut Report,
    (of, (blocks, requests), targets): (&str, (usize, usize), [Target; 3]),
    tasks: &[Task],
    policy: impl Fn() -> Result<S>,
) -> Result<Vec<f64>> {
    let (mut p99, mut restarts): ([Vec<f64>; 3], Vec<f64>) = Default::default();
    for block in 0..=blocks {
        let times = select_block(&mut policy()?, tasks, (block as u64, requests))?;
        // The first one warms up.
        if block > 0 {
            let every = CHECKPOINT_EVERY as usize;
            restarts.push(median(times[0].iter().step_by(every).skip(1).copied().collect()));
            for (p99, times) in p99.iter_mut().zip(times) {
                p99.push(percentile(&times, 0.99));
            }
        }
    }
    for ((key, values), target) in KEYS.into_iter().zip(p99).zip(targets) {
        row(report, &format!("{key}{of}"), &values, target);
    }
    Ok(restarts)
}

fn route_key(route: Route) -> String {
    format!("route_us.{}", route.name())
}

/// Ten providers of a call in order, by each policy: blocks of calls, the p99 of each.
fn routes(report: &mut Report, quick: bool) {
    let views = providers();
    let blocks = if quick { 3 } else { BLOCKS };
    for route in Route::ALL {
        let timed = |call: usize| {
            let view = black_box(&views[call % views.len()]);
            let start = Instant::now();
            black_box(route.order(view));
            start.elapsed().as_secs_f64() * 1e6
        };
        let block = |_| percentile(&(0..REQUESTS).map(timed).collect::<Vec<f64>>(), 0.99);
        // The first one warms up.
        let p99: Vec<f64> = (0..=blocks).map(block).skip(1).collect();
        row(report, &route_key(route), &p99, Target::AtMost(5.0));
    }
}

/// Views of ten providers.
pub(crate) fn providers() -> Vec<Vec<Taker>> {
    let mut rng = fastrand::Rng::with_seed(10);
    let mut view = || -> Vec<Taker> { (0..10).map(|name| taker(&mut rng, name)).collect() };
    (0..64).map(|_| view()).collect()
}

fn taker(rng: &mut fastrand::Rng, name: u8) -> Taker {
    let mut millis = |most| Duration::from_millis(rng.u64(0..most));
    Taker {
        round_trip: Some(millis(80)),
        takes: Some(millis(400)),
        busy: rng.u32(0..9),
        ..Taker::new(NodeId::of_key(&[name]), 4)
    }
}

fn row(report: &mut Report, key: &str, values: &[f64], target: Target) {
    report.keep_raw(key, &values);
    let estimate = bootstrap(values, |values| median(values.to_vec()));
    report.estimate(key, estimate, "us", target);
}

/// How long each choice, each report and both together took, in microseconds.
fn select_block(
    policy: &mut dyn Selector,
    tasks: &[Task],
    (seed, requests): (u64, usize),
) -> Result<[Vec<f64>; 3]> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut times: [Vec<f64>; 3] = Default::default();
    for _ in 0..requests {
        let start = Instant::now();
        let decision = black_box(policy.choose(black_box(&Ask::default()))?);
        let chosen = start.elapsed();
        let profile = &tasks[0].candidates[decision.chosen].profile;
        let latency = if rng.f64() < 0.05 {
            profile.p95 * 2
        } else {
            profile.p50
        };
        let call = Call {
            task: 0,
            candidate: decision.chosen,
            latency,
            cost: profile.cost,
            energy: None,
            right: Some(true),
        };
        let served = Served {
            now: Duration::ZERO,
            queue: 0,
            latency,
            calls: &[call],
        };
        let start = Instant::now();
        policy.report(black_box(&served))?;
        let reported = start.elapsed();
        for (times, time) in times.iter_mut().zip([chosen, reported, chosen + reported]) {
            times.push(time.as_secs_f64() * 1e6);
        }
    }
    Ok(times)
}
