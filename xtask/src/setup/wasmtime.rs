//! `wasmtime serve`, which our nodes are compared with, as its users install it.

use super::Step;
use crate::run::{cargo, show, tools};
use anyhow::Result;

pub(crate) const WASMTIME: Step = Step {
    name: "wasmtime",
    recipe: VERSION,
    missing: || !tools().join("bin/wasmtime").exists(),
    install,
};

const VERSION: &str = "48.0.8";

fn install() -> Result<()> {
    let mut install = cargo([
        "install",
        "wasmtime-cli",
        "--version",
        VERSION,
        "--locked",
        "--root",
    ]);
    show(install.arg(tools()))
}
