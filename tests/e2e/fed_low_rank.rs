//! Federated runs whose clients train low-rank adapters of unequal ranks.

use crate::fed::{accuracy, describe, events, export, log, troubles, wait_for};
use crate::mesh::{Node, first, home, path, up};
use crate::support::Home;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

/// A logistic regression of 650 numbers, of whose 640 weights adapters of rank `r` have `74 r`.
const MODEL: u64 = 650;
const OF_A_RANK: u64 = 74;

/// Clients of ranks 2 and 4, whose labels are dealt by a Dirichlet distribution.
fn digits(plugin: &str, clients: &str, alpha: &str, low_rank: &str) -> String {
    format!(
        "name = 'digits'\nrounds = 24\nstart-with = 5\n[clients]\nplugin = '{plugin}'\n{clients}\n\
         [clients.properties]\nalpha = '{alpha}'\n[low-rank]\narrays = ['dense.weight']\nranks = [2, 4]\n{low_rank}\n\
         [pace]\nmode = 'synchronous'\nclients = 5\n[training]\nepochs = 5\nbatch = 8\nlearning-rate = 0.3\n\
         [evaluation]\nclients = 5\n"
    )
}

fn simulated(alpha: &str, low_rank: &str) -> String {
    digits(&path("fed-digits"), "simulated = 5", alpha, low_rank)
}

fn rounds(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["event"] == "round").collect()
}

/// Runs it until it has made its third version, kills it there, and has it go on.
fn killed_on_the_way(home: &Home, file: &str) {
    let mut killed = home
        .command(["fed", "run", file, "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(killed.stdout.take().unwrap()).lines();
    let third = |line: std::io::Result<String>| line.unwrap().contains("\"version\":3");
    assert!(lines.any(third));
    killed.kill().unwrap();
    killed.wait().unwrap();
    home.run(["fed", "run", file]).ok();
}

#[test]
fn clients_of_unequal_ranks_learn_and_a_run_that_is_killed_comes_to_the_same() {
    for (rule, alpha, least) in [("florist", "0.5", 0.85), ("prelort", "5", 0.65)] {
        let description = simulated(alpha, &format!("rule = '{rule}'"));
        let (whole, killed) = (Home::new(), Home::new());
        let file = describe(&whole, &description);
        let seen = events(&whole.run(["fed", "run", &file, "--json"]).ok());
        assert_eq!(troubles(&seen), "");
        assert!(accuracy(&seen) >= least, "{rule}: {seen:?}");
        // Three clients of rank 2, two of rank 4: their factors, a few bytes around each, and nothing else.
        let factors = 4 * OF_A_RANK * (3 * 2 + 2 * 4);
        for round in rounds(&seen) {
            let up = round["bytes_up"].as_u64().unwrap();
            assert!((factors..factors + 10 * 32).contains(&up), "{round}");
            let rank = round["rank"].as_u64().unwrap();
            assert!((1..=10).contains(&rank), "{round}");
            assert_eq!(round["bytes_down"], 4 * 5 * MODEL + factors, "{round}");
        }

        let file = describe(&killed, &description);
        killed_on_the_way(&killed, &file);
        assert_eq!(export(&whole), export(&killed), "{rule}");
    }
}

/// A node of this mesh that gives this to federated runs.
pub(crate) fn node(cloud: &Node, federated: &str) -> Node {
    let home = home("edge");
    let file = home.path().join("config/karman/node.toml");
    let mut file = std::fs::OpenOptions::new().append(true).open(file).unwrap();
    writeln!(file, "[federated]\n{federated}").unwrap();
    let word = cloud.invite(&["--tier", "edge"]);
    up(home, &["--join", &word])
}

#[test]
fn each_node_trains_the_rank_that_its_operator_allows() {
    let cloud = first();
    let trains = |most: u32| node(&cloud, &format!("adapter-rank = {most}"));
    let mut nodes = vec![trains(1), trains(3), trains(64)];
    nodes.insert(0, cloud);
    nodes[0].finds(nodes.len());
    nodes[0]
        .run(&["deploy", &path("fed-digits"), "--on", "tier=edge"])
        .ok();
    let description = digits("fed-digits", "on = 'tier=edge'\nshares = 3", "5", "")
        .replace("start-with = 5", "start-with = 2")
        .replace("clients = 5\n[training]", "clients = 2\n[training]");
    let file = describe(&nodes[0].home, &description);
    nodes[0].run(&["fed", "run", &file, "--detach"]).ok();
    let status = wait_for(&nodes[0], |status| status["running"] == false);
    let seen = log(&status);
    assert_eq!(status["status"]["version"], 24, "{}", troubles(&seen));
    assert!(accuracy(&seen) >= 0.8, "{seen:?}");
    // One client of rank 2 and one of rank 4; the third has no rank that is small enough.
    for round in rounds(&seen) {
        let up = round["bytes_up"].as_u64().unwrap();
        let factors = 4 * OF_A_RANK * (2 + 4);
        assert!((factors..factors + 4 * 32).contains(&up), "{round}");
    }
}

#[test]
fn what_does_not_go_with_unequal_ranks_is_refused_by_its_name() {
    let home = Home::new();
    let says = |more: &str, low_rank: &str| {
        let file = describe(&home, &(simulated("0.5", low_rank) + more));
        home.run(["fed", "run", &file])
    };
    says("[secure-sum]\n", "").fails(2, "clients on nodes");
    says("[strategy]\nname = 'median'\n", "").fails(2, "`[low-rank]` needs strategy.name");
    says("[encoding]\nfixed = 'int8'\n", "").fails(2, "`[low-rank]` needs updates as they are");
    says("", "threshold = 2.0").fails(2, "low-rank.threshold");
    let on_nodes = |more: &str| {
        let file = describe(&home, &(digits("fed-digits", "", "0.5", "") + more));
        home.run(["fed", "run", &file])
    };
    on_nodes("[secure-sum]\n").fails(2, "`[low-rank]` needs no `[secure-sum]`");
    on_nodes("[swarm]\n").fails(2, "`[low-rank]` needs no `[swarm]`");

    // What the model has not shows when it begins.
    let other = simulated("0.5", "").replace("'dense.weight'", "'dense.wait'");
    let file = describe(&home, &other);
    home.run(["fed", "run", &file]).fails(2, "`dense.weight`");
}
