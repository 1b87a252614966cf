//! `partition`: cuts that move with their links, on three nodes that are processes of their own, over shaped links that follow traces.
//!
//! Edge, fog and cloud run a true MobileNetV2 (64 by 64, generated weights) on tract, 24, 6 and 1 times slower than the machine; so many
//! times longer each fragment takes as its thread has computed. The edge's one access link, to fog and cloud alike, follows a
//! [`Trace`]: rates drawn around the least at which it pays to cut, by the same draws as in `partition-replay`; fog and cloud are wired.
//! In each of 24 rounds the link takes its next rate, then every contender makes one request, in random order: all of them meet the
//! same link. Six rounds before are not counted. A block is one pass of one trace; contenders begin it with links that they measured
//! when they were open, and learn from their own requests only.
//!
//! | contender | what |
//! |---|---|
//! | ours | `karman model plan --apply` |
//! | Neurosurgeon | `--policy neurosurgeon`: its best pair, from its own measurements by the same estimator |
//! | oracle | ours, told the true rates of the links before each request |
//! | static cuts | `--cut`: all-edge, all-cloud, and the two that are best for latency and the two for energy by computing all cuts over the whole trace; the best of them *by what they took* is the static cut in hindsight |
//!
//! A request that takes ten times what the best cut at twice the break-even rate should take counts as unfinished, at that time. Each
//! contender has the fallback of every Karman node: who holds the activations passes over nodes that do not answer.
//!
//! | key | what | bound |
//! |---|---|---|
//! | `gain_captured.MODEL.TRACE.OBJECTIVE` | as in `partition-replay` | 0.8; 1.02 |
//! | `latency_vs_static.MODEL.TRACE`, `modelled_energy_vs_static.MODEL.TRACE` | sums over the trace, over the static cut | shown |
//! | `latency_vs_oracle.MODEL.TRACE` | | 1.05; `outage` 1.25 |
//! | `latency_vs_neurosurgeon.MODEL.TRACE` | | 1.00 |
//! | `cpu_demand` | cores in use by all nodes and this program | 1.6 |
//!
//! `..worst_wattage` is the worst of 18 accounts of the same requests, each with one assumed wattage halved or doubled; the cuts were
//! made by the assumed ones. Context: `latency_p99_vs_static`, `latency_vs_all_edge`, `latency_vs_all_cloud`. Every energy is *derived*:
//! assumed wattages times measured times; no counter is read.

mod contender;
mod continuum;
mod hindsight;
mod outcome;
mod rounds;
mod rows;

use anyhow::Result;
use contender::Contender;
use continuum::{Access, Continuum};
use hindsight::Ahead;
use karman_study::report::{Report, Target};
use karman_study::trace::Trace;
use outcome::Outcome;
use rounds::Rounds;
use tokio::runtime::Runtime;

/// The network, in the names of cells.
const MODEL: &str = "mobilenetv2";
const BLOCKS: u64 = 30;
const FIRST_SEED: u64 = 30_000;
/// Rounds that are counted, and those before that are not.
const ROUNDS: usize = 24;
const WARM_UP: usize = 6;
/// Steps of a trace for each round: a second.
const STEPS: usize = 10;

/// Runs the study.
pub(crate) fn run(quick: bool) -> Result<Report> {
    let mut report = Report::new("partition");
    report.register(rows::cells());
    let runtime = Runtime::new()?;
    let folder = tempfile::tempdir()?;
    runtime.block_on(async {
        let continuum = Continuum::start(folder.path()).await?;
        let ahead = Ahead::new(
            continuum.problem(Contender::LATENCY).await?,
            continuum.problem(Contender::ENERGY).await?,
        )?;
        report.figure(
            &format!("break_even.{MODEL}"),
            ahead.break_even(),
            "Mbit/s",
            Target::Shown,
        );
        report.figure(
            &format!("timeout_ms.{MODEL}"),
            ahead.timeout_ms(),
            "ms",
            Target::Shown,
        );
        let (used, started) = (continuum.processor_time()?, std::time::Instant::now());
        let (blocks, rounds) = if quick { (2, ROUNDS / 2) } else { (BLOCKS, ROUNDS) };
        for trace in Trace::ALL {
            let mut outcomes = Vec::new();
            for seed in FIRST_SEED..FIRST_SEED + blocks {
                outcomes.push(block(&continuum, &ahead, trace, seed, rounds).await?);
            }
            rows::put(
                &mut report,
                &format!("{MODEL}.{}", trace.name()),
                trace,
                &outcomes,
            );
        }
        let cores = (continuum.processor_time()? - used) / started.elapsed().as_secs_f64();
        report.figure("cpu_demand", cores, "cores", Target::AtMost(1.6));
        Ok(report)
    })
}

/// One pass of a trace.
async fn block(
    continuum: &Continuum,
    ahead: &Ahead,
    trace: Trace,
    seed: u64,
    rounds: usize,
) -> Result<Outcome> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let rates = trace.rates(ahead.break_even(), rounds * STEPS, &mut rng);
    let rates: Vec<Access> = rates.into_iter().step_by(STEPS).map(Access::of).collect();
    let contenders = ahead.contenders(&rates);
    continuum.set(Access::Open).await?;
    for contender in &contenders {
        continuum.apply(contender).await?;
    }
    let mut pass = Rounds::new(continuum, ahead, &contenders, rng);
    let first = *rates
        .iter()
        .find(|rate| **rate != Access::Out)
        .unwrap_or(&Access::Open);
    pass.play(&[first; WARM_UP]).await?;
    pass.forget();
    pass.play(&rates).await?;
    let outcome = Outcome::of(seed, &contenders, &pass.taken());
    eprintln!(
        "{} {seed}: latency {:?}, energy {:?}",
        trace.name(),
        outcome.latency,
        outcome.energy
    );
    Ok(outcome)
}
