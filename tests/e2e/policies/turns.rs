//! Policies that are asked by many: they share places, and requests take turns at one.

use super::sandbox::limited;
use super::{measured, replayed, workflow};
use crate::choose::{add_as, digits, run, tract};
use crate::gateway::infer;
use crate::mesh::Node;
use crate::support::guest;
use karman_engine::policy::MOST_FUEL;
use karman_node::DecisionLog;
use karman_sched::log::What;
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// What `karman why` says of a run once its policy was told of it too, so that nobody uses that any more.
fn ended(node: &Node, workflow: &str) -> String {
    let run = run(node, workflow, &digits()[0].0);
    loop {
        let said = node.run(&["why", &run]).ok().out();
        if said.contains("it took") {
            return said;
        }
    }
}

#[test]
fn policies_share_a_place_and_forget_nothing() {
    let node = measured("[policies]\ninstances = 1\n");
    node.run(&["deploy", guest("bad-policy").to_str().unwrap()]).ok();
    for times in 1..=3 {
        for task in ["classify", "sort"] {
            let said = ended(&node, &workflow(task, Some("bad-policy")));
            assert!(said.contains(&format!("asked {times} times")), "{task}: {said}");
        }
    }
    let replay = replayed(&node);
    assert_eq!((&replay["same"], &replay["different"]), (&json!(6), &json!([])));
}

/// Measures who does a capability, by a workflow with a task of this name.
fn measure(node: &Node, folder: &Path, capability: &str) {
    let flow = folder.join("flow.toml");
    let contract = r#"inputs = [{ name = "image", type = "f32", shape = [1, 1, 8, 8] }]
outputs = [{ name = "probabilities", type = "f32", shape = [1, 10] }]"#;
    let text = format!("name = \"digits\"\n[task.classify]\ncapability = \"{capability}\"\n{contract}\n");
    std::fs::write(&flow, text).unwrap();
    let (input, label) = &digits()[0];
    let example = json!({ "input": input, "output": { "probabilities": label } }).to_string();
    let data = folder.join("examples.jsonl");
    std::fs::write(&data, example).unwrap();
    let (flow, data) = (flow.to_str().unwrap(), data.to_str().unwrap());
    node.run(&["flow", "measure", flow, "classify", "--data", data])
        .ok();
}

#[test]
fn who_gives_up_before_its_turn_is_not_asked_for() {
    let home = tract("cloud");
    home.configure("[policies]\nselect = \"bad-policy\"\n");
    let server = home.start(["gateway", "--listen", "127.0.0.1:0", "--open", "infer:*"]);
    let node = Node { home, server };
    let folder = node.home.path().to_owned();
    // Nothing else names a policy, so that this one is missed.
    let doctor = node.run(&["doctor"]).ok().out();
    assert!(
        doctor.contains("this node has no policy `bad-policy`"),
        "{doctor}"
    );
    // It spins for as long as a policy may.
    let policy = folder.join("bad-policy.wasm");
    std::fs::write(
        &policy,
        limited("bad-policy", |limits| limits.fuel = Some(MOST_FUEL)),
    )
    .unwrap();
    node.run(&["deploy", policy.to_str().unwrap()]).ok();
    add_as(&node, "digits-s", "spins");
    measure(&node, &folder, "spins");
    // With the same bound they share a policy, however long each waits.
    let ask = |name: &str, within: &str| {
        let headers = [("karman-p95", "10 s"), ("karman-within", within)];
        infer(&node.server, name, &headers)
    };
    assert_eq!(ask("digits-s", "100 s").status, 200);
    let begun = Instant::now();
    assert_eq!(ask("spins", "100 s").status, 200);
    // Both of those who give up do so while it spins for the first of them, whatever the machine.
    let quarter = format!("{} ms", (begun.elapsed() / 4).as_millis());
    for (within, status) in [(quarter.as_str(), 504), (&quarter, 504), ("100 s", 200)] {
        let answer = ask("spins", within);
        assert_eq!(answer.status, status, "{answer:?}");
    }

    let saved = folder.join("decisions.cbor");
    node.run(&["replay", "--save", saved.to_str().unwrap()]).ok();
    let log = DecisionLog::read(&std::fs::read(&saved).unwrap()).unwrap();
    let queue = |what: &What| match what {
        What::Chosen(chosen) => Some(chosen.asked.queue),
        _ => None,
    };
    let spun = log.entries.iter().filter(|entry| entry.policy == "spins");
    let queues: Vec<usize> = spun.filter_map(|entry| queue(&entry.what)).collect();
    // All but one were decided: it had gone when its turn came, and waits nowhere.
    assert_eq!(queues, [1, 1, 1]);
}
