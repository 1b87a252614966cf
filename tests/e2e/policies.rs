//! Policies that plugins bring, on a real node: named in a workflow or as the node's own, swapped while it runs, left aside where they
//! fail, and decided again from the log when the plugin is gone.

mod place;
mod route;
mod sandbox;
mod turns;

use crate::choose::{add, digits, run, tract};
use crate::mesh::{Node, path, up};
use crate::support::{Home, guest};
use karman_package::{Package, ReadLimits};
use karman_types::Manifest;
use serde_json::{Value, json};

const CAPABILITY: &str = "vision/classification/digits";

/// A workflow whose one task is chosen for by this policy.
fn workflow(task: &str, select: Option<&str>) -> String {
    let select = select.map_or_else(String::new, |select| format!("select = \"{select}\""));
    format!(
        r#"
        name = "digits"
        {select}
        [slo]
        requests = 200
        accuracy = 0.9
        latency-p95 = "5 s"
        [task.{task}]
        capability = "{CAPABILITY}"
        inputs = [{{ name = "image", type = "f32", shape = [1, 1, 8, 8] }}]
        outputs = [{{ name = "probabilities", type = "f32", shape = [1, 10] }}]
        "#
    )
}

/// A node with two models that were measured; more in its `node.toml` besides.
fn measured(config: &str) -> Node {
    let home = tract("edge");
    home.configure(config);
    home.run(["mesh", "init"]).ok();
    let node = up(home, &[]);
    for model in ["digits-s", "digits-l"] {
        add(&node, model);
    }
    let file = node.home.path().join("digits.toml");
    std::fs::write(&file, workflow("classify", None)).unwrap();
    let examples: Vec<String> = digits()[..40]
        .iter()
        .map(|(input, label)| json!({ "input": input, "output": { "probabilities": label } }).to_string())
        .collect();
    let data = node.home.path().join("examples.jsonl");
    std::fs::write(&data, examples.join("\n")).unwrap();
    let (file, data) = (file.to_str().unwrap(), data.to_str().unwrap());
    let here = node.id()[..8].to_owned();
    let cost = format!("digits-l@{here}=0.01");
    node.run(&[
        "flow", "measure", file, "classify", "--data", data, "--cost", &cost,
    ])
    .ok();
    node
}

/// Runs a workflow once; what `karman why` says of it.
fn why(node: &Node, workflow: &str) -> String {
    let run = run(node, workflow, &digits()[0].0);
    node.run(&["why", &run]).ok().out()
}

fn replayed(node: &Node) -> Value {
    let replayed = node.run(&["replay", "--json"]).ok();
    serde_json::from_str(&replayed.out()).unwrap()
}

