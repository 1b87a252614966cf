use super::shape::Shapes;
use crate::app::App;
use crate::cli;
use crate::control::{Control, escape};
use crate::error::Worded;
use crate::held::Held;
use crate::out_of_reach::OutOfReach;
use clap::Args;
use http::Method;
use karman_infer::graph::{CutError, Graph};
use karman_infer::{BackendOptions, Backends, InferError, LoadOptions, Model, ModelLimits, TensorInfo};
use karman_node::{HeldModel, ModelDevice, NodeConfig, OnNode, TensorDescription, check_for_gpu};
use karman_store::{ModelExit, ModelInfo, check_model_name};
use karman_types::{TaskError, format_bytes};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// `karman model add`
#[derive(Args, Debug)]
pub(super) struct Add {
    /// The name by which plugins load it
    name: String,
    /// The ONNX file, its weights inside; - is standard input
    file: PathBuf,
    /// How often it is right, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    accuracy: Option<f64>,
    /// An output that is an exit, and how often it is right there; given again, from shallow to deep, for each; the last is all of it
    #[arg(long = "exit", value_name = "OUTPUT=SHARE", value_parser = exit)]
    exits: Vec<ModelExit>,
    #[command(flatten)]
    shapes: Shapes,
    /// What else is known of it; may be given again
    #[arg(long, value_name = "KEY=VALUE", value_parser = cli::pair)]
    info: Vec<(String, String)>,
    /// On which nodes of the mesh: tier=edge, a node's id, all, or several with commas [default: this node]
    #[arg(long, value_name = "SELECTOR")]
    on: Option<String>,
}

impl Add {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let limits = app.config()?.models;
        let bytes = self
            .shapes
            .close(super::read(&self.file, limits.model)?, &limits)?;
        let mut info: ModelInfo = self
            .info
            .iter()
            .map(|(key, value)| (key.clone(), value.as_str().into()))
            .collect();
        info.extend(
            self.accuracy
                .map(|accuracy| ("accuracy".to_owned(), accuracy.into())),
        );
        if !self.exits.is_empty() {
            info.insert(ModelExit::KEY.to_owned(), json!(self.exits));
        }
        check_model_name(&self.name).map_err(Worded::worded)?;
        self.check_exits(&limits, &bytes)?;
        let config = app.config()?;
        if let Some(selector) = &self.on {
            // On other nodes their back-ends count.
            let note = |error: InferError| {
                let says = format!("note: {error}; it needs ONNX Runtime, which `karman doctor` looks for");
                app.output.note(says);
            };
            by_tract(&config, &bytes, note)?;
            return self.run_on(app, selector, bytes, &info);
        }
        check_for_gpu(&config.gpu, &config.models, &self.name, &bytes)?;
        let held = Held::open(app)?;
        let known = match (&held, config.gpu.model(&self.name)) {
            (Held::Store(_), None | Some(ModelDevice::Auto)) => Some(tried(&config, &bytes)?),
            // Whether it runs there that node sees.
            (Held::Node(_), _) | (_, Some(ModelDevice::Gpu)) => by_tract(&config, &bytes, drop)?,
        };
        let model = held.add_model(&self.name, bytes, info)?;
        app.output.result(
            || {
                let signature = known.as_deref().map(signature).unwrap_or_default();
                format!(
                    "{}   {}   {}   {signature}",
                    model.name,
                    format_bytes(model.bytes),
                    model.digest.short()
                )
            },
            || object(&model, known.as_deref()),
        )
    }

    /// Adds it on every node that the selector names, and says which were not reached; done when all that were have it.
    fn run_on(&self, app: &App, selector: &str, bytes: Vec<u8>, info: &ModelInfo) -> Result<(), TaskError> {
        let info = json!(info).to_string();
        let path = format!(
            "/mesh/models/{}?on={}&info={}",
            escape(&self.name),
            escape(selector),
            escape(&info)
        );
        let progress = app.progress(&format!("bringing {} to {selector}", self.name));
        let control = Control::new(app)?;
        let added = control.order::<Vec<OnNode<HeldModel>>>(Method::POST, &path, bytes.into());
        drop(progress);
        let added = added?;
        let out_of_reach = OutOfReach::of(&control, selector, &added);
        out_of_reach.say(&app.output);
        app.output.on_nodes(added, |node, model| {
            app.output.result(
                || {
                    let size = format_bytes(model.bytes);
                    format!(
                        "{}   on {}   {size}   {}",
                        model.name,
                        node.short(),
                        model.digest.short()
                    )
                },
                || {
                    let mut object = json!(model);
                    object["node"] = json!(node);
                    object["out_of_reach"] = json!(out_of_reach.nodes());
                    object
                },
            )
        })
    }

    /// Whether the last exit is an output of the model, and each early one can answer in its place.
    fn check_exits(&self, limits: &ModelLimits, bytes: &[u8]) -> Result<(), TaskError> {
        let Some((last, early)) = self.exits.split_last() else {
            return Ok(());
        };
        let graph = Graph::read(bytes.to_vec(), limits).map_err(Worded::worded)?;
        let wrong = |error: CutError| TaskError::invalid(error.to_string()).with_field("exit");
        graph.output(&last.output).map_err(wrong)?;
        for exit in early {
            graph.up_to(&exit.output, &last.output).map_err(wrong)?;
        }
        Ok(())
    }
}

