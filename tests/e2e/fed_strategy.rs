//! Federated runs whose strategy is a plugin: they learn, a driver that is killed comes to the same, and one that fails is named.

use crate::fed::{accuracy, describe, digits, events, export, five, log, troubles, wait_for};
use crate::mesh::{path, up};
use crate::support::{Home, guest};
use karman_engine::strategy::MOST_FUEL;
use karman_engine::{Engine, EngineOptions, LoadError};
use karman_package::{Package, ReadLimits};
use karman_types::{GrantSet, Manifest};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Nothing else ends a call.
#[test]
fn the_fuel_of_a_strategy_has_a_ceiling() {
    let engine = Engine::new(EngineOptions::default()).unwrap();
    let file = std::fs::read(guest("bad-strategy")).unwrap();
    let package = Package::read(&file, &ReadLimits::default()).unwrap();
    let mut manifest = package.manifest.unwrap();
    let mut load = |fuel| {
        manifest.limits.fuel = Some(fuel);
        let file = karman_package::embed(&file, &manifest).unwrap();
        engine.load(&file, &GrantSet::default(), |world| {
            Manifest::foreign("bad-strategy", world)
        })
    };
    load(MOST_FUEL).unwrap().check_strategy().unwrap();
    let refused = load(MOST_FUEL + 1).unwrap_err();
    assert!(
        matches!(&refused, LoadError::OverLimit { limit: "fuel", .. }),
        "{refused}"
    );
}

/// `[strategy]` with this plugin.
fn by(plugin: &str) -> String {
    format!("[strategy]\nname = 'plugin'\nplugin = '{plugin}'\n")
}

#[test]
fn a_plugin_makes_the_versions_and_a_run_that_was_killed_comes_to_the_same() {
    let description = digits("", "simulated = 5") + &by(&path("fed-centered"));
    let (one, other) = (Home::new(), Home::new());
    let file = describe(&one, &description);
    let seen = events(&one.run(["fed", "run", &file, "--json"]).ok());
    assert!(accuracy(&seen) >= 0.85, "{seen:?}");
    assert_eq!(troubles(&seen), "");

    let file = describe(&other, &description);
    let mut killed = other
        .command(["fed", "run", &file, "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(killed.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("\"version\":3")));
    killed.kill().unwrap();
    killed.wait().unwrap();
    // What is on the disk is shown without the plugin.
    let listed = other.run(["fed", "status"]).ok().out();
    assert!(listed.contains("goes on when it is run again"), "{listed}");
    other.run(["fed", "run", &file]).ok();
    assert_eq!(export(&one), export(&other));
}

#[test]
fn a_node_drives_a_run_by_a_plugin_and_comes_to_the_same_when_it_is_killed() {
    let mut nodes = five();
    let file = describe(&nodes[0].home, &(digits("", "shares = 5") + &by("fed-centered")));
    nodes[0]
        .run(&["fed", "run", &file])
        .fails(4, "the strategy `fed-centered` is not on this node");
    nodes[0].run(&["deploy", &path("fed-centered")]).ok();
    let seen = events(&nodes[0].run(&["fed", "run", &file, "--json"]).ok());
    assert!(accuracy(&seen) >= 0.85, "{seen:?}");
    let whole = export(&nodes[0].home);

    nodes[0].run(&["fed", "run", &file, "--again", "--detach"]).ok();
    wait_for(&nodes[0], |status| {
        status["status"]["version"].as_u64() >= Some(4)
    });
    let cloud = nodes.remove(0);
    cloud.server.kill();
    let cloud = up(cloud.home, &[]);
    let status = wait_for(&cloud, |status| status["running"] == false);
    assert_eq!(status["status"]["version"], 12, "{status}");
    assert_eq!(export(&cloud.home), whole, "{}", troubles(&log(&status)));

    // It is no task, and is not offered as one.
    let offers = cloud.home.control("/mesh/offers").to_string();
    assert!(
        offers.contains("fed-digits") && !offers.contains("fed-centered"),
        "{offers}"
    );
}

