//! Policies that route, brought by plugins: every way to fail, and on a real node in a mesh, swapped while it runs and decided again when they
//! are gone.

use super::replayed;
use super::sandbox::{guests, loaded};
use crate::mesh::{FOUND, Node, home, path, up};
use crate::support::{Home, guest, until};
use karman_engine::Plugin;
use karman_package::{Package, ReadLimits};
use karman_sched::call::{Picked, Route, Taker};
use karman_sched::plugin::{ByName, Failure};
use karman_types::{Manifest, NodeId};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn brought(plugin: &Arc<Plugin>) -> ByName {
    let policy = plugin.route_policy().unwrap();
    let mut brought = ByName::new(policy.name.clone());
    brought.set_plugin(Some((policy, guests(plugin))));
    brought
}

/// Each nearer than the one before.
fn takers(count: u64) -> Vec<Taker> {
    let taker = |n: u64| Taker {
        round_trip: Some(Duration::from_millis(count - n)),
        takes: Some(Duration::from_millis(30)),
        ..Taker::new(NodeId::of_key(&n.to_le_bytes()), 4)
    };
    (0..count).map(taker).collect()
}

fn pick(policy: &mut ByName, task: &str, count: u64) -> Picked {
    policy.decide(Duration::ZERO, (task.into(), takers(count)))
}

#[test]
fn each_decision_is_made_by_an_instance_of_its_own_and_made_again_by_another() {
    let plugin = loaded("bad-route");
    let mut policy = brought(&plugin);
    let other = guests(&loaded("bad-route"));
    for count in 2..60 {
        let picked = pick(&mut policy, "echo", count);
        assert_eq!((picked.order[0] as u64, picked.failed()), (count - 1, None));
        let why = picked.why().to_string();
        let says = format!("because it is the last of {count}, asked 1 times");
        assert!(why.ends_with(&says), "{why}");
        assert_eq!(picked.again(Some(&*other)), Ok(picked.clone()));
    }
    let error = loaded("tiny").route_policy().unwrap_err();
    assert!(error.to_string().contains("karman:policy/route"), "{error}");
    let error = plugin.select_policy().unwrap_err();
    assert!(error.to_string().contains("karman:policy/select"), "{error}");
}

#[test]
fn however_it_fails_the_default_decides_and_says_why() {
    let plugin = loaded("bad-route");
    let by_default = Route::default().order(&takers(5));
    for (task, says) in [
        ("traps", "it trapped: "),
        ("panics", "nobody knows"),
        ("spins", "it used up its 3000000 units of fuel"),
        ("eats", "it needed more than its 4 MiB of memory"),
        ("asks-the-time", "which it does not have"),
        ("draws", "which it does not have"),
        ("invents", "it named candidate 99, which is none of the providers"),
        ("repeats", "it named candidate 4, which it had named before"),
        ("names-nobody", "it named nobody"),
        ("refuses", "it says: it is not for me to say"),
        ("talks", "it gave what cannot be read"),
    ] {
        let picked = pick(&mut brought(&plugin), task, 5);
        assert_eq!(picked.order, by_default, "{task}");
        let told = picked.told(picked.takers[picked.order[0]].node);
        let fell_back = "; policy bad-route 0.1.0 did not decide, the default did: ";
        assert!(told.contains(fell_back) && told.contains(says), "{task}: {told}");
        // It fails in the same way when it is asked again.
        assert_eq!(
            picked.again(Some(&*guests(&plugin))),
            Ok(picked.clone()),
            "{task}"
        );
    }
}

#[test]
fn the_limits_of_a_log_are_those_of_the_engine() {
    let plugin = loaded("rendezvous");
    let mut picked = pick(&mut brought(&plugin), "echo", 3);
    assert_eq!(picked.failed(), None);
    let by_plugin = picked.by_plugin.as_mut().unwrap();
    by_plugin.plugin.as_mut().unwrap().fuel = u64::MAX;
    let again = picked.again(Some(&*guests(&plugin))).unwrap();
    let failure = again.failed().unwrap().failure;
    assert!(
        matches!(&failure, Failure::OverLimit { limit, .. } if limit == "fuel"),
        "{failure}"
    );
}

#[test]
fn rendezvous_keeps_the_calls_of_a_task_where_they_are() {
    let mut policy = brought(&loaded("rendezvous"));
    let first = |picked: &Picked| picked.first().unwrap().node;
    let own = first(&pick(&mut policy, "echo", 8));
    for taken in 0..12 {
        let mut takers = takers(8);
        let place = takers.iter().position(|taker| taker.node == own).unwrap();
        takers[place].busy = taken;
        takers.rotate_left(taken as usize % 8);
        let picked: Picked = policy.decide(Duration::ZERO, ("echo".into(), takers));
        // It has four cores, and only those who would wait go elsewhere.
        assert_eq!(first(&picked) == own, taken < 4, "{taken}: {}", picked.why());
    }
    let firsts = (0..40).map(|n| first(&pick(&mut policy, &format!("task {n}"), 8)));
    assert!(firsts.collect::<std::collections::BTreeSet<_>>().len() > 4);
}

