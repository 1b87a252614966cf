//! `karman flow`: workflows of tasks, drawn, run, and how far they are.

mod cancel;
mod graph;
mod list;
mod measure;
mod new;
mod run;
mod status;

pub(crate) use status::waits;

use crate::app::App;
use crate::input;
use clap::{Args, Subcommand};
use karman_types::{TaskError, Workflow};
use std::path::Path;

/// `karman flow`
#[derive(Args, Debug)]
pub(crate) struct Flow {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Begin a workflow in one of the shapes of compound systems
    #[command(after_help = "Examples:\n  karman flow new cascade\n  karman flow new router triage.toml")]
    New(new::New),
    /// Run a workflow on the running node and its mesh
    #[command(
        after_help = "Examples:\n  karman flow run flood.toml --input tiles.json\n  karman flow run flood.toml --slo accuracy=0.85 --slo p95=3s --slo cost=0.50\n  karman flow run nightly.toml --accept kept --key 2026-11-21"
    )]
    Run(run::Run),
    /// The runs that this node holds
    #[command(after_help = "Examples:\n  karman flow list\n  karman flow list --json")]
    List,
    /// Show the progress of a run
    #[command(
        after_help = "Examples:\n  karman flow status 01JD7W2Z0Q8V5M3N9K4T6B1XAC\n  karman flow status 01JD7W2Z0Q8V5M3N9K4T6B1XAC --wait 30s --json"
    )]
    Status(status::Status),
    /// Cancel a run; what it did is undone where its workflow says how
    #[command(
        after_help = "Examples:\n  karman flow cancel 01JD7W2Z0Q8V5M3N9K4T6B1XAC\n  karman flow cancel 01JD7W2Z0Q8V5M3N9K4T6B1XAC --json"
    )]
    Cancel(cancel::Cancel),
    /// Measure with labelled examples who can do a task that names a capability, so that runs can choose
    #[command(
        after_help = "Examples:\n  karman flow measure digits.toml classify --data examples.jsonl\n  karman flow measure digits.toml classify --data examples.jsonl --cost digits-l@9c01d2e7=0.002\n  karman flow measure digits.toml classify --data examples.jsonl --only digits-s@9c01d2e7"
    )]
    Measure(measure::Measure),
    /// Check a workflow and draw it
    #[command(
        after_help = "Examples:\n  karman flow graph flow.toml\n  karman flow graph flow.toml --svg flow.svg"
    )]
    Graph(graph::Graph),
}

impl Flow {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        match &self.verb {
            Verb::New(verb) => verb.run(app),
            Verb::Run(verb) => verb.run(app),
            Verb::List => list::run(app),
            Verb::Status(verb) => verb.run(app),
            Verb::Cancel(verb) => verb.run(app),
            Verb::Measure(verb) => verb.run(app),
            Verb::Graph(verb) => verb.run(app),
        }
    }
}

/// Reads and checks a workflow.
fn read(file: &Path) -> Result<Workflow, TaskError> {
    input::toml(file, Workflow::from_toml)
}