#[test]
fn a_policy_in_a_plugin_decides_and_is_swapped_while_the_node_runs() {
    let node = measured("");
    let flow = workflow("classify", Some("prices"));
    // Nobody stands in for a policy that is not there.
    let order = json!({ "workflow": flow, "input": digits()[0].0 }).to_string();
    let accepted = node.server.post(
        "/flows",
        &[("content-type", "application/json")],
        order.as_bytes(),
    );
    let id = accepted.json()["flow"].as_str().unwrap().to_owned();
    let status = node.server.get(&format!("/flows/{id}?wait=20s")).json();
    assert_eq!(status["state"], "failed", "{status}");
    assert!(status.to_string().contains("no policy `prices`"), "{status}");

    node.run(&["deploy", &path("prices")]).ok();
    let said = why(&node, &flow);
    assert!(
        said.contains("digits-l@") && said.contains("no budget is scarce"),
        "{said}"
    );
    // It is no task, and is not offered as one.
    let offers = node.home.control("/mesh/offers").to_string();
    assert!(
        offers.contains("digits-s") && !offers.contains("prices"),
        "{offers}"
    );
    node.run(&["call", "prices", "-"])
        .fails(2, "karman:policy/select");

    // Those that are built in are named in the same place.
    let said = why(&node, &workflow("classify", Some("greedy-cost")));
    assert!(
        said.contains("digits-s@") && said.contains("the cheapest"),
        "{said}"
    );

    // Another file under the name takes over with the next run; what the first decided stays decidable.
    let other = Home::new();
    let file = std::fs::read(guest("bad-policy")).unwrap();
    let manifest = Package::read(&file, &ReadLimits::default())
        .unwrap()
        .manifest
        .unwrap();
    let renamed = Manifest {
        name: "prices".into(),
        version: "0.2.0".parse().unwrap(),
        ..manifest
    };
    let newer = other.path().join("newer.wasm");
    std::fs::write(&newer, karman_package::embed(&file, &renamed).unwrap()).unwrap();
    node.run(&["deploy", newer.to_str().unwrap()]).ok();
    let said = why(&node, &flow);
    assert!(
        said.contains("because it is the first in reach, asked 1 times"),
        "{said}"
    );
    node.run(&["undeploy", "prices"]).ok();

    let replay = replayed(&node);
    assert_eq!(
        (&replay["same"], &replay["different"], &replay["without_plugin"]),
        (&json!(3), &json!([]), &json!([]))
    );
    // The log brings its policies along.
    let saved = other.path().join("decisions.cbor");
    node.run(&["replay", "--save", saved.to_str().unwrap()]).ok();
    drop(node);
    let again = other.run(["replay", saved.to_str().unwrap(), "--json"]).ok();
    assert_eq!(serde_json::from_str::<Value>(&again.out()).unwrap(), replay);
}

#[test]
fn a_node_has_a_policy_of_its_own_in_python() {
    let node = measured("[policies]\nselect = \"throttle\"\n");
    node.run(&["deploy", &path("throttle")]).ok();
    let said = why(&node, &workflow("classify", None));
    assert!(
        said.contains("digits-l@") && said.contains("its accuracy is the most for what it strains"),
        "{said}"
    );
    // Over a checkpoint: a new instance goes on from what the first has saved.
    for _ in 0..210 {
        run(&node, &workflow("classify", None), &digits()[1].0);
    }
    let replay = replayed(&node);
    assert_eq!((&replay["same"], &replay["different"]), (&json!(211), &json!([])));
}

#[test]
fn where_a_policy_fails_the_default_decides_and_the_log_says_why() {
    let node = measured("");
    node.run(&["deploy", guest("bad-policy").to_str().unwrap()]).ok();
    let good = why(&node, &workflow("classify", Some("bad-policy")));
    assert!(
        good.contains("because it is the first in reach, asked 1 times"),
        "{good}"
    );
    for (task, says) in [
        ("spins", "it used up its 3000000 units of fuel"),
        ("eats", "it needed more than its 4 MiB of memory"),
        ("panics", "nobody knows"),
        ("invents", "it named candidate 99, which is none of the task"),
        ("refuses", "it says: it is not for me to say"),
    ] {
        let said = why(&node, &workflow(task, Some("bad-policy")));
        let fell_back = "; policy bad-policy 0.1.0 did not decide, the default did: ";
        // The default's own words come first.
        assert!(
            said.contains("digits-l@") && said.contains(fell_back),
            "{task}: {said}"
        );
        assert!(said.contains(says), "{task}: {said}");
    }
    let logged = node.run(&["node", "logs"]).ok().out();
    assert!(
        logged.contains("policy bad-policy 0.1.0 did not decide, the default did"),
        "{logged}"
    );
    let replay = replayed(&node);
    assert_eq!((&replay["same"], &replay["different"]), (&json!(6), &json!([])));
}

const PHOTOS: &str = include_str!("../../host/sim/scenarios/photos.toml");

