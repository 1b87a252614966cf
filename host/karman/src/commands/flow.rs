use crate::app::App;
use crate::commands::sign::replace;
use crate::error;
use clap::{Args, Subcommand};
use karman_sched::flow;
use karman_types::{TaskError, Workflow};
use serde_json::json;
use std::path::PathBuf;

/// `karman flow`
#[derive(Args, Debug)]
pub(crate) struct Flow {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check a workflow and draw it
    #[command(
        after_help = "Examples:\n  karman flow graph flow.toml\n  karman flow graph flow.toml --svg flow.svg"
    )]
    Graph(Graph),
}

#[derive(Args, Debug)]
struct Graph {
    /// The workflow
    file: PathBuf,
    /// Also draw it as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Flow {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        match &self.verb {
            Verb::Graph(verb) => verb.run(app),
        }
    }
}

impl Graph {
    fn run(&self, app: &App) -> Result<(), TaskError> {
        let text = std::fs::read_to_string(&self.file).map_err(|failed| error::file(&self.file, &failed))?;
        let workflow = Workflow::from_toml(&text).map_err(|wrong| {
            TaskError::invalid(wrong.to_string()).with_field(self.file.display().to_string())
        })?;
        if let Some(file) = &self.svg {
            replace(file, flow::svg(&workflow, None).as_bytes())?;
        }
        let tasks: Vec<&str> = workflow.tasks().iter().map(|task| task.name.as_str()).collect();
        app.output.result(
            || flow::text(&workflow, None).trim_end().to_owned(),
            || json!({ "name": workflow.name(), "tasks": tasks }),
        )
    }
}
