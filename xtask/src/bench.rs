use crate::run::{cargo, onnxruntime, program, show, target};
use crate::{guests, setup};
use anyhow::Result;

/// The studies of decisions: they do not need the tool but for their [live](LIVE) part, and guests only where they are [with
/// plugins](WITH_PLUGINS).
const EVIDENCE: &[&str] = &[
    "clusterless",
    "decision-cost",
    "edgeserving",
    "fate",
    "fed-privacy",
    "fed-tables",
    "fltorrent",
    "inside-layer",
    "la-imr",
    "partition-replay",
    "partition-tuning",
    "pixie",
    "planning",
    "pothole",
    "secagg",
    "sim-speed",
];

/// Those of them with rows of what plugins do, and these.
const WITH_PLUGINS: &[(&str, &[&str])] = &[
    ("decision-cost", &["min-min", "prices", "rendezvous", "throttle"]),
    ("pixie", &["prices", "throttle"]),
    ("pothole", &["event-screen"]),
];

/// Those of them with a live part, and that: a study of nodes.
const LIVE: &[(&str, &str)] = &[("edgeserving", "edgeserving-live"), ("pixie", "pixie-live")];

/// The studies of nodes that compare with nothing that has to be installed but ONNX Runtime.
const NODES: &[&str] = &[
    "edgeserving-live",
    "infer",
    "operators",
    "partition",
    "pixie-live",
    "sim-to-real",
];

/// Runs one study, built for speed, the tool beside it.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    if let Some(study) = arguments
        .first()
        .filter(|study| EVIDENCE.contains(&study.as_str()))
    {
        let mut build = cargo(["build", "--release", "--package", "karman-evidence"]);
        match WITH_PLUGINS.iter().find(|(with, _)| with == study) {
            Some((_, plugins)) => {
                setup::setup(&[setup::WASM, setup::PYTHON])?;
                guests::guests(&owned(plugins))?;
            }
            None => _ = build.arg("--no-default-features"),
        }
        show(&mut build)?;
        show(program(target().join("release/karman-evidence")).args(arguments))?;
        return live(study, arguments);
    }
    if arguments.first().is_some_and(|study| study == "gpu") {
        setup::setup(&[setup::DEBIAN, setup::PYTHON])?;
        show(&mut cargo([
            "build",
            "--release",
            "--package",
            "karman-gpu-study",
        ]))?;
        return study("karman-gpu-study", arguments);
    }
    if let Some(study) = arguments.first().filter(|study| NODES.contains(&study.as_str())) {
        return nodes(study, arguments);
    }
    setup::setup(setup::BENCH)?;
    match arguments.first().map(String::as_str) {
        Some("engine") => setup::what_there_is(&[setup::WASMTIME])?,
        Some("fed") => setup::setup(&[setup::FLOWER])?,
        Some("gateway") => setup::what_there_is(&[setup::WASMTIME, setup::KSERVE, setup::RAY])?,
        _ => {}
    }
    guests::guests(&[])?;
    beside_the_tool(&["--features", "karman-benches/peers"], arguments)
}

/// Runs the live part of a study of decisions, if it has one.
fn live(study: &str, arguments: &[String]) -> Result<()> {
    let Some((_, live)) = LIVE.iter().find(|(of, _)| *of == study) else {
        return Ok(());
    };
    let quick = arguments
        .iter()
        .filter(|argument| *argument == "--quick")
        .cloned();
    let arguments: Vec<String> = std::iter::once((*live).to_owned()).chain(quick).collect();
    nodes(live, &arguments)
}

/// Runs a study of nodes, with the tool beside it.
fn nodes(study: &str, arguments: &[String]) -> Result<()> {
    let built: &[&str] = match study {
        "infer" => &["infer", "tiny"],
        "operators" => &["operators"],
        _ => &[],
    };
    if !built.is_empty() {
        setup::setup(&[setup::DEBIAN, setup::WASM, setup::PYTHON])?;
        guests::guests(&owned(built))?;
    }
    beside_the_tool(&[], arguments)
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Builds the studies of nodes, and the tool beside them, and runs one.
fn beside_the_tool(more: &[&str], arguments: &[String]) -> Result<()> {
    let packages = ["--package", "karman", "--package", "karman-benches"];
    show(cargo(["build", "--release"]).args(packages).args(more))?;
    study("karman-benches", arguments)
}

/// Runs a study that is built, with ONNX Runtime where there is one.
fn study(binary: &str, arguments: &[String]) -> Result<()> {
    let mut study = program(target().join("release").join(binary));
    if let Some(library) = onnxruntime() {
        study.env("KARMAN_ONNXRUNTIME", library);
    }
    show(study.args(arguments))
}