#[test]
fn the_simulator_asks_the_same_files() {
    let home = Home::new();
    let simulated = |name: &str, more: &[&str]| {
        let file = home.path().join("photos.toml");
        std::fs::write(&file, PHOTOS.replace("pixie", name)).unwrap();
        let out = ["sim", "run", file.to_str().unwrap(), "--out", "results"];
        home.run([&out, more].concat())
    };
    let served = |name: &str| {
        let ran = simulated(name, &["--policy", &path(name)]).ok();
        // It decided itself, every time.
        assert!(!ran.stderr.contains("did not decide"), "{ran:?}");
        let outcome = std::fs::read_to_string(home.path().join("results/outcome.json")).unwrap();
        let read: Value = serde_json::from_str(&outcome).unwrap();
        let by = &read["workloads"][0]["served_by"];
        let by = |n: usize| by[n][1].as_u64().unwrap() as f64;
        (outcome, by(0) / (by(0) + by(1)))
    };
    for name in ["prices", "throttle"] {
        let (_, share) = served(name);
        // There is money for 400 of 1,000 by the large one.
        assert!((0.35..=0.401).contains(&share), "{name}: {share}");
    }
    assert_eq!(served("prices"), served("prices"));
    simulated("prices", &[]).fails(2, "pass the plugin that brings it with --policy");
    // One that nobody names is not passed over in silence; two of one name cannot both be meant.
    let prices = path("prices");
    let ran = simulated("pixie", &["--policy", &prices]).ok();
    assert!(
        ran.stderr.contains("policy prices 0.1.0 was not asked"),
        "{ran:?}"
    );
    simulated("prices", &["--policy", &prices, "--policy", &prices]).fails(2, "that of another --policy");
    // One that fails is told, and the default stands in for it.
    let bad = PHOTOS.replace("name = \"photos\"", "name = \"spins\"");
    let file = home.path().join("bad.toml");
    std::fs::write(&file, bad.replace("pixie", "bad-policy")).unwrap();
    let ran = home.run([
        "sim",
        "run",
        file.to_str().unwrap(),
        "--policy",
        &path("bad-policy"),
    ]);
    let ran = ran.ok();
    let fuel = "it used up its 3000000 units of fuel";
    assert!(ran.stderr.contains(fuel), "{ran:?}");
    // Also to who wants no notes, and to programs.
    let again = |more: &str| {
        let (file, bad) = (file.to_str().unwrap(), path("bad-policy"));
        home.run(["sim", "run", file, "--policy", &bad, more]).ok()
    };
    let quiet = again("-q");
    assert!(
        quiet.stderr.contains("warning: ") && quiet.stderr.contains(fuel),
        "{quiet:?}"
    );
    let told: Value = serde_json::from_str(&again("--json").out()).unwrap();
    let mut failures = told["policy_failures"].as_array().unwrap().iter();
    let failure = failures.find(|failure| failure["why"].as_str().unwrap().contains(fuel));
    let failure = failure.unwrap_or_else(|| panic!("{told}"));
    assert_eq!(failure["policy"], "bad-policy 0.1.0");
    assert!(failure["times"].as_u64() > Some(0), "{failure}");
    // A policy for this run, without another file; and nothing is left of a run that kept its answers.
    let left = home.path().join("results/answers.csv");
    std::fs::write(&left, "").unwrap();
    let file = home.path().join("photos.toml");
    std::fs::write(&file, PHOTOS).unwrap();
    let out = [
        "sim",
        "run",
        file.to_str().unwrap(),
        "--out",
        "results",
        "--select",
    ];
    home.run([&out[..], &["greedy-cost"]].concat()).ok();
    let outcome = std::fs::read_to_string(home.path().join("results/outcome.json")).unwrap();
    let read: Value = serde_json::from_str(&outcome).unwrap();
    assert_eq!(read["workloads"][0]["served_by"][0], json!(["large", 0]));
    assert!(read["scenario"].as_str().unwrap().ends_with("photos.toml") && !left.exists());
    let nobody = home.run([&out[..], &["nobody"]].concat());
    nobody.fails(2, "there is no policy `nobody`");
}
