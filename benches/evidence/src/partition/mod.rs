//! `partition-replay`: cuts that move with links and loads, replayed on recorded layer profiles under written-down traces.
//!
//! For each network ([`profiles::MODELS`]) and trace ([`Trace`]) and for latency and energy as objective, 30 seeds draw a
//! world: the rates of the edge-fog link, load and noise of the tiers, errors of the profiles. Rates are drawn around the least
//! at which it pays at all to cut the network ([`break_even`]), where it matters what one does. Through it go 480 requests under
//! our re-planner, the best static cut in hindsight, Neurosurgeon, an oracle, all-edge and all-cloud. Requests do not queue.
//! Edge and cloud hold all weights at first, the fog those that the plan for the nominal rates puts there; what else a
//! contender wants there is sent over the links, at half their rate, and billed; the static cut's is billed only. A request
//! that takes ten medians of that nominal cut counts as unfinished, at that time.
//!
//! | key | what | bound |
//! |---|---|---|
//! | `gain_captured.MODEL.TRACE.OBJECTIVE` | (S - O)/(S - oracle) where the oracle gains 5 % of S or more, unit `share`; elsewhere O/S, unit `O/S` | 0.8; 1.02 |
//! | `latency_vs_static.MODEL.TRACE` | sum of latencies, ours over the best static cut in hindsight; `published` says what a paper reports | shown |
//! | `modelled_energy_vs_static.MODEL.TRACE` | the same for energy of all tiers, with `energy` as the objective | shown |
//! | `latency_vs_oracle.MODEL.TRACE` | ours over one that knows the true speeds of the moment | 1.05; `outage` 1.25 |
//! | `latency_vs_neurosurgeon.MODEL.TRACE` | ours over Neurosurgeon's best pair, from its own measurements by the same estimator | 1.00 |
//!
//! `..worst_wattage` is the worst of 18 runs on the first ten seeds, each with one assumed wattage halved or doubled. Context: `latency_p99_vs_static`,
//! `latency_vs_all_edge`, `latency_vs_all_cloud`. Every energy is *derived*: assumed wattages times replayed times; no counter is read. Tuning was done
//! on other seeds ([`tune`]).

mod contender;
mod outcome;
mod play;
mod profiles;
mod setting;
mod tuning;
mod world;

use anyhow::{Context, Result, anyhow};
use karman_sched::partition::{LayerGraph, Objective, Tuning};
use karman_study::contest::{self, Draw};
use karman_study::interval::{bootstrap, mean};
use karman_study::report::{Kind, Report, Target};
use karman_study::trace::Trace;
use outcome::energy_mj;
use setting::{POWER, Setting, break_even};
use std::path::Path;
use world::World;

/// How many worlds are drawn for each cell, from this seed on. No number was chosen, and no rule changed, by what came of them.
const SEEDS: u64 = 30;
const FIRST_SEED: u64 = 20_000;
/// Seeds that the tuning was done on.
const TUNING_SEED: u64 = 10_000;
/// How many of them for each cell.
const TUNING_SEEDS: u64 = 4;
/// Seeds on which each wattage is halved and doubled as well.
const WATTAGE_SEEDS: u64 = 10;
/// The nominal plan is made for so many times the break-even rate: the middle of what is drawn.
const NOMINAL: f64 = 2.0;

/// Runs the study.
pub(crate) fn run(data: &Path, quick: bool) -> Result<()> {
    let seeds = if quick { 3 } else { SEEDS };
    let graphs = profiles::MODELS.map(|model| profiles::load(data, model));
    let mut report = Report::new("partition-replay");
    report.kind(Kind::Replayed);
    report.register(cells());
    for (model, graph) in profiles::MODELS.into_iter().zip(graphs) {
        let graph = graph?;
        report.figure(
            &format!("break_even.{model}"),
            break_even(&graph)?,
            "Mbit/s",
            Target::Shown,
        );
        for trace in Trace::ALL {
            let cell = format!("{model}.{}", trace.name());
            let worlds = play(&graph, trace, seeds).with_context(|| cell.clone())?;
            contest::put(&mut report, &cell, trace, &worlds);
            report.keep_raw(&cell, &worlds);
        }
    }
    report.write_and_print()
}

/// Worlds have nothing to do with each other: each core takes its share of the seeds.
fn play(graph: &LayerGraph, trace: Trace, seeds: u64) -> Result<Vec<Draw>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let share = |core: u64| {
        let seeds = (FIRST_SEED..FIRST_SEED + seeds).filter(move |seed| seed % cores == core);
        seeds
            .map(|seed| outcome::of(graph, trace, seed, Tuning::default()))
            .collect::<Result<Vec<Draw>>>()
    };
    let shares = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|core| scope.spawn(move || share(core))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join())
            .collect::<Vec<_>>()
    });
    let mut worlds = Vec::new();
    for share in shares {
        worlds.extend(share.map_err(|_| anyhow!("a thread of the study died"))??);
    }
    worlds.sort_by_key(|world| world.seed);
    Ok(worlds)
}

fn cells() -> Vec<String> {
    let cells = profiles::MODELS.into_iter().flat_map(|model| {
        Trace::ALL.into_iter().flat_map(move |trace| {
            let cell = format!("{model}.{}", trace.name());
            [
                format!("gain_captured.{cell}.latency"),
                format!("gain_captured.{cell}.energy"),
                format!("latency_vs_static.{cell}"),
                format!("modelled_energy_vs_static.{cell}"),
                format!("modelled_energy_vs_static.{cell}.worst_wattage"),
                format!("latency_vs_oracle.{cell}"),
                format!("latency_vs_neurosurgeon.{cell}"),
            ]
        })
    });
    cells.collect()
}

/// `partition-tuning`: how the numbers of [`Tuning`] were chosen. One of them at a time is changed, on seeds that the evaluation
/// does not use; `NAME.VALUE` is the mean over all cells of ours over the oracle, latency and energy together.
pub(crate) fn tune(data: &Path, quick: bool) -> Result<()> {
    let mut report = Report::new("partition-tuning");
    report.kind(Kind::Replayed);
    let mut cells = Vec::new();
    for model in profiles::MODELS {
        let graph = profiles::load(data, model)?;
        let break_even = break_even(&graph)?;
        for trace in Trace::ALL {
            for seed in 0..if quick { 1 } else { TUNING_SEEDS } {
                let world = World::draw(trace, break_even, graph.layers().len(), TUNING_SEED + seed);
                cells.push((graph.clone(), world, NOMINAL * break_even));
            }
        }
    }
    let mut oracles = Vec::new();
    for (name, tuning) in tuning::grid() {
        let mut ratios = Vec::new();
        for (index, (graph, world, nominal)) in cells.iter().enumerate() {
            let setting = Setting::without_fixed(graph, world, *nominal, tuning)?;
            if oracles.len() == index {
                let energy = energy_mj(&setting.oracle(Objective::ENERGY, POWER)?.totals, POWER);
                oracles.push((
                    setting.oracle(Objective::LATENCY, POWER)?.totals.latency_ms,
                    energy,
                ));
            }
            let (latency, energy) = oracles[index];
            ratios.push(setting.ours(Objective::LATENCY, POWER)?.totals.latency_ms / latency);
            ratios.push(energy_mj(&setting.ours(Objective::ENERGY, POWER)?.totals, POWER) / energy);
        }
        report.estimate(&name, bootstrap(&ratios, mean), "ratio", Target::Shown);
    }
    report.write_and_print()
}
