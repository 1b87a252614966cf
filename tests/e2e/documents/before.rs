//! What the documents take for granted where a block begins: files that are there, nodes that run, models that were measured.

use super::stage::Stage;
use crate::choose::digits;
use crate::mesh::FOUND;
use crate::support::{Registry, guest, root};
use karman_package::{Package, ReadLimits};
use karman_types::Manifest;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

/// What the documents call a node, and a task or a run.
const NODE: &str = "9c01d2e7";
const TASK: &str = "01M7ZE67S8BABCYPM4FQJSZ5RF";
const DIGITS: &str = "vision/classification/digits";

/// The file that a document shows: its block of TOML with the name in the first line.
fn file_of(document: &str, name: &str) -> String {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let (_, rest) = text.split_once(&format!("```toml\n# {name}\n")).unwrap();
    rest.split_once("```\n").unwrap().0.to_owned()
}

/// A plugin that is built already, under another name.
fn renamed(built: &str, name: &str) -> Vec<u8> {
    let file = std::fs::read(guest(built)).unwrap();
    let read = Package::read(&file, &ReadLimits::default()).unwrap();
    let manifest = Manifest {
        name: name.into(),
        ..read.manifest.unwrap()
    };
    karman_package::embed(&file, &manifest).unwrap()
}

/// A picture of a seven, as tensors by name.
fn seven() -> Value {
    let mut digits = digits().into_iter();
    let (image, _) = digits.find(|(_, label)| *label == 7).unwrap();
    image
}

fn model(stage: &mut Stage, machine: &str, name: &str) {
    let file = format!("{name}.onnx");
    stage.copy(machine, &file, &format!("tests/models/{file}"));
}

/// What the documents of workflows and policies measure digit models with.
fn labelled(stage: &mut Stage) {
    for name in ["digits-s", "digits-l"] {
        model(stage, "", name);
    }
    let examples: Vec<String> = digits()
        .iter()
        .map(|(input, label)| json!({ "input": input, "output": { "probabilities": label } }).to_string())
        .collect();
    stage.write("", "examples.jsonl", examples.join("\n"));
    stage.write("", "digits.toml", file_of("docs/workflows.md", "digits.toml"));
}

/// Both digit models on the node of `$`, each with its profile.
fn profiles(stage: &mut Stage) {
    labelled(stage);
    for name in ["digits-s", "digits-l"] {
        let add = format!("karman model add {name} {name}.onnx --info capability={DIGITS}");
        stage.run("", &add);
    }
    let here = stage.id("");
    let cost = format!("--cost digits-l@{here}=0.002");
    stage.run(
        "",
        &format!("karman flow measure digits.toml classify --data examples.jsonl {cost}"),
    );
}

pub(super) fn a_digit(stage: &mut Stage) {
    model(stage, "", "digits-m");
    stage.copy("", "seven.png", "tests/data/seven.png");
}

pub(super) fn digits_elsewhere(stage: &mut Stage) {
    stage.plugin("cloud", "classify.wasm", "classify");
    stage.copy("cloud", "seven.png", "tests/data/seven.png");
    model(stage, "pi", "digits-m");
    stage.run("pi", "karman model add digits-m digits-m.onnx");
}

pub(super) fn digits_by_the_protocol(stage: &mut Stage) {
    model(stage, "", "digits-s");
}

pub(super) fn registry(stage: &mut Stage) {
    let registry = Registry::start();
    stage.call("localhost:5000", &registry.address.to_string());
    stage.keep(registry);
}

pub(super) fn plugin_for_the_other_board(stage: &mut Stage) {
    stage.run("pi1", "karman new hello-rust --lang rust");
    let other = stage.id("pi2");
    stage.call(NODE, &other);
}

pub(super) fn counting(stage: &mut Stage) {
    stage.run("", "karman node up");
    stage.plugin("", "tally.wasm", "tally");
    stage.run("", "karman deploy tally.wasm --grant-asked");
    stage.write("", "bridge.txt", "bridge");
}

