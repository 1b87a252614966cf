//! `karman demo flood`: the whole continuum on one machine. Five nodes as processes of their own, links that behave as described, real
//! passes of a satellite; a workflow that looks for water where there should be none; and what becomes of it when things go wrong.
//!
//! ```text
//! space   sat     camera, clouds and tiles, small model; coordinates
//!          |      only while it passes, by its orbit
//! edge    dish    alert, large model (in parts with those that it reaches)
//!          |\
//! edge     | siren                 the village's board
//! fog     fog
//!          |
//! cloud   cloud   the gateway, the dashboard, the file of the large model
//! ```
//!
//! Nothing here decides anything, and no figure of the report is made here: they are read from the nodes' answers, their logs, their
//! counters and the log of decisions.
//!
//! | file | what |
//! |---|---|
//! | `process` | one node |
//! | `ending` | the processes of all of them, and what a signal does |
//! | `links` | who they are, and what is between them |
//! | `continuum` | the five of them, up and in one mesh |
//! | `sky` | when the satellite passes: its real orbit, sped up |
//! | `mission` | plugins, models and the plan in their places; one capture from its order to its alert |
//! | `truth` | what is really there, and how much of it was found |
//! | `alert` | what the dish tells |
//! | `round` | the boards better the model on board |
//! | `days` | pictures that it is judged by |
//! | `office` | what is asked of the gateway, and what it says |
//! | `beside` | what goes on beside the passes |
//! | `story` | everything from the first plugin to the report |
//! | `acts` | what is done in each pass and before it |
//! | `timetable` | when the passes come, and how far they are put off |
//! | `captures` | what became of the captures that were ordered |
//! | `kept` | what goes on after them, if it is to stay up |
//! | `spoken` | what is said on the way |
//! | `report` | what is told in the end |

mod acts;
mod alert;
mod beside;
mod captures;
mod continuum;
mod days;
mod ending;
mod kept;
mod links;
mod mission;
mod office;
mod process;
mod report;
mod round;
mod sky;
mod spoken;
mod story;
mod timetable;
mod truth;

use crate::app::App;
use crate::error;
use clap::{Args, Subcommand};
use continuum::Continuum;
use ending::Children;
use karman_types::TaskError;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// `karman demo`
#[derive(Args, Debug)]
pub(crate) struct Demo {
    #[command(subcommand)]
    verb: Verb,
}

/// What to show.
#[derive(Debug, Subcommand)]
enum Verb {
    /// A satellite, two edge boards, a fog node and a cloud find a flood, also when nodes and links fail
    #[command(
        after_help = "Examples:\n  karman demo flood\n  karman demo flood --keep\n  karman demo flood --json > report.json"
    )]
    Flood(Flood),
}

/// `karman demo flood`
#[derive(Args, Debug)]
struct Flood {
    /// Where the plugins are, as `cargo xtask guests` builds them
    #[arg(long, value_name = "DIR", default_value = "target/guests")]
    plugins: PathBuf,
    /// Leave the nodes and the dashboard up until Ctrl-C
    #[arg(long)]
    keep: bool,
}

impl Demo {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        match &self.verb {
            Verb::Flood(flood) => flood.run(app),
        }
    }
}

impl Flood {
    fn run(&self, app: &App) -> Result<(), TaskError> {
        let started = Instant::now();
        let plugins = mission::Plugins::read(&self.plugins)?;
        let folder = tempfile::Builder::new().prefix("karman-demo-").tempdir();
        let folder = folder.map_err(|failed| error::file(&std::env::temp_dir(), &failed))?;
        app.output
            .note("a satellite, two edge boards, a fog node and a cloud, each a process of its own");
        let (children, complete) = (Children::default(), Arc::new(AtomicBool::new(false)));
        ending::by_signal(app, &children, folder.path(), &complete)?;
        let continuum = Continuum::start(app, folder.path(), children.clone());
        let mut continuum = continuum.inspect_err(|_| children.give_way())?;
        let told = story::tell(app, &mut continuum, &plugins, started);
        let told = told.inspect_err(|_| children.give_way())?;
        app.output.result(|| told.to_string(), || json!(told))?;
        complete.store(true, Ordering::Relaxed);
        match self.keep {
            true => kept::keep(app, &mut continuum, &told.passes).inspect_err(|_| children.give_way()),
            false => Ok(()),
        }
    }
}
