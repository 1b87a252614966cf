//! What changes at a node is heard by those who ask it for work: calls go where a core is free, not to a node that stops, and not to one
//! that takes longer than it is nearer.

use crate::choose::{digits, tract};
use crate::mesh::{FOUND, Node, first, path, up};
use crate::support::{Ran, root};
use serde_json::{Value, json};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Calls of which none may go to the wrong node.
const CALLS: usize = 10;
/// After how many calls at most it is known what each node takes.
const SETTLED: usize = 60;
/// So many then go to the better one, one after the other: of a choice by chance that would be too many.
const IN_A_ROW: usize = 10;
/// What is offered anew, and what is not any more, is heard long before a look-up would tell.
const HEARD: Duration = Duration::from_secs(30);

/// Calls that keep a node busy until this is dropped.
struct Work {
    over: Arc<AtomicBool>,
    callers: Vec<JoinHandle<()>>,
}

impl Work {
    fn on(node: &Node, calls: u64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let callers = (0..calls).map(|n| {
            // They do not end together.
            let sleeps = format!("sleep={}", 3_000 + 700 * n);
            let call = || {
                let mut command = node.home.command(["call", "tally", "-", "--meta", &sleeps]);
                command
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null());
                command
            };
            let (mut command, over) = (call(), over.clone());
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    command.status().unwrap();
                }
            })
        });
        Self {
            callers: callers.collect(),
            over,
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for caller in self.callers.drain(..) {
            let _ = caller.join();
        }
    }
}

fn ran_on(ran: &Ran, node: &Node) -> bool {
    ran.stderr.contains(&format!("ran on {}", &node.id()[..8]))
}

/// What `asks` knows of `of`.
fn known(asks: &Node, of: &Node) -> Value {
    let (peers, id) = (asks.home.control("/mesh/peers"), of.id());
    let found = peers
        .as_array()
        .unwrap()
        .iter()
        .find(|peer| peer["node"] == id.as_str());
    found.cloned().unwrap_or_default()
}

/// Calls, as those do who are told of what changes, until this is known.
#[track_caller]
fn until(asks: &Node, what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < HEARD, "{what}");
        asks.home.run_with(["call", "tiny", "-"], b"12").ok();
    }
}

fn two_providers() -> (Node, [Node; 2]) {
    let cloud = first();
    let both = [cloud.joined("fog", &[]), cloud.joined("edge", &[])];
    for node in &both {
        node.run(&["deploy", &path("tiny")]).ok();
        node.run(&["deploy", &path("tally"), "--grant-asked"]).ok();
    }
    let offers = |node: &Node| {
        let offers = cloud.home.control("/mesh/offers").to_string();
        offers.contains(&node.id()) && offers.matches("\"tiny\"").count() >= 2
    };
    crate::support::until(FOUND, "the offers are not found", || both.iter().all(offers));
    (cloud, both)
}

#[test]
fn calls_go_where_a_core_is_free() {
    let (cloud, both) = two_providers();
    for (full, free) in [(&both[0], &both[1]), (&both[1], &both[0])] {
        let cores = known(&cloud, full)["offer"]["cores"].as_u64().unwrap();
        let work = Work::on(full, cores + 3);
        until(&cloud, "it is not heard that a node is busy", || {
            known(&cloud, full)["busy"].as_u64() >= Some(cores)
        });
        for _ in 0..CALLS {
            let ran = cloud.home.run_with(["call", "tiny", "-"], b"12").ok();
            assert!(ran_on(&ran, free), "{ran:?}");
        }
        drop(work);
        until(&cloud, "it is not heard that a node has time again", || {
            known(&cloud, full)["busy"] == 0
        });
    }
}

