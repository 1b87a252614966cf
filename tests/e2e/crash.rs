//! Power cuts during compile, cache write, upgrade, pull: the next start is clean. Planted code is not executed.

use crate::support::{Home, Registry, guest};
use std::fs;
use std::process::Stdio;
use std::time::Duration;

/// Entries of the compile cache, and what lies there besides.
fn cache(home: &Home) -> (Vec<std::path::PathBuf>, usize) {
    let Ok(entries) = fs::read_dir(home.path().join("cache")) else {
        return (Vec::new(), 0);
    };
    let (temporary, whole): (Vec<_>, Vec<_>) = entries
        .map(|entry| entry.unwrap().path())
        .partition(|path| path.extension().is_some_and(|extension| extension == "tmp"));
    (whole, temporary.len())
}

#[test]
fn a_kill_at_any_moment_of_a_first_run_leaves_nothing_that_hurts() {
    let home = Home::new();
    let hostile = guest("hostile");
    for delay in (0..24).map(|step| Duration::from_millis(step * 15)) {
        let _ = fs::remove_dir_all(home.path().join("cache"));
        let mut command = home.command(["run", hostile.to_str().unwrap(), "-", "--meta", "do=count"]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Not a wait for something: the moment of the kill is what varies.
        let until = std::time::Instant::now() + delay;
        while std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let ran = home
            .run(["run", hostile.to_str().unwrap(), "-", "--meta", "do=count"])
            .ok();
        assert_eq!(ran.out(), "1");
    }
}

#[test]
fn a_kill_during_an_upgrade_leaves_the_old_version_or_the_new() {
    let home = Home::new();
    let (old, new) = (guest("warm"), guest("warm-v2"));
    for step in 0..8u64 {
        let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
        home.run(["deploy", old.to_str().unwrap()]).ok();
        let mut deploying = home
            .command(["deploy", new.to_str().unwrap()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let until = std::time::Instant::now() + Duration::from_millis(step * 12);
        while std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        server.kill();
        deploying.wait().unwrap();
        let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
        let answer = server.post("/tasks/counter", &[], b"");
        assert!(matches!(answer.text().as_str(), "v1 1" | "v2 1"), "{answer:?}");
        home.run(["undeploy", "counter"]).ok();
    }
}

#[test]
fn a_kill_during_a_pull_leaves_the_whole_file_or_none() {
    let home = Home::new();
    let registry = Registry::start();
    // The largest guest, so that there is a middle to be killed in.
    let pushed = guest("timeseries");
    let whole = fs::read(&pushed).unwrap();
    let reference = format!("{}/acme/timeseries:0.1.0", registry.address);
    home.run(["push", pushed.to_str().unwrap(), &reference]).ok();
    let file = home.path().join("pulled.wasm");
    let mut cut_short = 0;
    for step in 0..12u64 {
        let mut pulling = home
            .command(["pull", &reference, "-o", "pulled.wasm"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let until = std::time::Instant::now() + Duration::from_millis(step * step * 4);
        while std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        pulling.kill().unwrap();
        pulling.wait().unwrap();
        match fs::read(&file) {
            Ok(bytes) => assert_eq!(bytes, whole),
            Err(_) => cut_short += 1,
        }
        let _ = fs::remove_file(&file);
    }
    assert!(cut_short > 0, "no kill came before the end");
    home.run(["pull", &reference, "-o", "pulled.wasm"]).ok();
    assert_eq!(fs::read(&file).unwrap(), whole);
}

#[test]
fn a_planted_cache_entry_is_not_executed() {
    let home = Home::new();
    let tiny = guest("tiny");
    let run = || {
        home.run_with(["-v", "run", tiny.to_str().unwrap(), "-"], b"12345")
            .ok()
    };
    assert_eq!(run().out(), "5");
    let (entries, _) = cache(&home);
    let [entry] = entries.as_slice() else {
        panic!("{entries:?}")
    };
    let good = fs::read(entry).unwrap();

    // The compiled code of another plugin, valid in itself and marked by this very node, under this plugin's name.
    let hostile = guest("hostile");
    home.run(["run", hostile.to_str().unwrap(), "-", "--meta", "do=count"])
        .ok();
    let other = cache(&home).0.into_iter().find(|path| path != entry).unwrap();
    fs::copy(&other, entry).unwrap();
    let ran = run();
    assert_eq!(ran.out(), "5");
    assert!(ran.stderr.contains("cached code refused"), "{ran:?}");

    for bad in [good[..good.len() / 2].to_vec(), vec![0; 4096], Vec::new()] {
        fs::write(entry, bad).unwrap();
        assert_eq!(run().out(), "5");
    }
}
