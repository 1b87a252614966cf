//! What changes at a node is heard by those who ask it for work: calls go where a core is free, and not to a node that stops.

use crate::mesh::{FOUND, Node, first, path};
use crate::support::Ran;
use serde_json::Value;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Calls of which none may go to the wrong node.
const CALLS: usize = 10;
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
    let started = Instant::now();
    while !both.iter().all(offers) {
        assert!(started.elapsed() < FOUND, "the offers are not found");
    }
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
}
