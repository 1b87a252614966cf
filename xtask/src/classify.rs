use crate::run::{cargo, root, show};
use crate::{guests, setup};
use anyhow::Result;
use std::path::{Path, PathBuf};

const PLUGIN: &str = "plugins/classify";

/// From a fresh checkout to a digit that is read.
pub(crate) fn classify(image: Option<PathBuf>) -> Result<()> {
    setup::setup(&[setup::WASM, setup::PYTHON])?;
    guests::guests(&["classify".into()])?;
    karman_run(image.as_deref().unwrap_or(Path::new("tests/data/seven.png")))
}

/// What a user types after `cargo install`, with the models of the tests.
fn karman_run(image: &Path) -> Result<()> {
    let mut karman = cargo(["run", "--quiet", "--bin", "karman", "--", "run", PLUGIN]);
    // A path that a person gives counts from where they are; cargo runs in the repository.
    let here = std::env::current_dir()?.join(image);
    karman.arg(if here.exists() { here } else { root().join(image) });
    show(karman.args(["--models", "tests/models"]))
}
