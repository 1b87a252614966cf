//! `partition`: cuts that move with their links, on three nodes that are processes of their own, over shaped links that follow traces.
//!
//! Edge, fog and cloud run a true MobileNetV2 (64 by 64, generated weights) on tract, 24, 6 and 1 times slower than the machine; so many
//! times longer each fragment takes as its thread has computed in the least of its runs: what disturbs one of them is not multiplied.
//! The edge's one access link, to fog and cloud alike, follows a [`Trace`]: rates drawn around the least at which it pays to cut, by the
//! same draws as in `partition-replay`; fog and cloud are wired.
//! In each of 24 rounds the link takes its next rate, then every contender makes one request, in random order: all of them meet the
//! same link. Six rounds before are not counted. A block is one pass of one trace; contenders begin it with links that they measured
//! when they were open, and learn from their own requests only. Nine blocks are played at a time, each on three nodes of its own: nearly
//! all the time that a request takes is waited for, and what all of them compute together is told.
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
//! assumed wattages times measured times; no counter is read. What somebody was overtaken in is billed, too: the wait for an answer that
//! did not come as sending, and what was begun at home for nothing until the answer came.

mod contender;
mod continuum;
mod hindsight;
mod outcome;
mod rounds;
mod rows;

use anyhow::Result;
use contender::Contender;
use continuum::{Access, Continuum};
use futures::future::try_join_all;
use hindsight::Ahead;
use karman_study::machine::processor_time_of;
use karman_study::report::{Report, Target};
use karman_study::trace::Trace;
use outcome::Outcome;
use rounds::Rounds;
use std::cell::RefCell;
use std::time::Instant;
use tokio::runtime::Runtime;

/// The network, in the names of cells.
const MODEL: &str = "mobilenetv2";
/// Twice what intervals need at least: traces of one kind differ a lot.
const BLOCKS: u64 = 60;
/// Blocks that are played at a time.
const LANES: usize = 9;
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
        let mut lanes = Vec::new();
        for lane in 0..LANES {
            lanes.push(Continuum::start(&folder.path().join(lane.to_string())).await?);
        }
        let ahead = Ahead::new(
            lanes[0].problem(Contender::LATENCY).await?,
            lanes[0].problem(Contender::ENERGY).await?,
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
        let (blocks, rounds) = if quick { (2, ROUNDS / 2) } else { (BLOCKS, ROUNDS) };
        // Before any request, so that nothing computes beside them.
        let seeds = FIRST_SEED..FIRST_SEED + blocks;
        let drawn: Vec<Block> = seeds
            .flat_map(|seed| Trace::ALL.map(|trace| (trace, seed)))
            .map(|(trace, seed)| Block::drawn(&ahead, trace, seed, rounds))
            .collect();
        let (used, started) = (processor_time(&lanes)?, Instant::now());
        let played = play(&lanes, &ahead, drawn).await?;
        let cores = (processor_time(&lanes)? - used) / started.elapsed().as_secs_f64();
        for trace in Trace::ALL {
            let of_trace = played.iter().filter(|(of, _)| *of == trace);
            let mut outcomes: Vec<Outcome> = of_trace.map(|(_, outcome)| outcome.clone()).collect();
            outcomes.sort_by_key(|outcome| outcome.draw.seed);
            let cell = format!("{MODEL}.{}", trace.name());
            rows::put(&mut report, &cell, trace, &outcomes);
        }
        report.figure("cpu_demand", cores, "cores", Target::AtMost(1.6));
        Ok(report)
    })
}

/// Has each lane play the next block as soon as it is free.
async fn play(lanes: &[Continuum], ahead: &Ahead, blocks: Vec<Block>) -> Result<Vec<(Trace, Outcome)>> {
    let left = RefCell::new(blocks.into_iter());
    let next = || left.borrow_mut().next();
    let played = lanes.iter().map(async |continuum| {
        let mut outcomes = Vec::new();
        while let Some(block) = next() {
            outcomes.push((block.trace, block.play(continuum, ahead).await?));
        }
        anyhow::Ok(outcomes)
    });
    Ok(try_join_all(played).await?.concat())
}

/// Seconds that all nodes and this program have computed.
fn processor_time(lanes: &[Continuum]) -> Result<f64> {
    let nodes = lanes.iter().map(Continuum::processor_time);
    Ok(processor_time_of(std::process::id())? + nodes.sum::<Result<f64>>()?)
}

/// One pass of a trace.
struct Block {
    trace: Trace,
    seed: u64,
    rates: Vec<Access>,
    contenders: Vec<Contender>,
    rng: fastrand::Rng,
}

impl Block {
    fn drawn(ahead: &Ahead, trace: Trace, seed: u64, rounds: usize) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let rates = trace.rates(ahead.break_even(), rounds * STEPS, &mut rng);
        let rates: Vec<Access> = rates.into_iter().step_by(STEPS).map(Access::of).collect();
        Self {
            trace,
            seed,
            contenders: ahead.contenders(&rates),
            rates,
            rng,
        }
    }

    async fn play(self, continuum: &Continuum, ahead: &Ahead) -> Result<Outcome> {
        let (rates, contenders) = (self.rates, self.contenders);
        continuum.set(Access::Open).await?;
        for contender in &contenders {
            continuum.apply(contender).await?;
        }
        let mut pass = Rounds::new(continuum, ahead, &contenders, self.rng);
        let first = *rates
            .iter()
            .find(|rate| **rate != Access::Out)
            .unwrap_or(&Access::Open);
        pass.play(&[first; WARM_UP]).await?;
        pass.forget();
        pass.play(&rates).await?;
        let outcome = Outcome::of(self.seed, &contenders, &pass.taken());
        eprintln!(
            "{} {}: latency {:?}, energy {:?}",
            self.trace.name(),
            self.seed,
            outcome.draw.latency,
            outcome.draw.energy
        );
        Ok(outcome)
    }
}
