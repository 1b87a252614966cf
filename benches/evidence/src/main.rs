//! Studies of decisions: `cargo xtask bench NAME` runs one, writes `target/bench/NAME.json` and prints its rows.
//!
//! Each study registers its cells, seeds and perturbations before it runs; a missing or repeated cell fails the study.
#![forbid(unsafe_code)]

mod partition;
mod planning;
mod inside_layer;
mod pixie;
mod edgeserving;
mod events_per_second;

use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Runs one study.
#[derive(Parser)]
struct Args {
    /// Which one.
    study: Study,
    /// Fewer seeds, to see that it runs; its figures mean little.
    #[arg(long)]
    quick: bool,
    /// Where the recorded profiles and traces are.
    #[arg(long, default_value = "../shared/data")]
    data: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Study {
    Planning,
    PartitionReplay,
    PartitionTuning,
    InsideLayer,
    /// Which model serves, within limits on cost, latency and accuracy.
    Pixie,
    /// What runs next on a device that many models share.
    Edgeserving,
    /// How fast the simulator is: a row of the cost of decisions, alone.
    SimSpeed,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match args.study {
        Study::Planning => planning::run(args.quick),
        Study::PartitionTuning => partition::tune(&args.data, args.quick),
        Study::PartitionReplay => partition::run(&args.data, args.quick),
    }
    let report = match args.study {
        Study::InsideLayer => inside_layer::run(&args.data, args.quick)?,
    };
    report.write_and_print()
        Study::Pixie => pixie::run(&args.data, args.quick),
        Study::Edgeserving => edgeserving::run(&args.data, args.quick),
        Study::SimSpeed => events_per_second::run(args.quick),
    }
}
