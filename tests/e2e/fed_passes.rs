//! Federated runs with a satellite: it takes part when it will be in view long enough, by its driver's contact plan or by its own.

use crate::fed::{describe, digits, log, wait_for};
use crate::mesh::{Node, home, path, up};
use crate::satellite::now;
use crate::support::Home;
use serde_json::Value;
use std::time::Duration;

/// What a training is taken to last that was never measured.
const TRAINING: &str = "30 min";
/// Less than that, and more.
const SHORT: Duration = Duration::from_secs(600);
const LONG: Duration = Duration::from_secs(7200);

/// A folder whose node reads its contacts from a file, which is empty.
fn planning(tier: &str) -> Home {
    let home = home(tier);
    let (config, file) = (
        home.path().join("config/karman/node.toml"),
        home.path().join("contacts.toml"),
    );
    std::fs::write(&file, "").unwrap();
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(config, format!("{text}contacts = {file:?}\n")).unwrap();
    home
}

/// A pass that has begun a minute ago, and lasts for so long from now on, is all that this node knows of.
fn plan(node: &Node, (from, to): (&str, &str), lasts: Duration) {
    let (start, end) = (now() - Duration::from_secs(60), now() + lasts);
    let contact = format!(
        "[[contact]]\nfrom = \"{from}\"\nto = \"{to}\"\nstart = \"{start}\"\nend = \"{end}\"\nrate = \"2 Mbit/s\"\n\
         both-ways = true\n"
    );
    std::fs::write(node.home.path().join("contacts.toml"), contact).unwrap();
}

fn passed_over(status: &Value) -> bool {
    // The model's way is added to the training.
    let of_view = |why: &str| why.starts_with("not in view long enough") && why.contains(" of 30 min ");
    let is = |event: &Value| event["event"] == "passed-over" && event["why"].as_str().is_some_and(of_view);
    log(status).iter().any(is)
}

#[test]
fn a_satellite_takes_part_when_it_will_be_in_view_long_enough() {
    let ground = planning("cloud");
    ground.run(["mesh", "init"]).ok();
    let ground = up(ground, &[]);
    let board = ground.joined("edge", &[]);
    let word = ground.invite(&["--tier", "space"]);
    let above = up(planning("space"), &["--join", &word]);
    ground.finds(3);
    for tier in ["tier=edge", "tier=space"] {
        ground.run(&["deploy", &path("fed-digits"), "--on", tier]).ok();
    }
    let (here, there) = (ground.id(), above.id());
    let both = (here.as_str(), there.as_str());
    let description = digits("", "shares = 2")
        .replace("rounds = 12", "rounds = 2")
        .replace("start-with = 5", "start-with = 2")
        .replace(
            "clients = 5\n[training]",
            "clients = 5\ntimeout = '40 min'\n[training]",
        );
    let description = format!("{description}[eligibility]\ntraining = '{TRAINING}'\n");
    let file = describe(&ground.home, &description);

    // The ground knows of a pass that is too short: the run waits, and says why.
    plan(&ground, both, SHORT);
    ground.run(&["fed", "run", &file, "--detach"]).ok();
    let status = wait_for(&ground, passed_over);
    assert_eq!(status["status"]["version"], 0, "{status}");
    let shown = ground.run(&["fed", "status", "digits"]).ok().out();
    assert!(shown.contains("not asked: not in view long enough"), "{shown}");
    // The next one is long enough.
    plan(&ground, both, LONG);
    let status = wait_for(&ground, |status| status["running"] == false);
    assert_eq!(status["status"]["version"], 2, "{status}");
    let rounds = log(&status).into_iter().filter(|event| event["event"] == "round");
    for round in rounds {
        assert_eq!(round["clients"], serde_json::json!([0, 1]), "{round}");
    }

    // Now only the satellite knows when it passes.
    std::fs::write(ground.home.path().join("contacts.toml"), "").unwrap();
    plan(&above, both, SHORT);
    ground.run(&["fed", "run", &file, "--again", "--detach"]).ok();
    let status = wait_for(&ground, passed_over);
    assert_eq!(status["status"]["version"], 0, "{status}");
    ground
        .run(&["fed", "remove", "digits"])
        .fails(2, "`digits` runs now");
    ground.run(&["fed", "stop", "digits"]).ok();
    wait_for(&ground, |status| status["running"] == false);
    ground.run(&["fed", "remove", "digits"]).ok();
    ground
        .run(&["fed", "status", "digits"])
        .fails(2, "no federated run");
    drop(board);
}
