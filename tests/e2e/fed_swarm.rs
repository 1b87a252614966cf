//! Federated runs whose updates go from client to client: four nodes on the edge, and a fifth that drives.

use crate::fed::{describe, events, export, five, log, troubles, wait_for};
use crate::mesh::{Node, up};
use serde_json::Value;

const SWARM: &str = "[swarm]\nslot = '50 ms'\n";

/// A logistic regression of 650 numbers.
fn digits(rounds: u32, more: &str) -> String {
    format!(
        "name = 'digits'\nrounds = {rounds}\nstart-with = 4\n[clients]\nplugin = 'fed-digits'\non = 'tier=edge'\nshares = 4\n\
         [clients.properties]\nalpha = '0.5'\n[pace]\nmode = 'synchronous'\nclients = 4\n\
         [training]\nepochs = 2\nbatch = 8\nlearning-rate = 0.1\n[evaluation]\nclients = 4\n{more}"
    )
}

/// Five nodes that have met: whoever is reached at the first try is left out of no round.
fn met() -> Vec<Node> {
    let nodes = five();
    for (place, node) in nodes.iter().enumerate() {
        for other in &nodes[place + 1..] {
            let id = other.id();
            node.soon(&["mesh", "ping", &id], b"");
        }
    }
    nodes
}

fn rounds(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["event"] == "round").collect()
}

fn count(list: &Value) -> usize {
    list.as_array().map_or(0, Vec::len)
}

/// Sums are made on one grid, by the clients here and by the driver there: not a bit is different.
#[test]
fn a_run_without_a_server_in_the_middle_makes_the_same_model_and_its_driver_may_be_killed() {
    let mut nodes = met();
    let plain = describe(&nodes[0].home, &digits(5, ""));
    nodes[0].run(&["fed", "run", &plain]).ok();
    let model = export(&nodes[0].home);

    let file = describe(&nodes[0].home, &digits(5, SWARM));
    let seen = events(&nodes[0].run(&["fed", "run", &file, "--again", "--json"]).ok());
    assert_eq!(troubles(&seen), "");
    let made = rounds(&seen);
    assert_eq!(made.len(), 5, "{seen:?}");
    for round in made {
        let swarm = &round["swarm"];
        assert_eq!(
            (count(&round["clients"]), count(&swarm["complete"])),
            (4, 4),
            "{round}"
        );
        assert_eq!(swarm["covered"], true, "{round}");
        assert!(swarm["warm_up_ms"].as_u64() <= swarm["ms"].as_u64(), "{round}");
        // The driver got one mean, and no update.
        assert_eq!(round["bytes_up"], 4 * 650, "{round}");
    }
    assert!(export(&nodes[0].home) == model, "another model");
    let shown = nodes[0].run(&["fed", "status", "digits"]).ok().out();
    assert!(shown.contains("4 have the mean, warm-up"), "{shown}");

    nodes[0].run(&["fed", "run", &file, "--again", "--detach"]).ok();
    wait_for(&nodes[0], |status| {
        status["status"]["version"].as_u64() >= Some(2)
    });
    let cloud = nodes.remove(0);
    cloud.server.kill();
    let cloud = up(cloud.home, &[]);
    let status = wait_for(&cloud, |status| status["running"] == false);
    assert_eq!(status["status"]["version"], 5, "{status}");
    assert!(export(&cloud.home) == model, "{}", troubles(&log(&status)));
}

#[test]
fn a_client_that_is_killed_in_the_middle_stops_no_other() {
    let mut nodes = met();
    let file = describe(&nodes[0].home, &digits(8, SWARM));
    nodes[0].run(&["fed", "run", &file, "--detach"]).ok();
    wait_for(&nodes[0], |status| {
        status["status"]["version"].as_u64() >= Some(2)
    });
    nodes.remove(2).server.kill();
    let status = wait_for(&nodes[0], |status| status["running"] == false);
    let seen = log(&status);
    assert_eq!(status["status"]["version"], 8, "{}", troubles(&seen));
    let last = rounds(&seen).pop().unwrap().clone();
    assert_eq!(
        (count(&last["clients"]), count(&last["swarm"]["complete"])),
        (3, 3),
        "{last}"
    );
}
