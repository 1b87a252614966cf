//! Workflows over real nodes: tasks anywhere in the mesh, contracts, effects that happen once and are undone, and a coordinator that
//! is killed in the middle.

mod kept;
mod over;
mod room;
mod shapes;

use crate::choose::{add, digits, tract, workflow};
use crate::mesh::{FOUND, Node, first, home, path, up};
use crate::support::{Ran, pause, root};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time within which a run has ended, on a machine with better things to do.
const ENDED: Duration = Duration::from_secs(120);
/// Digits by which it is measured who tells them.
const EXAMPLES: usize = 20;
const KEYS: usize = 16;
const KILLS: usize = 4;

fn alone() -> Node {
    let node = up(home("edge"), &[]);
    node.run(&["deploy", &path("tally"), "--grant-asked"]).ok();
    node
}

/// A workflow in a file of this node.
fn flow(node: &Node, text: &str) -> String {
    let file = node.home.path().join("flow.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Hands a run in; its id.
fn begin(node: &Node, text: &str, input: &str) -> String {
    let file = flow(node, text);
    let run = ["flow", "run", &file, "--accept", "local", "--input", "-"];
    node.home.run_with(run, input.as_bytes()).ok().out()
}

fn status(node: &Node, run: &str) -> Value {
    node.server.get(&format!("/flows/{run}")).json()
}

/// How often a key was counted.
fn counted(node: &Node, key: &str) -> String {
    node.server
        .post("/tasks/tally", &[("karman-meta-read", "1")], key.as_bytes())
        .text()
}

#[track_caller]
fn until(node: &Node, run: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let started = Instant::now();
    loop {
        let status = status(node, run);
        if holds(&status) {
            return status;
        }
        assert!(started.elapsed() < ENDED, "it does not come about: {status}");
        pause();
    }
}

/// Each of its tasks gives what the run was given: the more have ended, the more is to be kept of it.
const GROWS: &str = r#"
    name = "grows"

    [task.one]
    run = "hostile"
    undo = "hostile"
    with = { do = "echo" }

    [task.two]
    run = "hostile"
    after = ["one"]
    with = { do = "echo" }

    [task.three]
    run = "hostile"
    after = ["two"]
    with = { do = "echo" }
"#;

/// Why a run ended as it did, as `karman why --json` tells it after what was decided.
fn why(node: &Node, run: &str) -> Value {
    let told = node.run(&["why", run, "--json"]).ok().out();
    let last = told.lines().last().unwrap();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {told}"))
}

fn step<'a>(status: &'a Value, name: &str) -> &'a Value {
    let steps = status["steps"].as_array().unwrap();
    steps
        .iter()
        .find(|step| step["task"] == name)
        .unwrap_or(&Value::Null)
}

#[test]
fn a_run_survives_kills_of_its_coordinator_and_counts_once() {
    let mut node = alone();
    let keys: Vec<String> = (0..KEYS).map(|n| format!("key-{n}")).collect();
    let text = r#"
        name = "tally-all"

        [task.count]
        run = "tally"
        each = "keys"
        at-once = 2
        retries = 2
        with = { sleep = "60" }

        [task.total]
        run = "tally"
        after = ["count"]
    "#;
    let run = begin(&node, text, &json!({ "keys": keys }).to_string());
    for kill in 0..KILLS {
        // Each time a little further, and in the middle of two of them.
        until(&node, &run, |status| {
            step(status, "count")["done"].as_u64() >= Some((kill * 3 + 1) as u64)
        });
        node.server.kill();
        node = up(node.home, &[]);
    }
    let ended = until(&node, &run, |status| {
        status["state"] == "done" || status["state"] == "failed"
    });
    assert_eq!(
        (&ended["state"], &ended["output"]),
        (&json!("done"), &json!("1")),
        "{ended}"
    );
    assert_eq!(step(&ended, "count")["done"], KEYS);
    for key in &keys {
        assert_eq!(counted(&node, key), "1", "{key}");
    }
    let listed = node.run(&["flow", "list"]).ok().out();
    assert!(listed.contains(&run) && listed.contains("tally-all"), "{listed}");
    let shown = node.run(&["flow", "status", &run]).ok().out();
    assert!(shown.contains(&format!("{KEYS}/{KEYS}")), "{shown}");
}

