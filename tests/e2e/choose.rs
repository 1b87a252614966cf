//! Who does a task of a workflow is chosen run by run: two digit models on two nodes, a link that becomes slow, a node that is gone,
//! and a log by which every decision can be told and made again.

use crate::mesh::{FOUND, Node, home, up};
use crate::support::{Home, root};
use serde_json::{Value, json};
use std::time::Instant;

const CAPABILITY: &str = "vision/classification/digits";
/// Runs before and after the link becomes slow.
const BEFORE: usize = 12;
const AFTER: usize = 40;
/// Five of a hundred may be late, so no more than this of all.
const LATE: usize = 10;

pub(crate) fn tract(tier: &str) -> Home {
    let home = home(tier);
    let file = home.path().join("config/karman/node.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, format!("backend = \"tract\"\n{config}")).unwrap();
    home
}

pub(crate) fn add(node: &Node, model: &str) {
    add_as(node, model, CAPABILITY);
}

/// A model that does this.
pub(crate) fn add_as(node: &Node, model: &str, capability: &str) {
    let file = root().join(format!("tests/models/{model}.onnx"));
    let does = format!("capability={capability}");
    node.run(&["model", "add", model, file.to_str().unwrap(), "--info", &does])
        .ok();
}

/// A workflow of one task that any digit model may do that is as accurate.
pub(crate) fn workflow(accuracy: f64) -> String {
    format!(
        r#"
        name = "digits"
        [slo]
        requests = 200
        accuracy = {accuracy}
        latency-p95 = "700 ms"
        [task.classify]
        capability = "{CAPABILITY}"
        inputs = [{{ name = "image", type = "f32", shape = [1, 1, 8, 8] }}]
        outputs = [{{ name = "probabilities", type = "f32", shape = [1, 10] }}]
        "#
    )
}

/// The digits that no model was trained with, each with its label: `digit-7-0042.png` is the 42nd of all.
pub(crate) fn digits() -> Vec<(Value, u8)> {
    let bytes = std::fs::read(root().join("tests/data/digits.bin")).unwrap();
    let digit = |bytes: &[u8]| {
        let rows = bytes[..64].chunks(8);
        let rows: Vec<Vec<f64>> = rows
            .map(|row| row.iter().map(|ink| f64::from(*ink) / 16.0).collect())
            .collect();
        (json!({ "image": [[rows]] }), bytes[64])
    };
    let held_out = std::fs::read_dir(root().join("tests/data/digits")).unwrap();
    let mut places: Vec<usize> = held_out
        .map(|file| {
            let name = file.unwrap().file_name().into_string().unwrap();
            let place = name.trim_end_matches(".png").rsplit('-').next().unwrap();
            place.parse().unwrap()
        })
        .collect();
    places.sort_unstable();
    places
        .into_iter()
        .map(|place| digit(&bytes[place * 65..][..65]))
        .collect()
}

/// Runs the workflow once; the id of the run.
pub(crate) fn run(node: &Node, workflow: &str, input: &Value) -> String {
    let order = json!({ "workflow": workflow, "input": input }).to_string();
    let headers = [("content-type", "application/json")];
    let accepted = node.server.post("/flows", &headers, order.as_bytes());
    assert_eq!(accepted.status, 202, "{accepted:?}");
    let run = accepted.json()["flow"].as_str().unwrap().to_owned();
    loop {
        let status = node.server.get(&format!("/flows/{run}?wait=20s")).json();
        match status["state"].as_str().unwrap() {
            "done" => return run,
            "failed" => panic!("{status}"),
            _ => {}
        }
    }
}

/// The model that served a run.
fn served(node: &Node, run: &str) -> String {
    let told = node.server.get(&format!("/flows/{run}/why")).json();
    let last = told
        .as_array()
        .unwrap()
        .last()
        .unwrap_or_else(|| panic!("{told}"));
    let chosen = last["why"]["chosen"].as_str().unwrap();
    chosen.split('@').next().unwrap().to_owned()
}

