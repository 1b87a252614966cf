//! `karman model`: what models the node has, how fast they are, and where they run.

mod add;
mod inside;
mod inspect;
mod list;
mod plan;
mod profile;
mod remove;
mod run;
mod shape;

use crate::app::App;
use crate::error;
use crate::input::is_standard;
use clap::{Args, Subcommand};
use karman_types::{ByteSize, TaskError, format_bytes};
use std::fs::File;
use std::io::Read;
use std::path::Path;

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
        after_help = "Examples:\n  karman model add digits-m digits-m.onnx\n  karman model add digits-m digits-m.onnx --accuracy 0.98 --info licence=CC0-1.0\n  karman model add digits-l digits-l.onnx --exit exit_1=0.967 --exit exit_2=0.989 --exit probabilities=0.993\n  karman model add ocr-320 ocr.onnx --shape x=_,3,48,320\n  karman model add flood-s flood-s.onnx --on tier=space"
    )]
    Add(add::Add),
    /// Remove a model; a plan of it ends
    #[command(
        after_help = "Examples:\n  karman model remove digits-m\n  karman model remove flood-s --on tier=space"
    )]
    Remove(remove::Remove),
    /// List the models
    #[command(after_help = "Examples:\n  karman model list\n  karman model list --json --long")]
    List(list::List),
    /// Show a model's layers, and where it could be cut
    #[command(
        after_help = "Examples:\n  karman model inspect mobilenet.onnx\n  karman model inspect mobilenet.onnx --svg mobilenet.svg\n  karman model inspect ocr.onnx --shape x=_,3,48,320"
    )]
    Inspect(inspect::Inspect),
    /// Measure how long each layer takes on this node
    #[command(
        after_help = "Examples:\n  karman model profile digits-m\n  karman model profile digits-m --again\n  karman model profile digits-m --json"
    )]
    Profile(profile::Profile),
    /// Plan which node runs which part of a model, and run it so with --apply
    #[command(
        after_help = "Examples:\n  karman model plan mobilenet\n  karman model plan mobilenet --over tier=fog --over 9c01d2e7 --apply\n  karman model plan mobilenet --slo p95=200ms --slo energy=min --apply\n  karman model plan mobilenet --cut 12,40 --apply\n  karman model plan mobilenet-int8 --inside --on tier=edge --memory 192KiB --apply\n  karman model plan mobilenet --whole"
    )]
    Plan(plan::Plan),
    /// Run a model once, in parts where it is planned so
    #[command(
        after_help = "Examples:\n  karman model run digits-m image.json\n  echo '{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1]}]}' | karman model run double -"
    )]
    Run(run::Run),
}

impl Model {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        match &self.verb {
            Verb::Add(verb) => verb.run(app),
            Verb::Remove(verb) => verb.run(app),
            Verb::List(verb) => verb.run(app),
            Verb::Inspect(verb) => verb.run(app),
            Verb::Profile(verb) => verb.run(app),
            Verb::Plan(verb) => verb.run(app),
            Verb::Run(verb) => verb.run(app),
        }
    }
}

/// The file of a model, or standard input for `-`; what is longer than `most` is not read.
fn read(path: &Path, most: ByteSize) -> Result<Vec<u8>, TaskError> {
    let failed = |failed: std::io::Error| error::file(path, &failed);
    let (file, length): (Box<dyn Read>, u64) = match is_standard(path) {
        true => (Box::new(std::io::stdin()), 0),
        false => {
            let file = File::open(path).map_err(failed)?;
            let length = file.metadata().map_err(failed)?.len();
            (Box::new(file), length)
        }
    };
    let mut bytes = Vec::new();
    if length <= most.0 {
        // A pipe does not say how long it is.
        let mut file = file.take(most.0.saturating_add(1));
        file.read_to_end(&mut bytes).map_err(failed)?;
    }
    if length.max(bytes.len() as u64) <= most.0 {
        return Ok(bytes);
    }
    let (path, most) = (path.display(), format_bytes(most.0));
    Err(TaskError::limit(format!("{path} is larger than {most}"))
        .with_field("models.model")
        .with_hint(
            "raise `models.model` in node.toml, and `models.constants` with it, and start the node again: it reads them when it starts",
        ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::ErrorKind;

    #[test]
    fn a_file_that_is_too_long_is_refused_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.onnx");
        std::fs::write(&path, [7u8; 10]).unwrap();
        assert_eq!(read(&path, ByteSize(10)).unwrap(), [7u8; 10]);
        // It says no length of its own, and has no end.
        for path in [path.as_path(), Path::new("/dev/zero")] {
            let error = read(path, ByteSize(9)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Limit, "{error}");
            assert_eq!(error.field.as_deref(), Some("models.model"));
            assert!(error.message.contains("larger than 9 B"), "{error}");
        }
        let missing = read(&folder.path().join("none"), ByteSize(9)).unwrap_err();
        assert_eq!(missing.kind, ErrorKind::Invalid);
    }
}