#[test]
fn tasks_run_where_they_are_and_edges_say_which() {
    let cloud = first();
    let edge = cloud.joined("edge", &[]);
    cloud.run(&["deploy", &path("tiny")]).ok();
    let model = root().join("tests/models/digits-s.onnx");
    cloud
        .run(&["model", "add", "digits-s", model.to_str().unwrap()])
        .ok();
    edge.soon(&["call", "tiny", "-"], b"12345");

    let file = flow(
        &edge,
        r#"
        name = "look"
        deadline = "60 s"

        [task.measure]
        run = "tiny"

        [task.classify]
        run = "model/digits-s"
        inputs = [{ name = "image", type = "f32", shape = [1, 1, 8, 8] }]
        outputs = [{ name = "probabilities", type = "f32", shape = [1, 10] }]

        [task.too-long]
        run = "tiny"

        [[edge]]
        from = "measure"
        to = "too-long"
        when = { field = ".", at-least = 100000 }

        [[edge]]
        from = "measure"
        to = "classify"
        default = true
        "#,
    );
    // The output of `measure` is a number, and no picture: the contract says so before anything is called.
    let refused = edge.home.run(["flow", "run", &file, "--json"]);
    refused.fails(2, "`classify`: input `.` is a number");

    let file = flow(
        &edge,
        r#"
        name = "look"
        [task.classify]
        run = "model/digits-s"
        retries = 2
        inputs = [{ name = "image", type = "f32", shape = [1, 1, 8, 8] }]
        outputs = [{ name = "probabilities", type = "f32", shape = [1, 10] }]
        [task.measure]
        run = "tiny"
        after = ["classify"]
        "#,
    );
    let row: Vec<f64> = (0..8).map(|n| f64::from(n) / 8.0).collect();
    let picture = json!({ "image": [[vec![row; 8]]] });
    let ran = edge
        .home
        .run_with(
            ["flow", "run", &file, "--input", "-"],
            picture.to_string().as_bytes(),
        )
        .ok();
    // As many bytes as ten probabilities take.
    assert!(ran.out().parse::<u64>().unwrap() > 50, "{ran:?}");
}