#[test]
fn the_choice_follows_the_links_and_every_decision_can_be_made_again() {
    let here = tract("edge");
    here.run(["mesh", "init"]).ok();
    let here = up(here, &[]);
    let word = here.invite(&["--tier", "cloud"]);
    let far = up(tract("cloud"), &["--join", &word]);
    add(&here, "digits-s");
    add(&far, "digits-l");
    here.soon(
        &["call", "model/digits-l", "-"],
        digits()[0].0.to_string().as_bytes(),
    );

    let file = here.home.path().join("digits.toml");
    std::fs::write(&file, workflow(0.9)).unwrap();
    let digits = digits();
    let examples: Vec<String> = digits
        .iter()
        .map(|(input, label)| json!({ "input": input, "output": { "probabilities": label } }).to_string())
        .collect();
    let data = here.home.path().join("examples.jsonl");
    std::fs::write(&data, examples.join("\n")).unwrap();
    let (file, data) = (file.to_str().unwrap(), data.to_str().unwrap());
    // Nobody guesses what they are worth.
    here.home
        .run_with(
            ["flow", "run", file, "--input", "-"],
            digits[0].0.to_string().as_bytes(),
        )
        .fails(4, "karman flow measure");
    let measured = here
        .run(&["flow", "measure", file, "classify", "--data", data, "--json"])
        .ok();
    let accuracy = |model: &str| {
        let lines = measured.out();
        let line = lines
            .lines()
            .find(|line| line.contains(model))
            .unwrap()
            .to_owned();
        let line: Value = serde_json::from_str(&line).unwrap();
        line["implementation"]["profile"]["accuracy"].as_f64().unwrap()
    };
    let (small, large) = (accuracy("digits-s"), accuracy("digits-l"));
    assert!(small > 0.9 && large > small, "{small} {large}");

    // The more accurate one, as long as it keeps the limits.
    let flow = workflow(0.9);
    let one = |n: usize| run(&here, &flow, &digits[n].0);
    let before: Vec<String> = (0..BEFORE).map(one).map(|run| served(&here, &run)).collect();
    let larger = before.iter().filter(|model| *model == "digits-l").count();
    assert!(larger > BEFORE / 2, "{before:?}");

    // Its link becomes slow: it may be late as often as the limit says, and then the other one serves.
    far.server.kill();
    let slow = far.home.path().join("slow.toml");
    std::fs::write(&slow, "[[link]]\nto = \"all\"\ndelay = \"1500ms\"\n").unwrap();
    let far = up(far.home, &["--link-profile", slow.to_str().unwrap()]);
    let input = digits[0].0.to_string();
    let meets_the_other = |node: &Node| {
        let started = Instant::now();
        while node
            .home
            .run_with(["call", "model/digits-l", "-"], input.as_bytes())
            .code
            != 0
        {
            assert!(started.elapsed() < FOUND * 6, "the other node is not found again");
        }
    };
    meets_the_other(&here);
    let after: Vec<String> = (0..AFTER).map(one).map(|run| served(&here, &run)).collect();
    let larger = after.iter().filter(|model| *model == "digits-l").count();
    assert!(larger <= LATE, "{after:?}");
    assert!(
        after[AFTER - 10..].iter().all(|model| model == "digits-s"),
        "{after:?}"
    );

    // The node that chooses starts again, and knows what it knew: where the other is, and what is left of the limit.
    assert_eq!(here.server.stop().0, 0);
    let here = up(here.home, &[]);
    meets_the_other(&here);
    let one = |n: usize| run(&here, &flow, &digits[n].0);
    let runs: Vec<String> = (0..6).map(one).collect();
    let why = here.run(&["why", &runs[0]]).ok().out();
    assert!(
        why.lines().last().unwrap().contains("it was last heard of"),
        "{why}"
    );
    let again: Vec<String> = runs.iter().map(|run| served(&here, run)).collect();
    let larger = again.iter().filter(|model| *model == "digits-l").count();
    assert!(larger <= 2, "{again:?}");

    // It is gone: whoever cannot be reached is left out, and no run fails.
    drop(far);
    let alone: Vec<String> = (0..6).map(one).map(|run| served(&here, &run)).collect();
    assert!(alone.iter().all(|model| model == "digits-s"), "{alone:?}");
    // Who is not accurate enough does not serve even then.
    let strict = here.home.path().join("strict.toml");
    std::fs::write(&strict, workflow((small + large) / 2.0)).unwrap();
    let started = Instant::now();
    loop {
        let ran = ["flow", "run", strict.to_str().unwrap(), "--input", "-"];
        let ran = here.home.run_with(ran, digits[0].0.to_string().as_bytes());
        assert_ne!(ran.code, 0, "{ran:?}");
        if ran.code == 4 && ran.stderr.contains("can be reached") {
            break;
        }
        assert!(started.elapsed() < FOUND * 6, "{ran:?}");
    }

    let last = run(&here, &flow, &digits[1].0);
    let why = here.run(&["why", &last]).ok().out();
    // Whoever did not answer was asked before, perhaps.
    let last = why.lines().last().unwrap();
    assert!(last.starts_with("who serves `classify`: digits-s@"), "{why}");
    let elsewhere = Home::new();
    let saved = elsewhere.path().join("decisions.cbor");
    let replayed = here
        .run(&["replay", "--save", saved.to_str().unwrap(), "--json"])
        .ok();
    let replayed: Value = serde_json::from_str(&replayed.out()).unwrap();
    let least = (BEFORE + AFTER + 6) as u64;
    assert!(replayed["same"].as_u64() >= Some(least), "{replayed}");
    assert_eq!(replayed["different"], json!([]), "{replayed}");
    drop(here);
    // The log is all that it takes.
    let again = elsewhere.run(["replay", saved.to_str().unwrap()]).ok();
    assert!(again.out().contains("0 did not"), "{again:?}");
}