pub(super) fn three_keepers(stage: &mut Stage) {
    stage.set_up("cloud", "cloud", "");
    stage.first("cloud");
    for (machine, called) in [("one", "41f0a8b3"), ("other", "d7752e10")] {
        stage.join("cloud", machine, "edge");
        let id = stage.id(machine);
        stage.call(called, &id);
    }
    let id = stage.id("cloud");
    stage.call(NODE, &id);
    stage.write("cloud", "report.wasm", renamed("tiny", "report"));
    stage.run("cloud", "karman deploy report.wasm");
    stage.write("cloud", "data.csv", "1,2\n");
}

/// Ends the node of `$` as a service manager does.
pub(super) fn a_service(stage: &mut Stage) {
    let stop = format!("#!/bin/sh\nkill -TERM {}\n", stage.process(""));
    stage.write("", "bin/systemctl", stop);
    let tool = stage.home("").path().join("bin/systemctl");
    std::fs::set_permissions(tool, Permissions::from_mode(0o755)).unwrap();
}

/// What people are asked for where a root key is backed up.
pub(super) fn passphrase(stage: &mut Stage, machine: &str) {
    stage.run(machine, "export KARMAN_PASSPHRASE='where the sky ends'");
}

pub(super) fn two_machines(stage: &mut Stage) {
    passphrase(stage, "cloud");
    stage.plugin("cloud", "event-screen.wasm", "event-screen");
    stage.copy("cloud", "road.csv", "plugins/event-screen/tests/road.csv");
}

pub(super) fn ping(stage: &mut Stage) {
    let id = stage.id("cloud");
    stage.call(NODE, &id);
}

pub(super) fn gateway(stage: &mut Stage) {
    stage.set_up("", "cloud", "");
    stage.run("", "karman mesh init");
    stage.copy("", "tests/models/digits-s.onnx", "tests/models/digits-s.onnx");
}

pub(super) fn objectives(stage: &mut Stage) {
    profiles(stage);
    let seven = seven();
    let rows = seven["image"][0][0].as_array().unwrap().iter();
    let pixels: Vec<&Value> = rows.flat_map(|row| row.as_array().unwrap()).collect();
    let image = json!({ "name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": pixels });
    let request = json!({ "inputs": [image], "outputs": [{ "name": "probabilities" }] });
    stage.write("", "seven.json", request.to_string());
}

pub(super) fn an_edge_node(stage: &mut Stage) {
    stage.join("", "edge", "edge");
    stage.plugin("", "tiny.wasm", "tiny");
}

pub(super) fn satellite(stage: &mut Stage) {
    stage.first("");
    stage.join("", "satellite", "space");
    stage.copy("", "flood-s.onnx", "plugins/flood/models/flood-s.onnx");
}

pub(super) fn fog_and_cloud(stage: &mut Stage) {
    for tier in ["fog", "cloud"] {
        stage.join("", tier, tier);
    }
    // Parts go from one to the other, so they have to have met.
    let cloud = stage.id("cloud");
    stage.run(
        "fog",
        &format!("until karman mesh ping {cloud} > /dev/null 2>&1; do sleep 0.2; done"),
    );
    stage.copy("", "flood-l.onnx", "plugins/flood/models/flood-l.onnx");
    stage.run("", "karman model add flood-l flood-l.onnx");
}

pub(super) fn tally(stage: &mut Stage) {
    stage.write("", "tally.toml", file_of("docs/workflows.md", "tally.toml"));
    let pages = vec!["water ".repeat(100); 12];
    stage.write("", "pages.json", json!({ "pages": pages }).to_string());
}

pub(super) fn tally_with_plugins(stage: &mut Stage) {
    stage.set_up("", "edge", "[power]\nbusy = 6.4\nidle = 2.7\n");
    stage.run("", "karman node up");
    tally(stage);
    stage.plugin("", "words.wasm", "words");
}

/// A run waits until somebody does.
pub(super) fn nobody_counts(stage: &mut Stage) {
    stage.run("", "karman undeploy words");
}

pub(super) fn a_run_of_tally(stage: &mut Stage) {
    stage.run("", "karman deploy words.wasm");
    let run = stage.run("", "karman flow run tally.toml --input pages.json --accept local");
    stage.call(TASK, run.trim());
}

pub(super) fn a_model_as_a_task(stage: &mut Stage) {
    model(stage, "", "digits-m");
    stage.run("", "karman model add digits-m digits-m.onnx");
    stage.write("", "seven.json", seven().to_string());
}

