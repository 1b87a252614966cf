use super::read;
use crate::app::App;
use crate::commands::sign::replace;
use clap::Args;
use karman_sched::flow;
use karman_types::TaskError;
use serde_json::json;
use std::path::PathBuf;

/// `karman flow graph`
#[derive(Args, Debug)]
pub(super) struct Graph {
    /// The workflow
    file: PathBuf,
    /// Also draw it as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Graph {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let workflow = read(&self.file)?;
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