#[test]
fn what_failed_is_undone_and_says_why() {
    let node = alone();
    let file = flow(
        &node,
        r#"
        name = "broken"

        [task.count]
        run = "tally"
        undo = "tally"

        [task.check]
        run = "tally"
        after = ["count"]
        outputs = [{ name = "sum", type = "u8" }]
        "#,
    );
    let failed = node
        .home
        .run_with(["flow", "run", &file, "--input", "-", "--json"], b"road");
    let failed = failed.fails(1, "`check`: output `.` is a text");
    let run = failed
        .stderr
        .split("run ")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned();
    let status = status(&node, &run);
    assert_eq!(
        (&status["state"], &status["failed"]),
        (&json!("failed"), &json!("check")),
        "{status}"
    );
    // A program is told the same, beside the error.
    let told: Value = serde_json::from_str(&failed.out()).unwrap();
    assert_eq!(
        (&told["flow"], &told["state"]),
        (&json!(run), &json!("failed")),
        "{told}"
    );
    let path = format!("/flows/{run}?withdraw=true");
    let refused = node.home.ask("DELETE", &path, &[], b"").unwrap();
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.text().contains("has ended: failed"), "{refused:?}");
    assert_eq!(counted(&node, "road"), "1");
    // What undoes a task is told what went in and what came out.
    assert_eq!(counted(&node, r#"{"input":"road","output":"1"}"#), "1");
    let told = node.run(&["why", &run]).ok().out();
    assert!(
        told.contains("how `broken` ended: it failed in `check` because output `.` is a text")
            && told.ends_with("; undone: `count`"),
        "{told}"
    );
}

#[test]
fn a_withdrawn_run_is_undone_too() {
    let node = alone();
    let text = r#"
        name = "slow"

        [task.count]
        run = "tally"
        undo = "tally"

        [task.wait]
        run = "tally"
        after = ["count"]
        with = { sleep = "8000" }
    "#;
    let run = begin(&node, text, "road");
    until(&node, &run, |status| step(status, "wait")["state"] == "running");
    node.run(&["flow", "cancel", &run]).ok();
    let ended = until(&node, &run, |status| status["state"] == "cancelled");
    assert_eq!(counted(&node, r#"{"input":"road","output":"1"}"#), "1", "{ended}");
    let told = why(&node, &run);
    assert_eq!(
        (&told["cause"], &told["undone"], &told["why"]["because"]),
        (
            &json!("withdrawn"),
            &json!([{ "task": "count", "runs": 1 }]),
            &json!("somebody asked for that")
        ),
        "{told}"
    );
    node.run(&["flow", "cancel", &run]).fails(2, "has ended");
    node.run(&["flow", "status", "01JD7W2Z0Q8V5M3N9K4T6B1XAC"])
        .fails(4, "does not know");
}

#[test]
fn a_node_out_of_sight_is_looked_for_before_nobody_is_said_to_be_there() {
    let here = tract("edge");
    here.run(["mesh", "init"]).ok();
    let here = up(here, &[]);
    let word = here.invite(&["--tier", "cloud"]);
    let far = up(tract("cloud"), &["--join", &word]);
    add(&far, "digits-s");
    let digits = digits();
    let first = digits[0].0.to_string();
    here.soon(&["call", "model/digits-s", "-"], first.as_bytes());
    // Nobody else can do it.
    let file = flow(&here, &workflow(0.5));
    let known = digits.iter().take(EXAMPLES);
    let known: Vec<String> = known
        .map(|(input, label)| json!({ "input": input, "output": { "probabilities": label } }).to_string())
        .collect();
    let data = here.home.path().join("examples.jsonl");
    std::fs::write(&data, known.join("\n")).unwrap();
    let data = data.to_str().unwrap();
    here.run(&["flow", "measure", &file, "classify", "--data", data])
        .ok();
    let until = |what: &str, is: &dyn Fn(&Ran) -> bool| {
        let started = Instant::now();
        loop {
            let ran = ["flow", "run", &file, "--input", "-"];
            let ran = here.home.run_with(ran, first.as_bytes());
            if is(&ran) {
                return;
            }
            assert!(
                started.elapsed() < ENDED,
                "{what}: {ran:?}\n{}",
                here.home.said("")
            );
            pause();
        }
    };
    until("it does not run", &|ran| ran.code == 0);

    let node = far.id();
    let Node { home, server } = far;
    let (code, said) = server.stop();
    assert_eq!(code, 0, "{said}");
    until("nobody is looked for", &|ran| {
        assert_ne!(ran.code, 0, "{ran:?}");
        let looked = here.home.said("a node out of sight was looked for");
        ran.stderr.contains("can be reached") && looked.contains(&node)
    });
    let far = up(home, &[]);
    until("it is not found again", &|ran| ran.code == 0);
    drop(far);
}

#[test]
fn workflows_over_http_and_wrong_ones_refused() {
    let node = alone();
    let json_type = [
        ("content-type", "application/json"),
        ("karman-idempotency-key", "once"),
    ];
    let order = json!({ "workflow": "name = 'one'\n[task.tally]", "input": "here" }).to_string();
    let first = node.server.post("/flows", &json_type, order.as_bytes());
    assert_eq!(first.status, 202, "{first:?}");
    let run = first.json()["flow"].as_str().unwrap().to_owned();
    let again = node.server.post("/flows", &json_type, order.as_bytes());
    assert_eq!(again.json()["flow"], run.as_str());
    let started = Instant::now();
    let ended = loop {
        let status = node.server.get(&format!("/flows/{run}?wait=10s")).json();
        if status["state"] == "done" {
            break status;
        }
        assert!(started.elapsed() < FOUND * 3, "{status}");
    };
    assert_eq!(ended["output"], "1");
    let told = node.server.get(&format!("/flows/{run}/events"));
    let head = told.head.to_ascii_lowercase();
    assert!(head.contains("content-type: text/event-stream"), "{told:?}");
    let told = told.text();
    for event in [
        "id: 1\nevent: begun\n",
        "id: 2\nevent: done\n",
        "id: end\nevent: ended\n",
    ] {
        assert!(told.contains(event), "{told}");
    }
    for (workflow, says) in [
        (json!("name = 'a'\n[task.b]\nretrys = 1"), "retrys"),
        (
            json!({ "name": "a", "task": { "b": { "after": ["c"] } } }),
            "no task `c`",
        ),
    ] {
        let wrong = json!({ "workflow": workflow }).to_string();
        let refused = node.server.post("/flows", &json_type[..1], wrong.as_bytes());
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.text().contains(says), "{refused:?}");
    }
    // Only the operator sees them all.
    assert_eq!(node.server.get("/flows").status, 405);
    let missing = PathBuf::from("nowhere.toml");
    node.home
        .run(["flow", "run", missing.to_str().unwrap()])
        .fails(2, "nowhere.toml");
}