#[test]
fn nobody_asks_a_node_that_is_drained() {
    let (cloud, both) = two_providers();
    let offers = |node: &Node| known(&cloud, node)["offer"]["tasks"].as_array().map(Vec::len);
    until(&cloud, "the two are not known", || {
        both.iter().all(|node| offers(node) == Some(2))
    });
    both[0].run(&["node", "drain"]).ok();
    until(&cloud, "it is not heard that a node is drained", || {
        offers(&both[0]) == Some(0)
    });
    for _ in 0..CALLS {
        let ran = cloud.home.run_with(["call", "tiny", "-"], b"12").ok();
        assert!(ran_on(&ran, &both[1]), "{ran:?}");
    }
    // What is new is heard as well.
    both[1].run(&["deploy", &path("hostile")]).ok();
    until(&cloud, "it is not heard what a node has got", || {
        offers(&both[1]) == Some(3)
    });
    // Nor does it run what its own callers want; what it has is still taken from it.
    let ready = both[0].server.get("/readyz");
    assert_eq!((ready.status, ready.text().as_str()), (503, "drained\n"));
    let ran = both[0].home.run_with(["call", "tiny", "-"], b"12").ok();
    assert!(ran_on(&ran, &both[1]), "{ran:?}");
    let taken = cloud.run(&["undeploy", "tiny", "--on", "all"]).ok().out();
    for node in &both {
        assert!(taken.contains(&node.id()[..8]), "{taken}");
    }
    both[0]
        .run(&["call", "tiny", "-"])
        .fails(4, "this node is drained");
}

/// Two nodes with a model: one near and a thousand times slower, the other farther away.
fn near_and_far(cloud: &Node, model: &str) -> [Node; 2] {
    let write = |text: &str, file: std::path::PathBuf| {
        let before = std::fs::read_to_string(&file).unwrap_or_default();
        std::fs::write(&file, format!("{before}{text}")).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let near = tract("fog");
    let config = near.path().join("config/karman/node.toml");
    write("[compute]\nslowdown = 1000\n", config);
    let near = up(near, &["--join", &cloud.invite(&["--tier", "fog"])]);

    let far = tract("edge");
    let links = far.path().join("links.toml");
    let links = write("[[link]]\nto = \"all\"\ndelay = \"20ms\"\n", links);
    let word = cloud.invite(&["--tier", "edge"]);
    let far = up(far, &["--join", &word, "--link-profile", &links]);
    let file = root().join(format!("tests/models/{model}.onnx"));
    for node in [&near, &far] {
        node.run(&["model", "add", model, file.to_str().unwrap()]).ok();
    }
    [near, far]
}

#[test]
fn calls_go_to_whoever_answers_first_and_it_is_told_why() {
    let cloud = first();
    let [near, far] = near_and_far(&cloud, "digits-m");
    let task = "model/digits-m";
    let offers = |node: &Node| {
        let offers = cloud.home.control("/mesh/offers");
        let mut offers = offers.as_array().unwrap().iter().map(Value::to_string);
        offers.any(|offer| offer.contains(&node.id()) && offer.contains(task))
    };
    let started = Instant::now();
    while ![&near, &far]
        .into_iter()
        .all(|node| offers(node) && known(&cloud, node)["round_trip_us"].is_u64())
    {
        // Whom a first ping has not reached is pinged again after 30 s.
        assert!(started.elapsed() < HEARD * 2, "the two are not known");
    }

    let image = digits()[0].0.to_string();
    let call = |_| -> Value {
        let called = ["call", task, "-", "--json"];
        let ran = cloud.home.run_with(called, image.as_bytes()).ok();
        serde_json::from_str(&ran.out()).unwrap()
    };
    let by_far = |answer: &&Value| answer["node"] == far.id().as_str();
    let mut answers: Vec<Value> = Vec::new();
    // A machine that is busy with something else may keep a node from saying in time what it offers: that call goes to the other.
    while answers.iter().rev().take_while(by_far).count() < IN_A_ROW {
        assert!(answers.len() < SETTLED, "{answers:?}");
        answers.push(call(answers.len()));
    }

    // Of direct calls the first two in a second are in the log.
    let logged = |answer: &Value| by_far(&answer) && answer["decision"].is_string();
    let told = (0..100).map(call).find(logged).unwrap();
    let why = cloud.run(&["why", told["decision"].as_str().unwrap()]).ok().out();
    let (chosen, other) = (far.id(), near.id());
    let (chosen, other) = (&chosen[..8], &other[..8]);
    // Because it is expected to be sooner, or since it was not measured yet and may be.
    let says = format!("who runs `{task}`: {chosen}, rather than {other}, because it");
    let because = why.contains(" within ") && why.contains("; it took ");
    assert!(why.starts_with(&says) && because, "{why}");
    let replayed = cloud.run(&["replay", "--json"]).ok().out();
    let replayed: Value = serde_json::from_str(&replayed).unwrap();
    assert!(replayed["same"].as_u64() >= Some(1), "{replayed}");
    assert_eq!(replayed["repicked"], json!([]));
}
