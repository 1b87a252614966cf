//! Kept tasks of a node that is taken out of service: keepers go on with them, and with nothing that anybody puts in their place.

use super::old::Hostile;
use super::sites::{PATIENCE, Site, Sites};
use crate::support::pause;
use bytes::Bytes;
use karman_mesh::Ask;
use karman_types::TaskId;
use std::time::Instant;

/// Hands a task in that nobody can run yet; its id.
fn waiting(site: &Site, key: &str) -> String {
    let started = Instant::now();
    loop {
        if let Some(task) = site.accept(key, "0") {
            return task;
        }
        assert!(started.elapsed() < PATIENCE, "`{key}` is not accepted");
        pause();
    }
}

/// Takes the node out of service once it sees the others; what it had goes on elsewhere, each task once.
fn drain(sites: &Sites, drained: usize, others: &[&str], tasks: &[String]) {
    for other in others {
        sites[drained].soon(|site| site.home.run(["mesh", "ping", other]).code == 0);
    }
    let said = sites[drained].home.run(["node", "drain"]).ok().out();
    assert!(said.contains("nothing runs or waits here"), "{said}");
    for task in tasks {
        assert_eq!(sites[0].state(task).as_deref(), Some("waiting"));
    }
}

fn end_once(sites: &Sites, tasks: &[String]) {
    sites[0].deploy("tally");
    for task in tasks {
        let result = ["task", "result", task, "--wait", "60s"];
        assert_eq!(sites[0].home.run(result).ok().out(), "1");
    }
}

#[test]
fn what_waits_at_a_drained_node_goes_to_keepers_alone() {
    let sites = Sites::new(5, None);
    sites.name_keepers();
    // One for each node in reach, the one that is no keeper included.
    let tasks = ["one", "two", "three", "four"].map(|key| waiting(&sites[3], key));
    let others = [0, 1, 2, 4].map(|n| sites[n].id.as_str());
    drain(&sites, 3, &others, &tasks);
    assert_eq!(sites[4].home.control("/accepted"), serde_json::json!([]));
    end_once(&sites, &tasks);
}

#[test]
fn a_keeper_hands_over_no_kept_task_of_another() {
    let sites = Sites::new(2, None);
    let word = sites[0].home.run(["mesh", "invite", "--tier", "fog"]).ok().out();
    let mut evil = Hostile::join(&word);
    let id = evil.id.to_string();
    let others = [sites[0].id.as_str(), &id];
    let keepers = ["mesh", "keepers", others[0], others[1], &sites[1].id];
    sites[0].home.run(keepers).ok();
    // One for each heir. It hears of one of them, and does not answer.
    let tasks = ["one", "two"].map(|key| waiting(&sites[1], key));
    drain(&sites, 1, &others, &tasks);
    let mut handed = evil.heard("record", |_| true).to_vec();

    // The other keeper has both by now. This would be the next handover of one.
    let epoch = b"epoch\x02";
    let at = handed.windows(epoch.len()).position(|bytes| bytes == epoch);
    handed[at.unwrap() + epoch.len() - 1] = 3;
    let (to, task) = (evil.peer(&sites[0]), TaskId::from_parts(0, 0));
    let answer = evil.sends(to, Ask::TakeOver, "tally", task, Bytes::from(handed));
    let (answer, _) = answer.unwrap();
    // CBOR for `false`.
    assert_eq!(&answer.body[..], [0xf4]);
    end_once(&sites, &tasks);
}