#[test]
fn a_limit_on_energy_goes_by_what_calls_draw() {
    let home = tract("edge");
    let config = home.path().join("config/karman/node.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    // Where the kernel counts, that is what is taken.
    std::fs::write(&config, format!("{text}[power]\nbusy = 6.0\nidle = 2.0\n")).unwrap();
    let node = up(home, &[]);
    add(&node, "digits-s");
    let (file, data) = (
        node.home.path().join("digits.toml"),
        node.home.path().join("examples.jsonl"),
    );
    std::fs::write(&file, workflow(0.5)).unwrap();
    let digits = digits();
    let examples = digits.iter().take(50);
    let examples = examples
        .map(|(input, label)| json!({ "input": input, "output": { "probabilities": label } }).to_string());
    std::fs::write(&data, examples.collect::<Vec<_>>().join("\n")).unwrap();
    let (file, data) = (file.to_str().unwrap(), data.to_str().unwrap());
    let measured = |more: &[&str]| {
        let measure = ["flow", "measure", file, "classify", "--data", data, "--json"];
        let line: Value = serde_json::from_str(&node.run(&[&measure[..], more].concat()).ok().out()).unwrap();
        let joules = line["implementation"]["profile"]["energy"].as_f64();
        (joules, line["energy"]["origin"].as_str().unwrap().to_owned())
    };
    let (joules, origin) = measured(&[]);
    assert!(joules.is_some_and(|joules| joules >= 0.0));
    assert!(["measured", "derived"].contains(&origin.as_str()), "{origin}");
    let run = ["flow", "run", file, "--input", "-", "--slo", "energy=1000"];
    node.home.run_with(run, digits[0].0.to_string().as_bytes()).ok();
    // What the operator has from a meter counts before.
    let said = format!("digits-s@{}=2.5", &node.id()[..8]);
    assert_eq!(measured(&["--energy", &said]), (Some(2.5), "stated".into()));
}
