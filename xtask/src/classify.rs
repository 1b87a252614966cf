use crate::run::{cargo, root, show, tools};
use crate::{guests, setup};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const PLUGIN: &str = "plugins/classify";

/// From a fresh checkout to a digit that is read.
pub(crate) fn classify(image: Option<PathBuf>) -> Result<()> {
    setup::setup(&[setup::WASM, setup::PYTHON])?;
    guests::guests(&["classify".into()])?;
    let image = image.unwrap_or_else(|| PathBuf::from("tests/data/seven.png"));
    karman_run(&image)
}

/// What a user types after `cargo install`: the models once, then the picture.
fn karman_run(image: &Path) -> Result<()> {
    let state = root().join("target/classify");
    let karman = |arguments: &[&str]| {
        let mut karman = cargo(["run", "--quiet", "--bin", "karman", "--", "--state"]);
        karman.arg(&state).args(arguments).env("KARMAN_TOOLS", tools());
        karman
    };
    for model in ["digits-s", "digits-m", "digits-l"] {
        let file = format!("tests/models/{model}.onnx");
        show(karman(&["--quiet", "model", "add", model, &file]).stdout(Stdio::null()))?;
    }
    // A path that a person gives counts from where they are; cargo runs in the repository.
    let here = std::env::current_dir()?.join(image);
    show(karman(&["run", PLUGIN]).arg(if here.exists() { here } else { root().join(image) }))
}
