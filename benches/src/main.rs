//! Studies: `cargo xtask bench NAME` runs one, writes `target/bench/NAME.json` and prints its rows.
//!
//! Each study lists its cells before it runs; every contender runs in the same run, in random order, block after block;
//! a row is a ratio with its 95 % interval. `KEYS` of each study's module documentation say what a row means.
#![forbid(unsafe_code)]

mod digits;
mod edgeserving_live;
mod engine;
mod fed;
mod gateway;
mod given;
mod infer;
mod mesh;
mod operators;
mod partition;
mod pixie_live;
mod scale;
mod sim_to_real;
mod site;
mod wrk;

use clap::{Parser, ValueEnum};
use mimalloc::MiMalloc;
use std::path::PathBuf;

/// Contenders that are written in this program have what ours has.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Runs one study.
#[derive(Parser)]
struct Args {
    /// Which one.
    study: Study,
    /// Fewer and shorter blocks, to see that it runs; its figures mean little.
    #[arg(long)]
    quick: bool,
    /// Be the other side of a contender instead.
    #[arg(long, hide = true)]
    serve: Option<mesh::Serve>,
    #[arg(long, hide = true, default_value = ".")]
    folder: PathBuf,
    #[arg(long, hide = true)]
    at: Option<String>,
    #[command(flatten)]
    plain: gateway::Plain,
}

#[derive(Clone, Copy, ValueEnum)]
enum Study {
    EdgeservingLive,
    Engine,
    Fed,
    Gateway,
    Infer,
    Mesh,
    Operators,
    Partition,
    PixieLive,
    Scale,
    SimToReal,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    // Two are built in; none is everybody's choice.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    if let Some(what) = args.serve {
        return mesh::serve(what, &args.folder, args.at.as_deref());
    }
    if let Some(at) = args.plain.plain {
        return gateway::serve_plain(&args.plain, at);
    }
    let report = match args.study {
        Study::EdgeservingLive => edgeserving_live::run(args.quick)?,
        Study::Engine => engine::run(args.quick)?,
        Study::Fed => fed::run(args.quick)?,
        Study::Gateway => gateway::run(args.quick)?,
        Study::Infer => infer::run(args.quick)?,
        Study::Mesh => mesh::run(args.quick)?,
        Study::Operators => operators::run(args.quick)?,
        Study::Partition => partition::run(args.quick)?,
        Study::PixieLive => pixie_live::run(args.quick)?,
        Study::Scale => scale::run(args.quick)?,
        Study::SimToReal => sim_to_real::run(args.quick)?,
    };
    report.write_and_print()
}
