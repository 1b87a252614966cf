use crate::app::App;
use crate::commands::sign::replace;
use crate::error;
use crate::output::table;
use clap::{Args, Subcommand};
use karman_sim::{WorkloadOutcome, run_scenario};
use karman_types::TaskError;
use serde_json::json;
use std::path::PathBuf;

/// `karman sim`
#[derive(Args, Debug)]
pub(crate) struct Sim {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a scenario in virtual time, with the policies that ship
    #[command(
        after_help = "Examples:\n  karman sim run scenario.toml\n  karman sim run scenario.toml --seed 7 --out results"
    )]
    Run(Run),
}

#[derive(Args, Debug)]
struct Run {
    /// The scenario: nodes, links, contacts, models, workloads
    file: PathBuf,
    /// Another seed than that of the scenario
    #[arg(long)]
    seed: Option<u64>,
    /// Write tables (CSV, JSON) and plots (SVG) into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl Sim {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        match &self.verb {
            Verb::Run(verb) => verb.run(app),
        }
    }
}

impl Run {
    fn run(&self, app: &App) -> Result<(), TaskError> {
        let text = std::fs::read_to_string(&self.file).map_err(|failed| error::file(&self.file, &failed))?;
        let progress = app.progress("simulating");
        let ran = run_scenario(&text, self.seed);
        drop(progress);
        let (outcome, files) = ran.map_err(|failed| {
            TaskError::invalid(failed.to_string()).with_field(self.file.display().to_string())
        })?;
        if let Some(folder) = &self.out {
            std::fs::create_dir_all(folder).map_err(|failed| error::file(folder, &failed))?;
            for (name, content) in &files {
                replace(&folder.join(name), content.as_bytes())?;
            }
        }
        let rows: Vec<Vec<String>> = std::iter::once(
            [
                "WORKLOAD", "REQUESTS", "ON TIME", "LATE", "REFUSED", "LOST", "P50", "P95", "P99",
            ]
            .map(str::to_owned)
            .to_vec(),
        )
        .chain(outcome.workloads.iter().map(row))
        .collect();
        app.output.result(|| table(&rows), || json!(outcome))?;
        if let Some(folder) = &self.out {
            let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
            app.output
                .note(format!("{}: {}", folder.display(), names.join(", ")));
        }
        Ok(())
    }
}

fn row(of: &WorkloadOutcome) -> Vec<String> {
    let share = |count: u64| match of.requests {
        0 => "-".to_owned(),
        requests => format!("{:.1} %", 100.0 * count as f64 / requests as f64),
    };
    let time = |seconds: Option<f64>| {
        seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.1} ms", seconds * 1e3))
    };
    vec![
        of.name.clone(),
        of.requests.to_string(),
        share(of.on_time),
        share(of.late),
        share(of.refused),
        share(of.lost),
        time(of.p50_response),
        time(of.p95_response),
        time(of.p99_response),
    ]
}
