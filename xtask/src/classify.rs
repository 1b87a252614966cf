use crate::run::{cargo, program, root, show, target, tools};
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
    // The whole workspace is selected so that the tests find its dependencies built with the same features.
    show(&mut cargo(["build", "--quiet", "--workspace", "--bin", "karman"]))?;
    let (binary, state) = (target().join("debug/karman"), root().join("target/classify"));
    let karman = |arguments: &[&str]| {
        let mut karman = program(&binary);
        karman.arg("--state").arg(&state).args(arguments);
        karman
            .env("KARMAN_TOOLS", tools())
            .env("VIRTUAL_ENV", tools().join("venv"));
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