/// The file of a guest under another name.
fn renamed(folder: &Home, guest_name: &str, name: &str, version: &str) -> PathBuf {
    let file = std::fs::read(guest(guest_name)).unwrap();
    let package = Package::read(&file, &ReadLimits::default()).unwrap();
    let manifest = Manifest {
        name: name.into(),
        version: version.parse().unwrap(),
        ..package.manifest.unwrap()
    };
    let path = folder.path().join(format!("{name}-{version}.wasm"));
    std::fs::write(&path, karman_package::embed(&file, &manifest).unwrap()).unwrap();
    path
}

/// A node that routes by a policy of this name, and two others that offer these.
fn mesh(route: &str, tasks: &[PathBuf]) -> (Node, [Node; 2]) {
    let home = home("cloud");
    home.configure(&format!("[policies]\nroute = \"{route}\"\n"));
    home.run(["mesh", "init"]).ok();
    let cloud = up(home, &[]);
    let both = ["fog", "edge"].map(|tier| cloud.joined(tier, &[]));
    for node in &both {
        for task in tasks {
            node.run(&["deploy", task.to_str().unwrap()]).ok();
        }
    }
    let offer_all = || {
        let offers = cloud.home.control("/mesh/offers");
        let offers = offers.as_array().unwrap().iter().map(Value::to_string);
        let all = |offer: &String| offer.contains("spins") && offer.contains("tiny");
        offers.filter(all).count() == 2
    };
    until(FOUND, "the offers are not found", offer_all);
    (cloud, both)
}

/// Calls a task until a decision of it is in the log; what `karman why` says of that. While the node has found one alone that offers the task,
/// there is nothing to decide.
fn why(cloud: &Node, task: &str) -> String {
    let started = Instant::now();
    loop {
        let ran = cloud.soon(&["call", task, "-", "--json"], b"12345");
        let answer: Value = serde_json::from_str(&ran.out()).unwrap();
        if let Some(decision) = answer["decision"].as_str() {
            return cloud.run(&["why", decision]).ok().out();
        }
        assert!(started.elapsed() < FOUND, "nothing was decided: {answer}");
    }
}

#[test]
fn a_plugin_says_which_node_is_asked_and_is_swapped_while_the_node_runs() {
    let other = Home::new();
    let tasks = [guest("tiny"), renamed(&other, "tiny", "spins", "0.1.0")];
    let (cloud, _both) = mesh("rendezvous", &tasks);

    // The default stands in for what is not there, and that is no secret.
    let doctor = cloud.run(&["doctor"]).ok().out();
    assert!(
        doctor.contains("this node has no policy `rendezvous` that routes"),
        "{doctor}"
    );
    let said = why(&cloud, "tiny");
    assert!(
        said.contains("policy rendezvous did not decide, the default did: no plugin of this name"),
        "{said}"
    );

    cloud.run(&["deploy", &path("rendezvous")]).ok();
    let said = why(&cloud, "tiny");
    assert!(
        said.contains("because the calls of this task are kept there") && !said.contains("did not decide"),
        "{said}"
    );
    // It is no task, and is not offered as one.
    let offers = cloud.home.control("/mesh/offers").to_string();
    assert!(!offers.contains("rendezvous"), "{offers}");
    cloud
        .run(&["call", "rendezvous", "-"])
        .fails(2, "karman:policy/route");

    // Another file under the name takes over with the next call; what the first decided stays decidable.
    let newer = renamed(&other, "bad-route", "rendezvous", "0.2.0");
    cloud.run(&["deploy", newer.to_str().unwrap()]).ok();
    let said = why(&cloud, "tiny");
    assert!(
        said.contains("because it is the last of 2, asked 1 times"),
        "{said}"
    );
    let said = why(&cloud, "spins");
    let fell_back = "; policy rendezvous 0.2.0 did not decide, the default did: it used up its";
    assert!(said.contains(fell_back), "{said}");
    let logged = cloud.run(&["node", "logs"]).ok().out();
    assert!(
        logged.contains("policy rendezvous 0.2.0 did not decide, the default did"),
        "{logged}"
    );
    cloud.run(&["undeploy", "rendezvous"]).ok();

    let replay = replayed(&cloud);
    assert_eq!(
        (&replay["repicked"], &replay["without_plugin"]),
        (&json!([]), &json!([])),
        "{replay}"
    );
    assert!(replay["same"].as_u64() >= Some(4), "{replay}");
    // The log brings its policies along.
    let saved = other.path().join("decisions.cbor");
    cloud.run(&["replay", "--save", saved.to_str().unwrap()]).ok();
    let again = other.run(["replay", saved.to_str().unwrap(), "--json"]).ok();
    let again: Value = serde_json::from_str(&again.out()).unwrap();
    assert!(again["same"].as_u64() >= replay["same"].as_u64(), "{again}");
    assert_eq!(again["without_plugin"], json!([]), "{again}");
}
