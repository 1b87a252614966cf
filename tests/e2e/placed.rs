//! Steps of workflows that a policy of the node places: they go where the model that they name is, it is told why, and it is decided the same
//! when it is decided again.

use crate::choose::{add, tract};
use crate::mesh::{FOUND, Node, path, up};
use crate::support::{Home, guest, until};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The time within which a run has ended, on a machine with better things to do.
const ENDED: Duration = Duration::from_secs(120);
const FLOW: &str = r#"
    name = "look"

    [task.screen]
    run = "infer"
    retries = 4         # until all offers are found
    pause = "1 s"
    with = { model = "digits-s", input = "image", shape = "1,1,8,8" }

    [task.measure]
    run = "tiny"
    after = ["screen"]
"#;

/// A node that is to place steps by this policy.
fn by(policy: &str) -> Home {
    let home = tract("edge");
    home.configure(&format!("[policies]\nplace = \"{policy}\"\n"));
    home
}

/// A node that places by this policy, and two others. All of them have the plugin of the first step; the last node alone has its model.
fn mesh(policy: &str) -> [Node; 3] {
    let here = by(policy);
    here.run(["mesh", "init"]).ok();
    let here = up(here, &[]);
    let other = |tier: &str| {
        let word = here.invite(&["--tier", tier]);
        up(tract(tier), &["--join", &word])
    };
    let (fog, cloud) = (other("fog"), other("cloud"));
    for node in [&here, &fog, &cloud] {
        node.run(&["deploy", &path("infer"), "--grant-asked"]).ok();
    }
    add(&cloud, "digits-s");
    here.run(&["deploy", &path("tiny")]).ok();
    let all_known = || {
        let offers = here.home.control("/mesh/offers");
        let offers = offers.as_array().unwrap().iter().map(Value::to_string);
        let offers: Vec<String> = offers.filter(|offer| offer.contains("infer")).collect();
        let holds = |offer: &String| offer.contains("digits-s");
        offers.len() >= 2 && offers.iter().any(holds)
    };
    until(FOUND, "the offers are not found", all_known);
    [here, fog, cloud]
}

/// How the workflow ended, run on numbers that a text stands for: as many as the model takes.
fn ended(node: &Node) -> (String, Value) {
    let order = json!({ "workflow": FLOW, "input": "0".repeat(64 * 4) }).to_string();
    let headers = [("content-type", "application/json")];
    let accepted = node.server.post("/flows", &headers, order.as_bytes());
    assert_eq!(accepted.status, 202, "{accepted:?}");
    let run = accepted.json()["flow"].as_str().unwrap().to_owned();
    let started = Instant::now();
    loop {
        let status = node.server.get(&format!("/flows/{run}?wait=20s")).json();
        match status["state"].as_str().unwrap() {
            "done" => return (run, status),
            "failed" => panic!("{status}"),
            _ => assert!(started.elapsed() < ENDED, "it does not end: {status}"),
        }
    }
}

fn step<'a>(status: &'a Value, name: &str) -> &'a Value {
    let mut steps = status["steps"].as_array().unwrap().iter();
    steps.find(|step| step["task"] == name).unwrap()
}

#[test]
fn a_step_goes_where_its_model_is_and_it_is_told_why() {
    let [here, _fog, cloud] = mesh("fate");
    let holder = cloud.id();
    for _ in 0..3 {
        let (run, status) = ended(&here);
        let screen = step(&status, "screen");
        assert_eq!(screen["node"], holder.as_str(), "{status}");
        let why = screen["why"].as_str().unwrap();
        assert!(why.starts_with("it is done there within "), "{status}");
        // One node only has the other task: there is nothing to decide.
        assert_eq!(step(&status, "measure")["node"], Value::Null, "{status}");

        let told = here.run(&["why", &run]).ok().out();
        let says = format!("where `screen` runs: {}", &holder[..8]);
        assert!(told.contains(&says) && told.contains("; it took "), "{told}");
        let shown = here.run(&["flow", "status", &run]).ok().out();
        assert!(shown.contains(&format!("on {}: {why}", &holder[..8])), "{shown}");
    }
    let replayed = here.run(&["replay", "--json"]).ok().out();
    let replayed: Value = serde_json::from_str(&replayed).unwrap();
    assert_eq!(replayed["replaced"], json!([]), "{replayed}");
    assert!(replayed["same"].as_u64() >= Some(3), "{replayed}");
}

#[test]
fn a_plugin_places_steps_and_until_it_is_there_fate_does() {
    let [here, _fog, cloud] = mesh("min-min");
    let holder = cloud.id();
    let doctor = here.run(&["doctor"]).ok().out();
    assert!(
        doctor.contains("this node has no policy `min-min` that places"),
        "{doctor}"
    );
    let told = |here: &Node| {
        let (run, status) = ended(here);
        assert_eq!(step(&status, "screen")["node"], holder.as_str(), "{status}");
        here.run(&["why", &run]).ok().out()
    };
    let said = told(&here);
    assert!(
        said.contains("policy min-min did not decide, the default did: no plugin of this name"),
        "{said}"
    );
    here.run(&["deploy", guest("min-min").to_str().unwrap()]).ok();
    let said = told(&here);
    assert!(!said.contains("did not decide"), "{said}");
    let replayed = here.run(&["replay", "--json"]).ok().out();
    let replayed: Value = serde_json::from_str(&replayed).unwrap();
    assert_eq!(
        (&replayed["replaced"], &replayed["without_plugin"]),
        (&json!([]), &json!([])),
        "{replayed}"
    );
}

#[test]
fn a_policy_by_which_a_node_cannot_place_is_refused_by_name() {
    let says = "a node cannot place the steps of workflows by `round-robin`: it goes by whose turn it is";
    by("round-robin")
        .run(["node", "up", "--listen", "127.0.0.1:0"])
        .fails(2, says);
}