/// The model as tract loads it, to see what it takes and gives. A file that is no model is refused; one that only tract does not run is not,
/// which `otherwise` is told.
fn by_tract(
    config: &NodeConfig,
    bytes: &[u8],
    otherwise: impl FnOnce(InferError),
) -> Result<Option<Arc<dyn Model>>, TaskError> {
    let backends = Backends::detect(&BackendOptions::default());
    let options = LoadOptions {
        limits: config.models.clone(),
        ..LoadOptions::default()
    };
    match backends.load(bytes, &options) {
        Ok(model) => Ok(Some(model)),
        Err(error) if is_of_tract(&error) => {
            otherwise(error);
            Ok(None)
        }
        Err(error) => Err(error.worded()),
    }
}

/// The model as a node of this configuration loads it.
///
/// # Errors
/// What its back-end says: requests for the model would be refused with that.
fn tried(config: &NodeConfig, bytes: &[u8]) -> Result<Arc<dyn Model>, TaskError> {
    let (library, program) = (config.onnxruntime.as_deref(), std::env::current_exe().ok());
    let backends = Backends::detect(&config.backend.options(library, program));
    let options = LoadOptions {
        backend: config.backend.name(),
        limits: config.models.clone(),
        ..LoadOptions::default()
    };
    backends.load(bytes, &options).map_err(Worded::worded)
}

/// What a model takes and gives, for people.
fn signature(model: &dyn Model) -> String {
    let list = |infos: &[TensorInfo]| {
        let infos: Vec<String> = infos.iter().map(ToString::to_string).collect();
        infos.join(", ")
    };
    format!("{} -> {}", list(model.inputs()), list(model.outputs()))
}

/// What was added, for programs: also what it takes and gives where that is known, as the gateway describes it.
fn object(model: &HeldModel, known: Option<&dyn Model>) -> Value {
    let described =
        |infos: &[TensorInfo]| -> Vec<TensorDescription> { infos.iter().map(Into::into).collect() };
    let mut object = json!(model);
    if let Some(known) = known {
        object["inputs"] = json!(described(known.inputs()));
        object["outputs"] = json!(described(known.outputs()));
    }
    object
}

/// Whether this is tract's affair alone: it lacks what the model needs, panics at it, or would make more than one run may.
fn is_of_tract(error: &InferError) -> bool {
    matches!(
        error,
        InferError::Rejected { .. } | InferError::Panicked { .. } | InferError::Limit { limit: "run", .. }
    )
}

fn exit(text: &str) -> Result<ModelExit, String> {
    let (output, accuracy) = text
        .rsplit_once('=')
        .ok_or("it is an output and a share, such as exit_1=0.967")?;
    Ok(ModelExit {
        output: output.to_owned(),
        accuracy: share(accuracy)?,
    })
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

    #[test]
    fn a_model_that_tract_does_not_run_is_added_and_no_other() {
        let limit = |limit| InferError::Limit {
            what: "all that one run makes in bytes".into(),
            value: 2,
            bound: 1,
            limit,
        };
        let (backend, reason) = (karman_infer::BackendName::Tract, String::from("no"));
        let panicked = InferError::Panicked {
            backend,
            reason: reason.clone(),
        };
        assert!(is_of_tract(&panicked) && is_of_tract(&limit("run")));
        assert!(!is_of_tract(&limit("model")) && !is_of_tract(&InferError::Malformed { reason }));
    }

    #[test]
    fn programs_are_told_what_a_model_takes_and_gives() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/digits-s.onnx");
        let bytes = std::fs::read(file).unwrap();
        let backends = Backends::detect(&BackendOptions::default());
        let known = backends.load(&bytes, &LoadOptions::default()).unwrap();
        let model = HeldModel {
            name: "digits".into(),
            digest: karman_types::Digest::of(&bytes),
            bytes: bytes.len() as u64,
            info: ModelInfo::default(),
            runs_on: None,
            refused: None,
        };
        let told = object(&model, Some(known.as_ref()));
        assert_eq!(
            (&told["name"], &told["inputs"][0]["name"]),
            (&json!("digits"), &json!("image"))
        );
        assert_eq!(told["inputs"][0]["shape"], json!([-1, 1, 8, 8]));
        assert_eq!(told["outputs"][0]["datatype"], "FP32");
        assert_eq!(object(&model, None)["inputs"], Value::Null);
    }

    #[test]
    fn an_exit_is_an_output_with_its_share() {
        let known = exit("exit_1=0.967").unwrap();
        assert_eq!((known.output.as_str(), known.accuracy), ("exit_1", 0.967));
        for text in ["exit_1", "exit_1=", "exit_1=97"] {
            assert!(exit(text).is_err(), "{text}");
        }
    }
}
