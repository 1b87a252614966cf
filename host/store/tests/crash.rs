//! A node that is killed in the middle of its work: what it acknowledged is there.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use karman_store::{Downgrade, ModelInfo, NewPlugin, OpenError, Store};
use karman_types::World;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Names the folder to the child process.
const DIR: &str = "KARMAN_STORE_CRASH_DIR";

fn component(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(2000)
}

/// The child: works until it is killed, and prints the number of each step once it is acknowledged.
#[test]
fn works_until_killed() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let store = Store::open(dir).unwrap();
    let bucket = store.bucket("steps").unwrap();
    let first = bucket.increment("done", 0).unwrap() + 1;
    for n in first.. {
        bucket.set(&format!("k{n}"), &component(n)).unwrap();
        let bytes = component(n);
        store
            .models()
            .add("model", &bytes, None, ModelInfo::new())
            .unwrap();
        let plugin = NewPlugin {
            identity: "p",
            name: "p",
            version: semver::Version::new(0, 0, n),
            world: World::Task,
            publisher: None,
            component: &bytes,
        };
        store.plugins().install(&plugin, Downgrade::Refuse).unwrap();
        store.secrets().set("secret", n.to_string().as_bytes()).unwrap();
        bucket.increment("done", 1).unwrap();
        println!("done {n}");
        std::io::stdout().flush().unwrap();
    }
}

fn start(dir: &Path) -> (Child, Receiver<u64>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "works_until_killed", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (send, acknowledged) = channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if let Some(n) = line.strip_prefix("done ") {
                send.send(n.parse().unwrap()).ok();
            }
        }
    });
    (child, acknowledged)
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("store");
    let mut last = 0;
    for round in 0..12_u64 {
        let (mut child, acknowledged) = start(&dir);
        if round == 5 {
            acknowledged.recv().unwrap();
            let error = Store::open(&dir).unwrap_err();
            assert!(
                error.to_string().contains(&format!("process {}", child.id())),
                "{error}"
            );
            assert!(matches!(error, OpenError::Locked { .. }));
        }
        // The first rounds end while the store is being made, the others in the middle of some step.
        let steps = if round < 3 { 0 } else { round % 4 };
        for _ in 0..steps {
            last = acknowledged.recv().unwrap();
        }
        acknowledged
            .recv_timeout(Duration::from_millis(round * 37 % 23))
            .ok();
        child.kill().unwrap();
        child.wait().unwrap();
        last = acknowledged.iter().last().unwrap_or(last);
        check(&dir, last);
    }
    assert!(last > 8, "only {last} steps were done");
}

fn check(dir: &Path, last: u64) {
    let store = Store::open(dir).unwrap();
    let bucket = store.bucket("steps").unwrap();
    let done = bucket.increment("done", 0).unwrap();
    assert!(done >= last, "{last} steps were acknowledged, {done} are there");
    for n in 1..=done {
        assert_eq!(bucket.get(&format!("k{n}")).unwrap().unwrap().value, component(n));
    }
    if done > 0 {
        let model = store.models().get("model").unwrap().unwrap();
        let model = store.blobs().read(&model.digest).unwrap();
        assert!(model == component(done) || model == component(done + 1));
        let plugin = store.plugins().get("p").unwrap().unwrap();
        assert!(plugin.version.patch == done || plugin.version.patch == done + 1);
        assert_eq!(
            store.plugins().component("p").unwrap(),
            component(plugin.version.patch)
        );
        if let Some(previous) = plugin.previous {
            store.blobs().read(&previous.digest).unwrap();
        }
        let secret = store.secrets().get("secret").unwrap().unwrap();
        let secret = secret.expose_str().unwrap();
        assert!([done, done + 1].iter().any(|n| n.to_string() == secret));
    }
    // At most the model, the plugin and its way back; nothing unfinished.
    let files = std::fs::read_dir(dir.join("blobs")).unwrap().count();
    assert!(files <= 3, "{files} files are left");
}
