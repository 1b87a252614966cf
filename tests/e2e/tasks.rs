//! Accepted tasks: what was acknowledged has an outcome, whatever is killed, and no effect happens twice.

use crate::mesh::{FOUND, Node, first, home, path, up};
use crate::support::{Server, pause, until};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Tasks of the test that kills, and how often it kills.
const TASKS: usize = 120;
const KILLS: usize = 6;
/// The time within which all of them have ended, on a machine with better things to do.
const ENDED: Duration = Duration::from_secs(120);

fn alone() -> Node {
    let node = up(home("edge"), &[]);
    node.run(&["deploy", &path("tally"), "--grant-asked"]).ok();
    node
}

/// Hands a task in; its id, unless the node is gone before it has acknowledged it.
fn submit(server: &Server, key: &str, sleep: &str) -> Option<String> {
    let headers = [
        ("karman-accept", "local"),
        ("karman-idempotency-key", key),
        ("karman-meta-sleep", sleep),
    ];
    let answer = server.try_post("/tasks/tally", &headers, key.as_bytes())?;
    match answer.status {
        202 => Some(answer.json()["task"].as_str().unwrap().to_owned()),
        0 => None,
        _ => panic!("{answer:?}"),
    }
}

fn state(server: &Server, task: &str) -> String {
    let status = server.get(&format!("/accepted/{task}")).json();
    status["state"]
        .as_str()
        .unwrap_or_else(|| panic!("{status}"))
        .to_owned()
}

#[track_caller]
fn ends(server: &Server, task: &str, as_state: &str) {
    let started = Instant::now();
    loop {
        let now = state(server, task);
        if now == as_state {
            return;
        }
        assert!(started.elapsed() < FOUND, "task {task} is {now}, not {as_state}");
        pause();
    }
}

#[test]
fn what_was_acknowledged_survives_kills_and_counts_once() {
    let mut node = alone();
    let mut accepted: BTreeMap<String, String> = BTreeMap::new();
    let mut kills = 0;
    for number in 0..TASKS {
        let key = format!("key-{number}");
        // Some take long enough to be killed in the middle.
        let sleep = if number % 3 == 0 { "50" } else { "0" };
        if number % (TASKS / KILLS) == TASKS / KILLS - 1 {
            // A request is under way while the power goes: it was accepted or it was not, and the caller cannot tell.
            std::thread::scope(|scope| {
                let server = &node.server;
                let asked = scope.spawn(move || {
                    server.try_post(
                        "/tasks/tally",
                        &[
                            ("karman-accept", "local"),
                            ("karman-idempotency-key", &format!("key-{number}")),
                        ],
                        format!("key-{number}").as_bytes(),
                    )
                });
                node.server.signal_kill();
                let _ = asked.join().unwrap();
            });
            node = up(node.home, &[]);
            kills += 1;
        }
        let task = submit(&node.server, &key, sleep).expect("the node is up");
        accepted.insert(key, task);
    }
    assert_eq!(kills, KILLS);
    let started = Instant::now();
    for (key, task) in &accepted {
        while state(&node.server, task) != "done" {
            assert!(
                started.elapsed() < ENDED,
                "{key} has not ended: {}",
                state(&node.server, task)
            );
            pause();
        }
        let result = node.server.get(&format!("/accepted/{task}/result"));
        assert_eq!((result.status, result.text().as_str()), (200, "1"), "{key}");
        // What a plugin answers is no page of the node's.
        assert!(
            result.head.contains("content-security-policy: sandbox "),
            "{result:?}"
        );
    }
    for key in accepted.keys() {
        let counted = node
            .server
            .post("/tasks/tally", &[("karman-meta-read", "1")], key.as_bytes());
        assert_eq!(counted.text(), "1", "{key} was counted {} times", counted.text());
    }
}

#[test]
fn a_key_is_used_for_one_thing() {
    let node = alone();
    let task = submit(&node.server, "once", "0").unwrap();
    ends(&node.server, &task, "done");
    assert_eq!(submit(&node.server, "once", "0").unwrap(), task);
    let headers = [("karman-accept", "local"), ("karman-idempotency-key", "once")];
    let other = node.server.post("/tasks/tally", &headers, b"something else");
    assert_eq!(other.status, 400, "{other:?}");
    assert!(other.text().contains("once"), "{other:?}");
    let no_promise = node
        .server
        .post("/tasks/tally", &[("karman-accept", "maybe")], b"");
    assert_eq!(no_promise.status, 400, "{no_promise:?}");
}

