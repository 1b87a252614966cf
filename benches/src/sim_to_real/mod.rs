//! `sim-to-real`: the same scenarios in the simulator and live, on five nodes that are processes of their own.
//!
//! Each node runs `digits-l` on tract, some times slower than the machine, one request after the other; so many times longer it takes as
//! its thread has computed in the least of its runs. This program sends requests as they are due, whatever has become of those before,
//! through the nodes' own sockets, and finds the node of each by the [`Router`](karman_sim::Router) of the simulator: at random, in turn, or where least is to be
//! done, of which it looks at its own count of open requests every so often. The parameters of the simulator come from separate runs before
//! each block: see `registered.toml`, which says everything that was decided before.
//!
//! | key | what | bound |
//! |---|---|---|
//! | `median_relative_error` | the median of abs(simulated - live) / live over throughput, p50, p95 and busy share, three loads and three routes, each a mean over blocks | 0.15 |
//! | `same_winner` | the share of loads under which the simulator has the same route with the lowest p95, of those under which the live intervals leave no doubt | 1.0 |
//! | `cpu_demand` | cores in use by all nodes and this program | 1.6 |
//! | `relative_error.ROUTE.lLOAD`, `median_relative_error.FIGURE` | the median over the four figures, over the nine cells | shown |
//! | `FIGURE.live.ROUTE.lLOAD`, `FIGURE.simulated.ROUTE.lLOAD` | what is compared | shown |
//! | `service_ms`, `sent_late_ms_p99` | how long a request occupies a node; how late this program sends | shown |
//!
//! A response is counted from when its request was due. A live node is busy for as long as it says that its model ran, and what its timers
//! take longer, which is one of the parameters that were measured before. Raw rows: of each live request its node, when it was due, sent
//! and answered, and how long the model ran; of each simulated one its node, when it came and when it ended; all in seconds.

mod alarm;
mod calibrate;
mod live;
mod outcome;
mod registered;
mod rows;
mod scenario;

use anyhow::Result;
use calibrate::Measured;
use futures::future::try_join_all;
use karman_study::pairs::{median, percentile};
use karman_study::report::{Report, Target};
use live::{Answered, Nodes};
use outcome::{Both, Figures};
use registered::{Cell, Registered, Window};
use scenario::Plan;
use serde::Serialize;
use std::time::Instant;
use tokio::runtime::Runtime;

/// Requests to each node before anything is measured.
const WARM_UP: usize = 10;

/// A cell of a block, as it was run.
#[derive(Serialize)]
struct Run {
    seed: u64,
    cell: String,
    measured: Measured,
    figures: Both,
    live: Vec<[f64; 5]>,
    simulated: Vec<[f64; 3]>,
}

/// Runs the study.
pub(crate) fn run(quick: bool) -> Result<Report> {
    let registered = Registered::read()?;
    let cells = registered.cells();
    let mut report = Report::new("sim-to-real");
    report.register(rows::keys(&cells));
    let folder = tempfile::tempdir()?;
    let passes = match quick {
        true => &registered.quick,
        false => &registered.evaluation,
    };
    Runtime::new()?.block_on(async {
        let nodes = Nodes::start(&registered, folder.path()).await?;
        try_join_all((0..nodes.count()).map(|node| warm_up(&nodes, node))).await?;
        let (used, started) = (nodes.processor_time()?, Instant::now());
        let (mut runs, mut late_ms) = (Vec::new(), Vec::new());
        for seed in passes.seeds.all() {
            runs.push(block(&nodes, &registered, &cells, (seed, passes.window()), &mut late_ms).await?);
        }
        let cores = (nodes.processor_time()? - used) / started.elapsed().as_secs_f64();
        let blocks: Vec<rows::Block> = runs
            .iter()
            .map(|block| block.iter().map(|run| run.figures).collect())
            .collect();
        rows::put(&mut report, &cells, &blocks);
        report.figure("cpu_demand", cores, "cores", Target::AtMost(1.6));
        let service = runs
            .iter()
            .flatten()
            .map(|run| run.measured.service_s * 1e3)
            .collect();
        report.figure("service_ms", median(service), "ms", Target::Shown);
        report.figure(
            "sent_late_ms_p99",
            percentile(&late_ms, 0.99),
            "ms",
            Target::Shown,
        );
        report.keep_raw("runs", &runs);
        Ok(report)
    })
}

/// The first run of a model is planned for its size, which takes longer.
async fn warm_up(nodes: &Nodes, node: usize) -> Result<()> {
    for _ in 0..WARM_UP {
        nodes.ask(node).await?;
    }
    Ok(())
}

/// Every cell once, in random order, with parameters that are measured before.
async fn block(
    nodes: &Nodes,
    registered: &Registered,
    cells: &[Cell],
    (seed, window): (u64, Window),
    late_ms: &mut Vec<f64>,
) -> Result<Vec<Run>> {
    let measured = Measured::now(nodes, registered, seed).await?;
    let mut order: Vec<usize> = (0..cells.len()).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut order);
    let mut runs = Vec::new();
    for place in order {
        let cell = cells[place];
        let plan = Plan::of(cell, registered, &measured, (seed, window));
        let answered = nodes.play(&plan).await?;
        let outcome = plan.scenario(registered, &measured)?.run()?;
        let figures = Both {
            live: Figures::live(&answered, &window, nodes.count(), measured.overshoot_s),
            simulated: Figures::simulated(&outcome, &window),
        };
        eprintln!("{} {seed}: {figures:?}", cell.name());
        late_ms.extend(answered.iter().map(|answer| (answer.sent_s - answer.due_s) * 1e3));
        let simulated = outcome.answers.iter().map(|answer| {
            let [came, ended] = [answer.came, answer.ended].map(|at| at.as_secs_f64());
            [f64::from(answer.node), came, ended]
        });
        let run = Run {
            seed,
            cell: cell.name(),
            measured,
            figures,
            live: answered.iter().map(Answered::row).collect(),
            simulated: simulated.collect(),
        };
        runs.push((place, run));
    }
    runs.sort_by_key(|(place, _)| *place);
    Ok(runs.into_iter().map(|(_, run)| run).collect())
}
