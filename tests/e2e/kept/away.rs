//! Kept work for a node that is out of reach.

use super::sites::{Site, Sites};
use crate::satellite::now;
use std::time::Duration;

/// How many bundles with tasks in them are in this state.
fn bundles(site: &Site, state: &str) -> usize {
    let Some(answer) = site.ask("GET", "/mesh/bundles", &[], b"") else {
        return 0;
    };
    let all = answer.json();
    all.as_array()
        .unwrap()
        .iter()
        .filter(|bundle| bundle["label"] == "task tally" && bundle["state"] == state)
        .count()
}

/// Whether an attempt of this node was excused because the home of the buckets was away.
fn lacked_the_home(site: &Site) -> bool {
    let Some(answer) = site.ask("GET", "/logs", &[], b"") else {
        return false;
    };
    let logs = answer.json();
    let said = logs
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|event| event["message"].as_str());
    said.filter(|said| said.starts_with("an attempt does not count"))
        .any(|said| !said.contains("called back"))
}

#[test]
fn a_kept_task_that_is_away_outlives_its_owner_and_waits_for_its_home() {
    let folder = tempfile::tempdir().unwrap();
    let contacts = folder.path().join("contacts.toml");
    std::fs::write(&contacts, "").unwrap();
    let mut sites = Sites::with(4, None, &format!("contacts = {contacts:?}\n"));
    sites[3].deploy("tally");
    sites.name_keepers();
    let above = sites[3].id.clone();
    for keeper in &sites.sites[..3] {
        keeper.soon(|site| {
            let logs = site.ask("GET", "/logs", &[], b"").unwrap().text();
            logs.split("what nodes offer is remembered")
                .skip(1)
                .any(|said| said.split('}').next().is_some_and(|said| said.contains(&above)))
        });
    }
    sites.kill(3);
    let start = now() + Duration::from_secs(3600);
    let end = start + Duration::from_secs(60);
    let planned = sites.sites[..3].iter().map(|keeper| {
        format!(
            "[[contact]]\nfrom = \"{}\"\nto = \"{above}\"\nstart = \"{start}\"\nend = \"{end}\"\n\
             rate = \"2 Mbit/s\"\nboth-ways = true\n",
            keeper.id
        )
    });
    std::fs::write(&contacts, planned.collect::<String>()).unwrap();
    let task = sites[0].accept("bridge", "0").unwrap();
    sites[0].soon(|site| bundles(site, "waiting") == 1);
    // Its owner, which has the buckets too, is gone; the next one sends a bundle of its own.
    sites.kill(0);
    sites[1].soon(|_| sites.sites[1..3].iter().any(|site| bundles(site, "waiting") == 1));
    sites.up(3, None);
    // What it asks for is at its home. Where the owner was silent for too long meanwhile, the next one has called the bundle back, and
    // finds the node in reach: no bundle is delivered then, but the home is missed all the same.
    sites[1].soon(|_| sites.sites[1..3].iter().any(lacked_the_home));
    assert_ne!(sites[1].state(&task).as_deref(), Some("failed"));
    sites.up(0, None);
    sites[1].soon(|site| site.state(&task).as_deref() == Some("done"));
    sites[0].deploy("tally");
    assert_eq!(sites[0].counted("bridge"), 1);
}
