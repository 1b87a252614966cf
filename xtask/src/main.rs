//! The chores of this repository. People and CI use the same commands.
#![forbid(unsafe_code)]

mod bench;
mod ci;
mod classify;
mod demo;
mod docs;
mod guests;
mod run;
mod setup;
mod test;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// The chores of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Classifies a handwritten digit: sets up what that needs, builds the plugin and runs it.
    Classify {
        /// A picture of a digit; tests/data/seven.png when none is named.
        image: Option<PathBuf>,
    },
    /// Shows the whole continuum on this machine: sets up, builds the plugins and runs `karman demo flood`.
    Demo {
        /// What it takes: --keep, --json.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Runs every test: sets up, builds the guests, then host, documentation and plugins.
    Test,
    /// Installs what builds and tests need into target/tools. What is there already is kept.
    Setup {
        /// NVIDIA's compiler as well (80 MB): it tells whether the CUDA kernels compile, where no GPU is.
        #[arg(long)]
        nvrtc: bool,
    },
    /// Builds plugins/* and tests/guests/* into target/guests. What has not changed is kept.
    Guests {
        /// Only these; all when none is named.
        names: Vec<String>,
    },
    /// Checks all that a change must pass: format, lints, dependencies, documentation, tests.
    Ci,
    /// Writes docs/configuration.md from the code.
    Docs,
    /// Runs one study of benches/ and prints its rows.
    Bench {
        /// The study, and what it takes.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Classify { image } => classify::classify(image),
        Command::Demo { arguments } => demo::demo(&arguments),
        Command::Test => test::test(),
        Command::Setup { nvrtc: false } => setup::setup(setup::ALL),
        Command::Setup { nvrtc: true } => setup::setup(&[setup::ALL, &[setup::NVRTC]].concat()),
        Command::Guests { names } => guests::guests(&names),
        Command::Ci => ci::ci(),
        Command::Docs => docs::docs(),
        Command::Bench { arguments } => bench::bench(&arguments),
    }
}
