use crate::app::App;
use crate::cli;
use crate::error::{self, Worded};
use crate::held::Held;
use crate::output::table;
use clap::{Args, Subcommand};
use karman_infer::{BackendOptions, Backends, InferError, LoadOptions};
use karman_node::HeldModel;
use karman_store::ModelInfo;
use karman_types::{TaskError, format_bytes};
use serde_json::{Value, json};
use std::path::PathBuf;

/// `karman model`
#[derive(Args, Debug)]
pub(crate) struct Model {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Add an ONNX model, or replace the one of this name
    #[command(
        after_help = "Examples:\n  karman model add digits-m digits-m.onnx\n  karman model add digits-m digits-m.onnx --accuracy 0.98 --info licence=CC0-1.0"
    )]
    Add(Add),
    /// List the models
    #[command(after_help = "Examples:\n  karman model list\n  karman model list --json --long")]
    List(List),
}

#[derive(Args, Debug)]
struct Add {
    /// The name by which plugins load it
    name: String,
    /// The ONNX file, its weights inside
    file: PathBuf,
    /// How often it is right, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    accuracy: Option<f64>,
    /// What else is known of it; may be given again
    #[arg(long, value_name = "KEY=VALUE", value_parser = cli::pair)]
    info: Vec<(String, String)>,
}

#[derive(Args, Debug)]
struct List {
    /// Digests in full length
    #[arg(long)]
    long: bool,
}

impl Model {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        match &self.verb {
            Verb::Add(verb) => verb.run(app),
            Verb::List(verb) => verb.run(app),
        }
    }
}

impl Add {
    fn run(&self, app: &App) -> Result<(), TaskError> {
        let bytes = std::fs::read(&self.file).map_err(|error| error::file(&self.file, &error))?;
        let mut info: ModelInfo = self
            .info
            .iter()
            .map(|(key, value)| (key.clone(), value.as_str().into()))
            .collect();
        info.extend(
            self.accuracy
                .map(|accuracy| ("accuracy".to_owned(), accuracy.into())),
        );
        let signature = self.signature(app, &bytes)?;
        let model = Held::open(app)?.add_model(&self.name, bytes, info)?;
        app.output.result(
            || {
                format!(
                    "{}   {}   {}   {signature}",
                    model.name,
                    format_bytes(model.bytes),
                    model.digest.short()
                )
            },
            || json!(model),
        )
    }

    /// What it takes and gives. A file that is no model is refused here, one that only tract does not run is not.
    fn signature(&self, app: &App, bytes: &[u8]) -> Result<String, TaskError> {
        let backends = Backends::detect(&BackendOptions::default());
        let model = match backends.load(bytes, &LoadOptions::default()) {
            Ok(model) => model,
            Err(error @ InferError::Rejected { .. }) => {
                app.output.note(format!(
                    "note: {error}; it needs ONNX Runtime, which `karman doctor` looks for"
                ));
                return Ok(String::new());
            }
            Err(error) => return Err(error.worded()),
        };
        let list = |infos: &[karman_infer::TensorInfo]| {
            infos
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        };
        Ok(format!("{} -> {}", list(model.inputs()), list(model.outputs())))
    }
}

impl List {
    fn run(&self, app: &App) -> Result<(), TaskError> {
        let models = Held::if_any(app)?
            .map(|held| held.models())
            .transpose()?
            .unwrap_or_default();
        if app.output.json {
            return models.iter().try_for_each(|model| app.output.line(json!(model)));
        }
        if models.is_empty() {
            app.output
                .note("no models; karman model add NAME FILE.onnx adds one");
            return Ok(());
        }
        let head = vec![["NAME", "SIZE", "DIGEST", "INFO"].map(str::to_owned).to_vec()];
        let rows: Vec<Vec<String>> = head
            .into_iter()
            .chain(models.iter().map(|model| self.row(model)))
            .collect();
        app.output.line(table(&rows))
    }

    fn row(&self, model: &HeldModel) -> Vec<String> {
        let digest = if self.long {
            model.digest.to_string()
        } else {
            model.digest.short()
        };
        let of = |(key, value): (&String, &Value)| match value {
            Value::String(text) => format!("{key} {text}"),
            other => format!("{key} {other}"),
        };
        let info: Vec<String> = model.info.iter().map(of).collect();
        vec![
            model.name.clone(),
            format_bytes(model.bytes),
            digest,
            info.join(", "),
        ]
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share @ 0.0..=1.0) => Ok(share),
        _ => Err("it is a share from 0 to 1, such as 0.98".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_is_a_share() {
        assert_eq!(share("0.98"), Ok(0.98));
        for text in ["98", "-0.1", "NaN", "good"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
