//! Studies: `cargo xtask bench NAME` runs one, writes `target/bench/NAME.json` and prints its rows.
//!
//! Each study lists its cells before it runs; every contender runs in the same run, in random order, block after block;
//! a row is a ratio with its 95 % interval. `KEYS` of each study's module documentation say what a row means.
#![forbid(unsafe_code)]

mod engine;
mod machine;
mod pairs;
mod report;

use clap::{Parser, ValueEnum};

/// Runs one study.
#[derive(Parser)]
struct Args {
    /// Which one.
    study: Study,
    /// Fewer and shorter blocks, to see that it runs; its figures mean little.
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Study {
    Engine,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let report = match args.study {
        Study::Engine => engine::run(args.quick)?,
    };
    report.write_and_print()
}
