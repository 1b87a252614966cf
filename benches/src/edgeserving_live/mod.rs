//! `edgeserving-live`: the live part of `edgeserving`. Three models with early exits share a core of this processor.
//!
//! Three instances of `digits-l`, each with its own queue. This thread is the device: requests come in real time by the arrivals of the
//! simulator, [`Device`](karman_sched::serve::Device) asks the policy as it does there, and what it says is run on tract, up to the exit
//! that it says: for each exit there is a model without what lies behind. Policies know the 95th percentile of each exit's time with each
//! size of batch, measured before. Cells, margins, seeds and hypotheses are in `registered.toml`.
//!
//! | key | what | bound |
//! |---|---|---|
//! | `on_time_accuracy.live.CELL` | the accuracy of our answers in time, summed, over all requests | the best comparator's |
//! | `violations_vs_best_comparator.live.CELL` | late, refused and unfinished requests, ours over the least among the comparators that are at most half a point less accurate; void where that least is below 0.5 % or above 50 % | 1.0 |
//! | `cpu_demand` | cores in use by this program | 1.6 |
//! | `violations.live.CELL.POLICY`, `mean_accuracy...`, `on_time_accuracy...`, `p95_ms...` | of every contender | shown |
//! | `exit_ms.DEPTH` | the 95th percentile of one request up to that exit | shown |
//!
//! Accuracy is that of an exit on the digits held back, as its training found it: the accuracy that was paid. In a block everybody
//! meets the same requests, in random order. Raw rows hold every answer: its instance, when its request came, when it was there, its exit.

mod device;
mod network;
mod registered;
mod rows;

use anyhow::Result;
use device::{Bench, Row};
use karman_study::machine::processor_time_of;
use karman_study::report::{Report, Target};
use karman_study::serving::{Contender, Judged, Run};
use network::Network;
use registered::Registered;
use serde::Serialize;
use std::time::Instant;

/// One run, as it is kept.
#[derive(Serialize)]
struct Kept {
    cell: String,
    contender: Contender,
    seed: u64,
    run: Run,
    answers: Vec<Row>,
}

/// Runs the study.
pub(crate) fn run(quick: bool) -> Result<Report> {
    let registered = Registered::read()?;
    let blocks = match quick {
        true => &registered.quick,
        false => &registered.evaluation,
    };
    let cells = registered.cells();
    let mut report = Report::new("edgeserving-live");
    report.register(rows::keys(&cells));
    let network = Network::measure(&registered, blocks.profile)?;
    for exit in network.exits() {
        let ms = exit
            .times
            .first()
            .map_or(f64::NAN, |(_, time)| time.as_secs_f64() * 1e3);
        report.figure(&format!("exit_ms.{}", exit.depth), ms, "ms", Target::Shown);
    }
    let (used, started) = (processor_time_of(std::process::id())?, Instant::now());
    let mut kept = Vec::new();
    for cell in cells {
        let bench = Bench::new(&network, &registered, blocks, cell)?;
        let on_tuning_seeds = |contender| {
            let seeds = blocks.tuning_seeds.iter();
            seeds.map(|seed| Ok(bench.play(contender, *seed)?.0)).collect()
        };
        let mut judged = Judged {
            cell: cell.name(),
            runs: Contender::tuned(&registered.margins, on_tuning_seeds)?
                .map(|contender| (contender, Vec::new()))
                .into(),
        };
        for seed in blocks.seeds.all() {
            let mut order: Vec<&mut (Contender, Vec<Run>)> = judged.runs.iter_mut().collect();
            fastrand::Rng::with_seed(seed).shuffle(&mut order);
            for (contender, runs) in order {
                let (run, answers) = bench.play(*contender, seed)?;
                eprintln!("{} {} {seed}: {run:?}", cell.name(), contender.name());
                runs.push(run);
                kept.push(Kept {
                    cell: cell.name(),
                    contender: *contender,
                    seed,
                    run,
                    answers,
                });
            }
        }
        rows::put(&mut report, &judged);
    }
    let cores = (processor_time_of(std::process::id())? - used) / started.elapsed().as_secs_f64();
    report.figure("cpu_demand", cores, "cores", Target::AtMost(1.6));
    report.keep_raw("exits", &network.exits());
    report.keep_raw("runs", &kept);
    Ok(report)
}
