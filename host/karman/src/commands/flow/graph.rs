use super::read;
use crate::app::App;
use crate::commands::sign::replace;
use crate::input::is_standard;
use clap::Args;
use karman_sched::flow;
use karman_types::{TaskError, Workflow};
use serde_json::{Value, json};
use std::path::PathBuf;

/// `karman flow graph`
#[derive(Args, Debug)]
pub(super) struct Graph {
    /// The workflow; - is standard input
    file: PathBuf,
    /// Also draw it as a picture; - is standard output, in the place of the text
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Graph {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let workflow = read(&self.file)?;
        match &self.svg {
            Some(file) if is_standard(file) => {
                return app.output.bytes(flow::svg(&workflow, None).as_bytes());
            }
            Some(file) => replace(file, flow::svg(&workflow, None).as_bytes())?,
            None => {}
        }
        app.output.result(
            || flow::text(&workflow, None).trim_end().to_owned(),
            || object(&workflow),
        )
    }
}

/// The tasks, and the edges with the predicates in the words of the file.
fn object(workflow: &Workflow) -> Value {
    let names: Vec<&str> = workflow.tasks().iter().map(|task| task.name.as_str()).collect();
    let edges = workflow.edges().iter().map(|edge| {
        json!({
            "from": names[edge.from], "to": names[edge.to], "when": edge.when, "default": edge.default,
        })
    });
    json!({ "name": workflow.name(), "tasks": names, "edges": edges.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_the_edges_too() {
        let workflow = Workflow::from_toml(
            "name = 'look'\n[task.a]\n[task.b]\n[task.c]\n\
             [[edge]]\nfrom = 'a'\nto = 'b'\nwhen = { field = 'water', at-least = 0.2 }\n\
             [[edge]]\nfrom = 'a'\nto = 'c'\ndefault = true\n",
        )
        .unwrap();
        let edges = &object(&workflow)["edges"];
        assert_eq!((&edges[0]["from"], &edges[0]["to"]), (&json!("a"), &json!("b")));
        assert_eq!(edges[0]["when"], json!({ "field": "water", "at-least": 0.2 }));
        assert_eq!(
            (&edges[1]["when"], &edges[1]["default"]),
            (&Value::Null, &json!(true))
        );
    }
}
