//! Kept runs: steps that other nodes own, and more to be kept than the keepers take.

use super::{ENDED, GROWS, flow, status, step, until, why};
use crate::mesh::{Node, home, path, up};
use crate::support::{Home, pause};
use serde_json::{Value, json};
use std::time::Instant;

/// Links here are fast, and the tests in a hurry.
const HURRY: &str =
    "[keepers]\nheartbeat = \"200 ms\"\nelection = \"600 ms\"\npatience = \"5 s\"\nentry = \"64 KiB\"\n";

/// Three nodes that keep tasks, the first of which has made the mesh.
fn keepers() -> [Node; 3] {
    let configured = |tier: &str| -> Home {
        let home = home(tier);
        home.configure(HURRY);
        home
    };
    let first = configured("cloud");
    first.run(["mesh", "init"]).ok();
    let first = up(first, &[]);
    let joined = |tier: &str| {
        let rights = ["--right", "bucket-read:*", "--right", "bucket-write:*"];
        let word = first.invite(&[&["--tier", tier][..], &rights].concat());
        up(configured(tier), &["--join", &word])
    };
    let (second, third) = (joined("fog"), joined("edge"));
    let nodes = [first, second, third];
    let ids = nodes.each_ref().map(Node::id);
    let ids = ids.each_ref().map(String::as_str);
    nodes[0].soon(&[&["mesh", "keepers"][..], &ids].concat(), b"");
    for node in &nodes {
        has_majority(node);
        node.finds(3);
    }
    nodes
}

/// Waits until it is in touch with a majority of the keepers.
#[track_caller]
fn has_majority(node: &Node) {
    crate::support::until(ENDED, "there is no majority", || {
        node.run(&["mesh", "keepers", "--json"])
            .out()
            .contains("\"majority\":true")
    });
}

/// Hands a run in that is to be kept; its id.
fn begin_kept(node: &Node, text: &str, input: &[u8]) -> String {
    let file = flow(node, text);
    let run = ["flow", "run", &file, "--accept", "kept", "--input", "-"];
    node.soon(&run, input).out()
}

/// How the accepted task of this name is, at a node that owns one.
fn held(node: &Node, name: &str) -> Option<Value> {
    let tasks = node.home.control("/accepted");
    let mut tasks = tasks.as_array().unwrap().iter();
    tasks.find(|task| task["name"] == name).cloned()
}

/// The first of these nodes that comes to own a task of this name that stands so.
#[track_caller]
fn owner<'a>(nodes: &[&'a Node], name: &str, state: &str) -> &'a Node {
    let started = Instant::now();
    loop {
        let owns = |node: &&Node| held(node, name).is_some_and(|task| task["state"] == state);
        if let Some(node) = nodes.iter().copied().find(owns) {
            return node;
        }
        assert!(started.elapsed() < ENDED, "nobody owns `{name}` as {state}");
        pause();
    }
}

#[test]
fn a_withdrawn_run_stops_a_step_that_another_node_owns() {
    let nodes = keepers();
    let [first, second, drained] = &nodes;
    first.run(&["deploy", &path("hostile")]).ok();
    let text = r#"
        name = "far"

        [task.mark]
        run = "hostile"
        undo = "hostile"
        with = { do = "echo" }

        [task.wait]
        run = "tally"
        after = ["mark"]
        with = { sleep = "9000" }
    "#;
    let run = begin_kept(drained, text, b"road");
    // Nobody can run the second step yet. It goes to one heir, and the run to the other.
    owner(&[drained], "tally", "waiting");
    let heirs = [first, second];
    for heir in heirs {
        drained.soon(&["mesh", "ping", &heir.id()], b"");
    }
    drained.run(&["node", "drain"]).ok();
    let coordinator = owner(&heirs, "flow/far", "running");
    let owner_of_step = owner(&heirs, "tally", "waiting");
    assert_ne!(coordinator.id(), owner_of_step.id());
    owner_of_step
        .run(&["deploy", &path("tally"), "--grant-asked"])
        .ok();
    owner(&[owner_of_step], "tally", "running");

    coordinator.soon(&["flow", "cancel", &run], b"");
    owner(&[owner_of_step], "tally", "cancelled");
    let ended = until(coordinator, &run, |status| status["state"] == "cancelled");
    assert_eq!(step(&ended, "wait")["state"], "failed", "{ended}");
    let told = coordinator.server.get(&format!("/flows/{run}/events")).text();
    assert!(told.contains("event: undone\n"), "{told}");
    let started = Instant::now();
    loop {
        let status = owner_of_step.home.control("/status");
        let plugins = status["plugins"].as_array().unwrap();
        if plugins.iter().all(|plugin| plugin["running"] == 0) {
            break;
        }
        assert!(started.elapsed() < ENDED, "the guest still runs: {status}");
        pause();
    }
}

#[test]
fn a_run_that_outgrows_its_keepers_is_undone_and_says_why() {
    let nodes = keepers();
    nodes[0].run(&["deploy", &path("hostile")]).ok();
    // With the input and two outputs there is room, with three there is none.
    let input = vec![b'x'; 20_000];
    let run = begin_kept(&nodes[2], GROWS, &input);
    let ended = until(&nodes[2], &run, |status| status["state"] == "failed");
    assert_eq!(
        (&ended["error"]["kind"], &ended["failed"]),
        (&"limit".into(), &"three".into()),
        "{ended}"
    );
    let says = ended["error"]["message"].as_str().unwrap();
    assert!(
        says.contains("`keepers.entry`") && says.contains("64 KiB"),
        "{ended}"
    );
    assert_eq!(ended.get("not-undone"), None, "{ended}");
    let told = nodes[1].server.get(&format!("/flows/{run}/events")).text();
    for event in ["event: undoing\n", "event: undone\n", "event: ended\n"] {
        assert!(told.contains(event), "{told}");
    }
    assert_eq!(status(&nodes[0], &run)["error"], ended["error"]);
    // Any node tells why, by what is kept of it.
    let told = why(&nodes[1], &run);
    assert_eq!(
        (&told["cause"], &told["error"], &told["failed"]),
        (&json!("outgrown"), &ended["error"], &json!("three")),
        "{told}"
    );
    let told = nodes[1].run(&["why", &run]).ok().out();
    assert!(
        told.contains("how `grows` ended: it outgrew its keepers in `three` because")
            && told.ends_with("; undone: `one`"),
        "{told}"
    );
}
