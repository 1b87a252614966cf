//! `karman fed`: federated runs, on the nodes of a mesh or played by this process.

mod export;
mod report;
mod run;
mod status;
mod view;

use crate::app::App;
use crate::commands::sign::replace;
use crate::input::is_standard;
use clap::{Args, Subcommand};
use karman_types::TaskError;
use serde_json::Value;
use std::path::Path;

/// `karman fed`
#[derive(Args, Debug)]
pub(crate) struct Fed {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start a run, or watch one that is running
    #[command(
        after_help = "Examples:\n  karman fed run digits.toml\n  karman fed run digits.toml --plugin plugins/fed-digits --again"
    )]
    Run(run::Run),
    /// Show the progress of runs
    #[command(after_help = "Examples:\n  karman fed status\n  karman fed status digits --json")]
    Status(status::Status),
    /// End a run with the version that it has
    #[command(after_help = "Examples:\n  karman fed stop digits\n  karman fed stop digits --json")]
    Stop(status::Stop),
    /// Remove a run that does not run now: its model, its progress, and what its simulated clients keep
    #[command(
        visible_alias = "rm",
        after_help = "Examples:\n  karman fed remove digits\n  karman fed remove digits --json"
    )]
    Remove(status::Remove),
    /// Write a run's model as safetensors, or as the ONNX file that it began with
    #[command(
        after_help = "Examples:\n  karman fed export digits -o digits.safetensors\n  karman fed export water --onnx -o flood-s.onnx\n  karman fed export digits -o - | python3 -c 'import sys, safetensors.numpy as st; print(st.load(sys.stdin.buffer.read()).keys())'"
    )]
    Export(export::Export),
    /// Write what happened in a run as a page
    #[command(
        after_help = "Examples:\n  karman fed report digits -o digits.html\n  karman fed report digits -o - > digits.html"
    )]
    Report(report::Report),
}

impl Fed {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        match &self.verb {
            Verb::Run(verb) => verb.run(app),
            Verb::Status(verb) => verb.run(app),
            Verb::Stop(verb) => verb.run(app),
            Verb::Remove(verb) => verb.run(app),
            Verb::Export(verb) => verb.run(app),
            Verb::Report(verb) => verb.run(app),
        }
    }
}

/// Writes what was made of a run to a file, and says so; or to standard output for `-`, and says nothing.
fn write_out(
    app: &App,
    file: &Path,
    bytes: &[u8],
    text: impl FnOnce() -> String,
    object: impl FnOnce() -> Value,
) -> Result<(), TaskError> {
    if is_standard(file) {
        return app.output.bytes(bytes);
    }
    replace(file, bytes)?;
    app.output
        .result(|| format!("{}   {}", file.display(), text()), object)
}
