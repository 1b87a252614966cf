use crate::run::{cargo, nextest, program, root, show, timed, tools, with_tools};
use crate::{guests, setup};
use anyhow::Result;
use std::path::Path;

/// Every test there is.
pub(crate) fn test() -> Result<()> {
    timed("setup", || {
        setup::setup(setup::ALL)?;
        setup::what_there_is(&[setup::NEXTEST])
    })?;
    timed("guests", || guests::guests(&[]))?;
    timed("plugins' own tests", plugins)?;
    timed("documentation tests", || {
        show(&mut cargo(["test", "--quiet", "--workspace", "--doc"]))
    })?;
    timed("host tests", || match nextest() {
        Some(nextest) => {
            let run = ["nextest", "run", "--workspace", "--profile", "quarters"];
            let threads = threads().to_string();
            show(with_tools(nextest).args(run).args(["--test-threads", &threads]))
        }
        None => show(&mut cargo(["test", "--workspace", "--lib", "--bins", "--tests"])),
    })
}

/// Of nextest: four for each core, which a test takes, and one for each of three that wait meanwhile. `.config/nextest.toml` says which.
fn threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    4 * cores + 3
}

/// The tests that plugins bring in their own language.
fn plugins() -> Result<()> {
    let folder = root().join("plugins");
    let mut plugins: Vec<_> = folder.read_dir().into_iter().flatten().flatten().collect();
    plugins.sort_by_key(std::fs::DirEntry::file_name);
    plugins.iter().try_for_each(|plugin| own_tests(&plugin.path()))?;
    ["flood/scene", "fed-pothole/learn"]
        .iter()
        .try_for_each(|part| own_tests(&folder.join(part)))
}

fn own_tests(plugin: &Path) -> Result<()> {
    let tests = [plugin.to_path_buf(), plugin.join("tests"), plugin.join("test")];
    let has_file = |fits: fn(&str) -> bool| {
        let mut files = tests
            .iter()
            .filter_map(|folder| folder.read_dir().ok())
            .flatten()
            .flatten();
        files.any(|file| fits(&file.file_name().to_string_lossy()))
    };
    let inside = |mut command: std::process::Command| show(command.current_dir(plugin));
    if plugin.join("Cargo.toml").exists() {
        // As the plugins are built: what generates their bindings is there already.
        inside(cargo(["test", "--quiet", "--release"]))?;
    }
    if has_file(|name| name.starts_with("test") && name.ends_with(".py")) {
        let folder = if plugin.join("tests").is_dir() {
            "tests"
        } else {
            "."
        };
        let mut python = program(tools().join("venv/bin/python"));
        python.args(["-m", "unittest", "discover", "-t", ".", "-s", folder]);
        inside(python)?;
    }
    if has_file(|name| name.ends_with(".test.js") || name.ends_with(".test.mjs")) {
        let mut node = program("node");
        node.arg("--test");
        inside(node)?;
    }
    if plugin.join("Makefile").exists() {
        let mut make = program("make");
        make.args(["--silent", "test"]);
        inside(make)?;
    }
    Ok(())
}
