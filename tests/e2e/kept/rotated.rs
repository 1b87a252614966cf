//! The root key of a mesh is replaced while it lives: members follow, those that were away come back, and what is kept goes on.

use super::sites::{PATIENCE, Site, Sites};
use crate::mesh::{home, up};
use crate::support::Home;
use serde_json::Value;
use std::time::Instant;

const PASSPHRASE: (&str, &str) = ("KARMAN_PASSPHRASE", "correct horse battery");

fn status(site: &Site) -> Option<String> {
    let status = site.ask("GET", "/status", &[], b"")?.json();
    Some(status["mesh"].as_str()?.to_owned())
}

/// Until when this node is a member, by its own diagnosis.
fn until(site: &Site) -> Option<String> {
    let found = site.ask("GET", "/mesh/diagnosis", &[], b"")?.json();
    let found = found
        .as_array()?
        .iter()
        .find(|found| found["check"] == "membership");
    let says = found?["found"].as_str()?.to_owned();
    says.split_once("until ").map(|(_, until)| until.to_owned())
}

fn rotate(site: &Site, more: &[&str]) -> Value {
    let arguments = [&["mesh", "rotate", "--json"], more].concat();
    let ran = site
        .home
        .command(arguments)
        .env(PASSPHRASE.0, PASSPHRASE.1)
        .output();
    let ran = crate::support::Ran::of(ran.unwrap()).ok();
    serde_json::from_str(&ran.out()).unwrap()
}

#[test]
fn members_follow_to_a_new_root_key_and_those_that_were_away_come_back() {
    let mut sites = Sites::new(4, None);
    for site in &sites.sites[..3] {
        site.deploy("tally");
    }
    sites.name_keepers();
    sites.keep("before");
    let first = status(&sites[0]).unwrap();
    let old_word = sites[0].home.run(["mesh", "invite", "--tier", "edge"]).ok().out();
    let address = sites[0].home.control("/mesh/addresses")[0]
        .as_str()
        .unwrap()
        .to_owned();
    sites.kill(3);

    let backup = sites[0].home.path().join("mesh-root.txt");
    let rotated = rotate(
        &sites[0],
        &["--grace", "1d", "--backup", backup.to_str().unwrap()],
    );
    let mesh = rotated["mesh"].as_str().unwrap().to_owned();
    assert!(
        rotated["before"].as_str().unwrap().starts_with(&first),
        "{rotated}"
    );
    let is_there = |site: &Site| status(site).is_some_and(|short| mesh.starts_with(&short));
    for site in &sites.sites[..3] {
        site.soon(is_there);
    }
    // By the old key a membership would end tomorrow.
    let ends = |site: &Site| until(site).unwrap_or_default();
    for site in &sites.sites[1..3] {
        site.soon(|site| ends(site) > end_of(&rotated));
    }
    sites.keep("after");
    sites[1].soon(|site| site.home.control("/mesh/keepers")["charter"] == 2);

    // A further rotation that would write over it fails, and it stays.
    let again = ["mesh", "rotate", "--backup", backup.to_str().unwrap()];
    let again = sites[0]
        .home
        .command(again)
        .env(PASSPHRASE.0, PASSPHRASE.1)
        .output();
    crate::support::Ran::of(again.unwrap()).fails(2, "is there already");
    // The backup is that of the new key.
    let other = Home::new();
    let restore = ["mesh", "init", "--json", "--restore", backup.to_str().unwrap()];
    let restored = other.command(restore).env(PASSPHRASE.0, PASSPHRASE.1).output();
    let restored = crate::support::Ran::of(restored.unwrap()).ok();
    assert!(restored.out().contains(&mesh), "{restored:?}");
    // A machine that has a root key makes no other.
    other.run(["mesh", "init"]).fails(2, "is there already");

    // Whoever was away comes back, also to a node that was itself started again.
    sites.kill(0);
    sites.up(0, None);
    sites[0].soon(is_there);
    sites.up(3, None);
    sites[3].soon(is_there);
    sites[3].soon(|site| ends(site) > end_of(&rotated));
    let to = sites[2].id.clone();
    sites[3].soon(|site| site.home.run(["mesh", "ping", &to]).code == 0);
    sites.keep("again");

    // Words of both keys lead in.
    let new_word = ["mesh", "invite", "--tier", "edge", "--address", &address];
    let new_word = sites[0].home.run(new_word).ok().out();
    for word in [old_word, new_word] {
        let joined = up(home("edge"), &["--join", &word]);
        let short = || {
            joined.home.control("/status")["mesh"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let started = Instant::now();
        while !mesh.starts_with(&short()) {
            assert!(started.elapsed() < PATIENCE, "{} is not {mesh}", short());
        }
    }
    sites[1]
        .home
        .run(["mesh", "rotate"])
        .fails(4, "does not hold the root key");
}

/// The day on which the old key ends, as people write it.
fn end_of(rotated: &Value) -> String {
    let until = karman_mesh::membership::UnixTime::from_seconds(rotated["until"].as_u64().unwrap());
    until.to_string()
}