/// Two clients and three rounds, of which the second is the one in which `bad-strategy` goes wrong.
fn short(plugin: &str, does: &str) -> String {
    format!(
        "name = 'digits'\nrounds = 3\n[clients]\nplugin = '{}'\nsimulated = 2\n\
         [pace]\nmode = 'synchronous'\nclients = 2\n[evaluation]\nevery = 0\n{}\
         [strategy.properties]\ndoes = '{does}'\nat = '2'\n",
        path("fed-digits"),
        by(plugin)
    )
}

#[test]
fn a_strategy_that_fails_is_named_with_what_it_did() {
    let home = Home::new();
    for (does, says) in [
        ("nothing", None),
        ("never-begins", Some("it says: this is no model for me")),
        ("traps", Some("it trapped: ")),
        ("spins", Some("it used up its 100000000 units of fuel")),
        ("eats", Some("it needed more than its 8 MiB of memory")),
        ("asks-the-time", Some("which it does not have")),
        ("refuses", Some("it says: it is not for me to say")),
        (
            "turns",
            Some("its model has `dense.weight` [64, 10] in place of `dense.weight` [10, 64]"),
        ),
        ("drops", Some("its model has 1 arrays instead of 2")),
        ("divides", Some("number 0 of its model is NaN")),
        ("hoards", Some("its `limits.output` is 1 MiB")),
    ] {
        let file = describe(&home, &short(&path("bad-strategy"), does));
        let ran = home.run(["fed", "run", &file, "--again"]);
        match says {
            None => ran.ok(),
            Some(why) => ran
                .fails(1, "the strategy `bad-strategy` made no version 2: ")
                .fails(1, why),
        };
    }
}

#[test]
fn a_run_goes_on_once_its_strategy_is_mended() {
    let home = Home::new();
    let strategy = home.path().join("strategy.wasm");
    std::fs::copy(guest("bad-strategy"), &strategy).unwrap();
    let file = describe(&home, &short(strategy.to_str().unwrap(), "traps"));
    for _ in 0..2 {
        // Clients are not asked for rounds that would end the same.
        let failed = home.run(["fed", "run", &file, "--json"]).fails(1, "goes on");
        let made = events(&failed)
            .iter()
            .filter(|event| event["event"] == "round")
            .count();
        assert!(made <= 1, "{failed:?}");
        let listed = home.run(["fed", "status"]).ok().out();
        assert!(
            listed.contains("1/3") && listed.contains("goes on when it is run again"),
            "{listed}"
        );
    }
    let before = export(&home);
    std::fs::copy(guest("fed-centered"), &strategy).unwrap();
    home.run(["fed", "run", &file]).ok();
    let shown = home.run(["fed", "status", "digits"]).ok().out();
    assert!(shown.contains("3/3") && shown.contains("done"), "{shown}");
    assert_ne!(export(&home), before);
}

#[test]
fn what_is_no_strategy_is_refused_before_anybody_trains() {
    let home = Home::new();
    let says = |strategy: &str| {
        let text = short("PLUGIN", "nothing").replace("plugin = 'PLUGIN'\n", strategy);
        home.run(["fed", "run", &describe(&home, &text)])
    };
    let named = |plugin: &str| format!("plugin = '{plugin}'\n");
    says(&named(&path("tiny"))).fails(2, "karman:federated/strategy");
    says(&named("")).fails(2, "which plugin is its strategy");
    says("").fails(2, "plugin");
    let buffered =
        digits("", "simulated = 5").replace("'synchronous'\nclients = 5", "'buffered'\nat-once = 5");
    let file = describe(&home, &(buffered + &by(&path("fed-centered"))));
    home.run(["fed", "run", &file]).fails(2, "mode = \"synchronous\"");
    home.run(["run", &path("fed-centered")]).fails(2, "[strategy]");
}
