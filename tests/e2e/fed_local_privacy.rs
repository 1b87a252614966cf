//! Federated runs whose clients add noise to their updates themselves.

use crate::fed::{describe, events, export, log, troubles, wait_for};
use crate::fed_low_rank::node;
use crate::mesh::{first, path, up};
use crate::support::Home;
use karman_fed::Run;
use serde_json::Value;

/// A logistic regression, with noise that a run of this name gets by.
fn digits(plugin: &str, clients: &str, rounds: u64, local: &str) -> String {
    format!(
        "name = 'digits'\nrounds = {rounds}\nstart-with = 2\nweights = 'uniform'\n[clients]\nplugin = '{plugin}'\n{clients}\n\
         [clients.properties]\nalpha = '5'\n[pace]\nmode = 'synchronous'\nclients = 2\nminimum = 1\n\
         [training]\nepochs = 5\nbatch = 8\nlearning-rate = 0.3\n[evaluation]\nclients = 2\n{local}"
    )
}

const LOCAL: &str = "[local-privacy]\nnoise-multiplier = 2\nnorm = 0.05\n";

/// A bound that so many updates keep to, and one more does not.
fn epsilon(updates: u64) -> f64 {
    let run = Run::from_toml(&digits("x", "", 1, LOCAL)).unwrap();
    let local = run.local_privacy.unwrap();
    let spent = local.mechanism().unwrap().spent_after(updates, local.delta);
    spent.unwrap().epsilon + 1e-6
}

/// In how many rounds a client was.
fn rounds_of(events: &[Value], client: u64) -> u64 {
    let is_in = |event: &&Value| {
        let clients = event["clients"].as_array();
        clients.is_some_and(|clients| clients.iter().any(|one| *one == client))
    };
    events.iter().filter(is_in).count() as u64
}

#[test]
fn one_process_plays_clients_that_add_noise_and_shows_what_they_give_away() {
    let home = Home::new();
    let described = digits(&path("fed-digits"), "simulated = 2", 3, LOCAL);
    let file = describe(&home, &described);
    let ran = home.run(["fed", "run", &file]).ok().out();
    assert_eq!(ran.matches("   ε ").count(), 3, "{ran}");
    let noised = export(&home);
    let shown = home.run(["fed", "status", "digits"]).ok().out();
    let told = format!(
        "ε {:.2} at δ 1e-5 of the client that has answered most (3 orders",
        epsilon(3)
    );
    assert!(
        shown.contains(&told) && shown.contains("its own account"),
        "{shown}"
    );
    // The seed is the same, the noise is not.
    home.run(["fed", "run", &file, "--again"]).ok();
    assert_ne!(export(&home), noised);

    // Who has given away what it may is asked nothing more.
    let bounded = format!("{described}most-epsilon = {}\n", epsilon(2));
    let file = describe(&home, &bounded);
    let ran = home.run(["fed", "run", &file, "--again"]);
    assert!(ran.out().contains("ended after 2 versions"), "{ran:?}");
    ran.fails(1, "0 clients may give away more");

    let says = |more: &str| home.run(["fed", "run", &describe(&home, &(described.clone() + more))]);
    says("[encoding]\nfixed = { top-k = 10 }\n").fails(2, "`[local-privacy]` needs another encoding");
    says("[strategy]\nname = 'scaffold'\n").fails(2, "`[local-privacy]` needs another strategy");
    says("[limits]\nmagnitude = 2\n").fails(2, "limits.magnitude");
}

#[test]
fn nodes_add_noise_and_give_away_no_more_than_they_may_though_their_driver_is_killed() {
    let cloud = first();
    let mut nodes = vec![
        node(&cloud, "require-local-privacy = true"),
        node(&cloud, &format!("most-epsilon = {}", epsilon(30))),
    ];
    nodes.insert(0, cloud);
    nodes[0].finds(3);
    let deploy = ["deploy", &path("fed-digits"), "--on", "tier=edge"];
    nodes[0].run(&deploy).ok();
    let on_nodes = "on = 'tier=edge'\nshares = 2";

    // Without noise one of them gives nothing.
    let plain = digits("fed-digits", on_nodes, 1, "");
    let file = describe(&nodes[0].home, &plain);
    let seen = events(&nodes[0].run(&["fed", "run", &file, "--json"]).ok());
    assert!(
        troubles(&seen).contains("gave up: updates leave this node with noise only"),
        "{seen:?}"
    );
    assert_eq!(rounds_of(&seen, 0) + rounds_of(&seen, 1), 1, "{seen:?}");

    // An order that goes out again after a restart costs nothing: the one that may give away 40 updates gives as many, the other 30.
    let local = format!("{LOCAL}most-epsilon = {}\n", epsilon(40));
    let file = describe(&nodes[0].home, &digits("fed-digits", on_nodes, 40, &local));
    nodes[0].run(&["fed", "run", &file, "--again", "--detach"]).ok();
    let on_the_way = wait_for(&nodes[0], |status| {
        status["status"]["version"].as_u64() >= Some(4)
    });
    assert_eq!(on_the_way["running"], true, "{on_the_way}");
    let cloud = nodes.remove(0);
    cloud.server.kill();
    let cloud = up(cloud.home, &[]);
    let status = wait_for(&cloud, |status| status["running"] == false);
    let seen = log(&status);
    assert_eq!(status["status"]["version"], 40, "{}", troubles(&seen));
    assert!(
        !troubles(&seen).contains("would give away"),
        "{}",
        troubles(&seen)
    );
    let mut rounds = [rounds_of(&seen, 0), rounds_of(&seen, 1)];
    rounds.sort_unstable();
    assert_eq!(rounds, [30, 40], "{}", troubles(&seen));
    let passed = |event: &Value| {
        let why = event["why"].as_str().unwrap_or_default();
        event["event"] == "passed-over" && why.contains("`federated.most-epsilon` of its node")
    };
    assert!(seen.iter().any(passed), "{seen:?}");
    let spent = &status["status"]["spent"];
    assert_eq!(
        (&spent["rounds"], &spent["adjacency"]),
        (&40.into(), &"any-two-updates".into())
    );
    assert!(
        (spent["epsilon"].as_f64().unwrap() - epsilon(40)).abs() < 1e-5,
        "{spent}"
    );
}
