use super::shape::Shapes;
use crate::app::App;
use crate::commands::sign::replace;
use crate::error::Worded;
use crate::input::is_standard;
use clap::Args;
use karman_infer::graph::Graph;
use karman_infer::inspect::{Inspection, Row};
use karman_types::TaskError;
use serde_json::{Value, json};
use std::path::PathBuf;

/// `karman model inspect`
#[derive(Args, Debug)]
pub(super) struct Inspect {
    /// The ONNX file; - is standard input
    file: PathBuf,
    #[command(flatten)]
    shapes: Shapes,
    /// Items of one run
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch: u32,
    /// Also draw the layers, with every cut between them; - is standard output, in the place of the table
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Inspect {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let limits = app.config()?.models;
        let bytes = self
            .shapes
            .close(super::read(&self.file, limits.model)?, &limits)?;
        let graph = Graph::read(bytes, &limits).map_err(Worded::worded)?;
        let inspection = Inspection::new(&graph, self.batch);
        match &self.svg {
            Some(file) if is_standard(file) => return app.output.bytes(inspection.to_svg().as_bytes()),
            Some(file) => replace(file, inspection.to_svg().as_bytes())?,
            None => {}
        }
        app.output.result(
            || inspection.to_string().trim_end().to_owned(),
            || {
                json!({
                    "parameters": inspection.parameters,
                    "macs": inspection.macs,
                    "batch": inspection.batch,
                    "layers": inspection.rows.iter().map(layer).collect::<Vec<Value>>(),
                })
            },
        )
    }
}

fn layer(row: &Row) -> Value {
    let cut = row
        .cut
        .map(|cut| json!({ "tensors": cut.tensors, "bytes": cut.bytes, "candidate": cut.is_candidate }));
    json!({
        "layer": row.layer,
        "operators": row.op,
        "output": row.output,
        "parameters": row.parameters,
        "macs": row.macs,
        "bytes": row.bytes,
        "cut": cut,
    })
}
