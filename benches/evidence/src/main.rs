//! Studies of decisions: `cargo xtask bench NAME` runs one, writes `target/bench/NAME.json` and prints its rows.
//!
//! Each study registers its cells, seeds and perturbations before it runs; a missing or repeated cell fails the study.
#![forbid(unsafe_code)]

mod clusterless;
mod decision_cost;
mod edgeserving;
mod events_per_second;
mod fate;
mod fed_tables;
mod fltorrent;
mod inside_layer;
mod la_imr;
mod partition;
mod pixie;
mod placement;
mod placement_cost;
mod planning;
#[cfg(feature = "plugins")]
mod plugin_cost;
#[cfg(feature = "plugins")]
mod plugins;
mod pothole;
mod secagg;

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
    /// How long it takes to find a cut.
    Planning,
    /// Cuts that follow their links, on recorded layers and written-down traces.
    PartitionReplay,
    /// What the numbers of the re-planner were chosen by; on other seeds.
    PartitionTuning,
    /// One layer among boards without memory.
    InsideLayer,
    /// Which model serves, within limits on cost, latency and accuracy.
    Pixie,
    /// What runs next on a device that many models share.
    Edgeserving,
    /// Which tier serves a request, and how many replicas there are.
    LaImr,
    /// What one decision takes.
    DecisionCost,
    /// How fast the simulator is: a row of the cost of decisions, alone.
    SimSpeed,
    /// Federated strategies, attacks, selections, paces and adapters.
    FedTables,
    /// What differential privacy costs a federated run in accuracy.
    FedPrivacy,
    /// Jobs of functions over clusters of edge and fog, against ClusterLess.
    Clusterless,
    /// Jobs with deadlines over a fleet that fails, against FATE.
    Fate,
    /// What hiding whose update is whose costs a round.
    Fltorrent,
    /// Bytes and time of secure sums.
    Secagg,
    /// What a screen finds and saves, and what vehicles learn together.
    Pothole,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match args.study {
        Study::Planning => planning::run(args.quick),
        Study::PartitionReplay => partition::run(&args.data, args.quick),
        Study::PartitionTuning => partition::tune(&args.data, args.quick),
        Study::InsideLayer => inside_layer::run(&args.data, args.quick)?.write_and_print(),
        Study::Pixie => pixie::run(&args.data, args.quick),
        Study::Edgeserving => edgeserving::run(&args.data, args.quick),
        Study::LaImr => la_imr::run(args.quick),
        Study::DecisionCost => decision_cost::run(&args.data, args.quick),
        Study::SimSpeed => events_per_second::run(args.quick),
        Study::FedTables => fed_tables::run(args.quick),
        Study::FedPrivacy => fed_tables::privacy::run(args.quick),
        Study::Fate => fate::study(&args.data, args.quick),
        Study::Clusterless => clusterless::study(&args.data, args.quick),
        Study::Fltorrent => fltorrent::run(args.quick),
        Study::Secagg => secagg::run(args.quick),
        Study::Pothole => pothole::run(args.quick),
    }
}