pub(super) fn examples(stage: &mut Stage) {
    labelled(stage);
    let id = stage.id("");
    stage.call(NODE, &id);
}

pub(super) fn a_run_of_digits(stage: &mut Stage) {
    let run = stage.run(
        "",
        "karman flow run digits.toml --input seven.json --accept local",
    );
    stage.run("", &format!("karman flow status {} --wait 30s", run.trim()));
    stage.call(TASK, run.trim());
}

pub(super) fn measured(stage: &mut Stage) {
    stage.first("");
    profiles(stage);
    let workflow = file_of("docs/workflows.md", "digits.toml");
    stage.write("", "digits.toml", format!("select = \"prices\"\n{workflow}"));
    stage.write("", "seven.json", seven().to_string());
    // A plugin's file stands for its project's folder.
    stage.plugin("", "plugins/prices", "prices");
}

pub(super) fn two_have_the_model(stage: &mut Stage) {
    for machine in ["near", "far"] {
        model(stage, machine, "digits-m");
        stage.run(machine, "karman model add digits-m digits-m.onnx");
        stage.join("", machine, "fog");
    }
    let started = Instant::now();
    loop {
        let offers = stage.home("").control("/mesh/offers");
        let offers = offers.as_array().unwrap().iter();
        let found = offers.filter(|offer| offer.to_string().contains("digits-m"));
        if found.count() == 2 {
            return;
        }
        assert!(started.elapsed() < FOUND, "the offers are not found");
    }
}

pub(super) fn scenario(stage: &mut Stage) {
    let scenario = file_of("docs/simulator.md", "scenario.toml");
    stage.write("", "scenario.toml", scenario);
}

/// A run in the node's own folder, which no node may have meanwhile.
pub(super) fn clients_in_one_process(stage: &mut Stage) {
    stage.down("");
    stage.write("", "digits.toml", file_of("docs/federated.md", "digits.toml"));
    stage.plugin("", "plugins/fed-digits", "fed-digits");
}

/// A short run of two clients on nodes.
fn on_nodes(name: &str, more: &str) -> String {
    format!(
        "name = '{name}'\nrounds = 2\nstart-with = 2\n{more}\n\
         [clients]\nplugin = 'fed-digits'\non = 'tier=edge'\nshares = 2\n\
         [pace]\nmode = 'synchronous'\nclients = 2\n\
         [training]\nepochs = 1\nbatch = 8\nlearning-rate = 0.3\n"
    )
}

pub(super) fn clients_on_nodes(stage: &mut Stage) {
    stage.set_up("cloud", "cloud", "");
    stage.first("cloud");
    for machine in ["one", "other"] {
        stage.join("cloud", machine, "edge");
    }
    stage.plugin("cloud", "fed-digits.wasm", "fed-digits");
    stage.write("cloud", "digits.toml", on_nodes("digits", ""));
}

pub(super) fn a_strategy(stage: &mut Stage) {
    let strategy = "[strategy]\nname = 'plugin'\nplugin = 'mine'\n[strategy.properties]\nmomentum = '0.9'";
    stage.write("cloud", "digits.toml", on_nodes("digits-by-mine", strategy));
}

/// A dish and a satellite that know of a valley.
pub(super) fn water(stage: &mut Stage) {
    stage.first("dish");
    stage.join("dish", "satellite", "space");
    stage.copy("dish", "flood-s.onnx", "plugins/flood/models/flood-s.onnx");
    stage.plugin("dish", "fed-flood.wasm", "fed-flood");
    stage.run("dish", "karman deploy fed-flood.wasm");
    stage.run("dish", "karman deploy fed-flood.wasm --on tier=space");
    let run = "name = 'water'\nrounds = 1\nstart-with = 2\nmodel = 'flood-s'\n\
         [clients]\nplugin = 'fed-flood'\nshares = 2\n\
         [clients.properties]\npictures = '8'\nheld = '2'\n\
         [pace]\nmode = 'synchronous'\nclients = 2\n\
         [training]\nepochs = 1\nbatch = 16\nlearning-rate = 0.001\n";
    stage.write("dish", "water.toml", run);
}