#[test]
fn a_task_waits_is_withdrawn_or_expires() {
    let node = alone();
    let accept = |more: &[&str]| {
        let arguments = [&["call", "nowhere", "-", "--accept", "local"], more].concat();
        node.run(&arguments).ok().out()
    };
    let (waits, late) = (accept(&[]), accept(&["--within", "300ms"]));
    assert_eq!(state(&node.server, &waits), "waiting");
    let why = "no node in reach offers `nowhere`";
    until(FOUND, "it is not said why a task waits", || {
        node.run(&["task", "status", &waits]).ok().out().contains(why)
    });
    node.run(&["task", "result", &waits])
        .fails(5, "has not ended: waiting, no node");
    ends(&node.server, &late, "expired");
    node.run(&["task", "result", &late])
        .fails(5, "time of the task is over");
    let cancelled = node.run(&["task", "cancel", &waits]).ok().out();
    assert!(cancelled.ends_with("withdrawn"), "{cancelled}");
    ends(&node.server, &waits, "cancelled");
    for (within, code, says) in [("9d", 5, "10080 min at most"), ("0s", 2, "no time")] {
        let late = ["call", "nowhere", "-", "--accept", "local", "--within", within];
        node.run(&late).fails(code, says);
    }
    node.run(&["task", "cancel", &waits]).fails(2, "has ended");
    let listed = node.run(&["task", "list", "--json"]).ok().out();
    assert_eq!(listed.lines().count(), 2, "{listed}");
    node.run(&["task", "status", "01JD7W2Z0Q8V5M3N9K4T6B1XAC"])
        .fails(4, "does not know");
    node.run(&["task", "status", "nonsense"]).fails(2, "nonsense");
    // Who withdraws what has ended meanwhile does not lose what came of it.
    let task = submit(&node.server, "late", "0").unwrap();
    ends(&node.server, &task, "done");
    let path = format!("/accepted/{task}?withdraw=true");
    let refused = node.home.ask("DELETE", &path, &[], b"").unwrap();
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.text().contains("has ended: done"), "{refused:?}");
    node.run(&["task", "result", &task]).ok();
}

#[test]
fn another_node_runs_it_over_the_buckets_of_the_owner() {
    let cloud = first();
    let allowed = ["--right", "bucket-read:tally", "--right", "bucket-write:tally"];
    let mut edge = cloud.joined("edge", &allowed);
    edge.run(&["deploy", &path("tally"), "--grant-asked"]).ok();
    let accept = [
        "call",
        "tally",
        "-",
        "--accept",
        "local",
        "--key",
        "here",
        "--meta",
        "sleep=3000",
    ];
    let task = cloud.home.run_with(accept, b"here").ok().out();
    until(FOUND, "it does not start", || {
        state(&cloud.server, &task) == "running"
    });
    // The provider goes in the middle of the attempt, and the next one counts.
    edge.server.kill();
    edge = up(edge.home, &[]);
    let ran = cloud.run(&["task", "result", &task, "--wait", "60s"]).ok();
    assert_eq!(ran.out(), "1");
    // What it counted is in the owner's bucket, not in that of the node that ran it.
    cloud.run(&["deploy", &path("tally"), "--grant-asked"]).ok();
    let read = ["call", "tally", "-", "--meta", "read=1"];
    assert_eq!(cloud.home.run_with(read, b"here").ok().out(), "1");
    assert_eq!(edge.home.run_with(read, b"here").ok().out(), "0");
}

#[test]
fn a_node_without_the_right_writes_no_bucket_of_another() {
    let cloud = first();
    let edge = cloud.joined("edge", &["--right", "bucket-read:tally"]);
    edge.run(&["deploy", &path("tally"), "--grant-asked"]).ok();
    let task = cloud
        .home
        .run_with(["call", "tally", "-", "--accept", "local"], b"here")
        .ok()
        .out();
    cloud
        .run(&["task", "result", &task, "--wait", "30s"])
        .fails(3, "bucket-write:tally");
}

#[test]
fn what_waits_at_a_drained_node_goes_on_elsewhere() {
    let cloud = first();
    let edge = cloud.joined("edge", &[]);
    // It is in the mesh once it sees the other.
    edge.soon(&["mesh", "ping", &cloud.id()], b"");
    let accept = ["call", "tally", "-", "--accept", "local", "--key", "later"];
    let task = edge.home.run_with(accept, b"later").ok().out();
    let drained = edge.run(&["node", "drain"]).ok().out();
    assert!(drained.contains("nothing runs or waits"), "{drained}");
    assert_eq!(state(&edge.server, &task), "moved");
    edge.run(&["call", "tally", "-", "--accept", "local"])
        .fails(4, "draining");
    cloud.run(&["deploy", &path("tally"), "--grant-asked"]).ok();
    let ran = cloud.run(&["task", "result", &task, "--wait", "30s"]).ok();
    assert_eq!(ran.out(), "1");
}

#[test]
fn a_node_that_is_drained_alone_says_what_waits_for_its_next_start() {
    let node = up(home("edge"), &[]);
    node.run(&["call", "nowhere", "-", "--accept", "local"]).ok();
    let drained = node.run(&["node", "drain"]).ok();
    assert_eq!(
        drained.out(),
        "drained: no node in reach takes over, 1 task waits here for the next start"
    );
    assert!(
        drained
            .stderr
            .contains("takes work again once it is started anew"),
        "{drained:?}"
    );
    let told = node.run(&["node", "drain", "--json"]).ok().out();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told, serde_json::json!({ "heirs": [], "waiting": 1 }));
}
