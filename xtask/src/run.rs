use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or_else(|| Path::new("."))
}

/// Where `setup` installs to. `karman_kit::Tools` looks there too.
pub(crate) fn tools() -> PathBuf {
    root().join("target/tools")
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A program that runs in the repository.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// Cargo, with what `setup` installed.
pub(crate) fn cargo<const N: usize>(arguments: [&str; N]) -> Command {
    let mut command = with_tools(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// A program that is told where the tools are.
pub(crate) fn with_tools(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = program(name);
    command.env("KARMAN_TOOLS", tools());
    if let Some(library) = onnxruntime() {
        command.env("KARMAN_ONNXRUNTIME", library);
    }
    if let Some(library) = nvrtc() {
        command.env("KARMAN_NVRTC", library);
    }
    command
}

/// Runs a command and shows what it prints.
pub(crate) fn show(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", words(command));
    let status = command.status().with_context(|| words(command))?;
    match status.success() {
        true => Ok(()),
        false => bail!("`{}` ended with {status}", words(command)),
    }
}

/// Runs a command; what it prints is shown only when it fails.
pub(crate) fn quiet(command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| words(command))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    bail!(
        "`{}` ended with {}:\n{}",
        words(command),
        output.status,
        said.trim()
    )
}

/// Whether a program is on `PATH`.
pub(crate) fn has(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Does something and prints one line with the time it took.
pub(crate) fn timed<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = work();
    let outcome = if result.is_ok() { "" } else { "   failed" };
    eprintln!("{what:<24} {:6.1} s{outcome}", start.elapsed().as_secs_f64());
    result
}

/// The newest ONNX Runtime that `setup` installed.
pub(crate) fn onnxruntime() -> Option<PathBuf> {
    library("venv", "onnxruntime/capi", "libonnxruntime.so")
}

/// The test runner, where `setup` installed it or it is on the path.
pub(crate) fn nextest() -> Option<PathBuf> {
    let installed = tools().join("nextest/bin/cargo-nextest");
    match installed.exists() {
        true => Some(installed),
        false => has("cargo-nextest").then(|| "cargo-nextest".into()),
    }
}

/// NVIDIA's compiler, where `setup --nvrtc` installed it.
pub(crate) fn nvrtc() -> Option<PathBuf> {
    library("nvrtc", "nvidia/cuda_nvrtc/lib", "libnvrtc.so")
}

/// The newest library of a Python package that begins so, in this environment.
fn library(environment: &str, folder: &str, begins: &str) -> Option<PathBuf> {
    let newest = |folder: PathBuf, begins: &str| {
        let mut found: Vec<_> = folder
            .read_dir()
            .ok()?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with(begins))
            })
            .collect();
        found.sort();
        found.pop()
    };
    let python = newest(tools().join(environment).join("lib"), "python3")?;
    newest(python.join("site-packages").join(folder), begins)
}

fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}
