//! Who is let in, for how long and as what, and who is put out.

use super::{FOUND, Node, configure, first, home, path, up};
use crate::support::{Home, Ran, pause, until};
use std::time::{Duration, Instant};

#[test]
fn an_invitation_lets_in_one_node_and_a_revoked_one_stays_out() {
    let cloud = first();
    let word = cloud.invite(&["--tier", "edge"]);
    let file = cloud.home.path().join("karman-invite.txt");
    std::fs::write(&file, format!("{word}\n")).unwrap();
    let mut edge = up(home("edge"), &["--join", file.to_str().unwrap()]);
    assert!(!file.exists(), "the invitation lies about after it was used");

    let other = home("edge");
    other
        .run(["node", "up", "--listen", "127.0.0.1:0", "--join", &word])
        .fails(3, "used before");
    let mut typo = word.clone();
    typo.pop();
    other
        .run(["node", "up", "--listen", "127.0.0.1:0", "--join", &typo])
        .fails(2, "typing error");
    let late = cloud.invite(&["--tier", "edge", "--expires", "1s"]);
    let made = Instant::now();
    while made.elapsed() < Duration::from_millis(2100) {
        pause();
    }
    other
        .run(["node", "up", "--listen", "127.0.0.1:0", "--join", &late])
        .fails(3, "until");

    // The membership outlives the invitation and a restart, and so does the way back.
    edge.run(&["deploy", &path("tiny")]).ok();
    cloud.soon(&["call", "tiny", "-"], b"12");
    let id = edge.id();
    edge.server.kill();
    // As a service does, with the arguments that it joined with.
    edge = up(edge.home, &["--join", file.to_str().unwrap()]);
    cloud.soon(&["call", "tiny", "-"], b"12");
    other
        .run([
            "node",
            "up",
            "--listen",
            "127.0.0.1:0",
            "--join",
            file.to_str().unwrap(),
        ])
        .fails(2, "karman-invite.txt");

    cloud.run(&["mesh", "revoke", &id]).ok();
    let started = Instant::now();
    loop {
        let ran = cloud.run(&["call", "tiny", "-"]);
        if ran.code != 0 {
            ran.fails(4, "tiny");
            break;
        }
        assert!(started.elapsed() < FOUND, "a revoked node still answers");
        pause();
    }
    edge.run(&["call", "tiny", "-"]).ok();
}

#[test]
fn a_node_with_the_rights_invites_and_revokes_while_the_root_key_is_away() {
    let cloud = first();
    let fog = cloud.joined("fog", &["--right", "issue", "--right", "revoke"]);
    fog.run(&["mesh", "revoke", &cloud.id()])
        .fails(3, "holds the root key");
    let Node { home: root, server } = cloud;
    server.kill();
    let edge = fog.joined("edge", &[]);
    edge.run(&["deploy", &path("tiny")]).ok();
    fog.soon(&["call", "tiny", "-"], b"12");
    let made = fog.run(&["mesh", "invitations", "--json"]).ok().out();
    assert!(made.contains(&edge.id()), "{made}");
    fog.run(&["mesh", "invite", "--tier", "edge", "--right", "issue"])
        .fails(3, "only the root key gives it");
    fog.run(&["mesh", "invite", "--tier", "edge", "--lasts", "60d"])
        .fails(3, "its own membership ends before");
    edge.run(&["mesh", "invite", "--tier", "edge"])
        .fails(3, "no issuer");
    edge.run(&["mesh", "revoke", &fog.id()]).fails(3, "no issuer");
    let third = fog.joined("edge", &[]);
    fog.finds(3);
    let named = fog.run(&["mesh", "keepers", &fog.id(), &edge.id(), &third.id()]);
    assert!(named.ok().out().contains("leads"), "nobody leads");
    assert!(third.soon(&["mesh", "keepers"], b"").out().contains("leads"));

    let revoked = fog.run(&["mesh", "revoke", &edge.id()]).ok();
    assert!(revoked.stderr.contains("was a keeper"), "{revoked:?}");
    let peers = fog.run(&["mesh", "peers", "--json"]).ok().out();
    assert!(
        peers.contains(&third.id()) && !peers.contains(&edge.id()),
        "{peers}"
    );
    until(FOUND, "a revoked node still answers", || {
        fog.run(&["call", "tiny", "-"]).code != 0
    });
    let told = Instant::now();
    while !edge.run(&["doctor"]).ok().out().contains("put out of mesh") {
        assert!(told.elapsed() < FOUND, "the doctor does not say so");
    }
    drop(root);
}

/// A folder like that of [`home`], whose configuration names no tier.
fn anywhere() -> Home {
    let home = home("edge");
    let file = home.path().join("config/karman/node.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, config.replace("tier = \"edge\"\n", "")).unwrap();
    home
}

#[test]
fn a_node_stands_where_its_membership_says_also_after_a_restart() {
    let home = anywhere();
    home.run(["mesh", "init"]).ok();
    let fog = up(home, &["--tier", "fog"]);
    let space = up(anywhere(), &["--join", &fog.invite(&["--tier", "space"])]);
    assert!(space.server.said.contains("(space)"), "{}", space.server.said);
    fog.server.kill();
    let fog = up(fog.home, &[]);
    assert!(fog.server.said.contains("(fog)"), "{}", fog.server.said);
}

#[test]
fn a_node_whose_membership_is_over_runs_outside_the_mesh() {
    let cloud = first();
    let edge = cloud.joined("edge", &["--lasts", "4s"]);
    edge.run(&["deploy", &path("tiny")]).ok();
    edge.server.kill();
    let ended = Instant::now();
    while ended.elapsed() < Duration::from_secs(6) {
        pause();
    }
    let edge = up(edge.home, &[]);
    let said = &edge.server.said;
    assert!(
        said.contains("outside mesh") && said.contains("own membership"),
        "{said}"
    );
    assert_eq!(edge.home.run_with(["call", "tiny", "-"], b"123").ok().out(), "3");
    let doctor = edge.run(&["doctor"]).ok().out();
    assert!(doctor.contains("does not hold"), "{doctor}");
}

#[test]
fn a_short_membership_is_renewed_in_time() {
    let cloud = first();
    let edge = cloud.joined("edge", &["--lasts", "12s"]);
    let joined = Instant::now();
    while joined.elapsed() < Duration::from_secs(15) {
        pause();
    }
    edge.soon(&["mesh", "ping", &cloud.id()], b"");
    let doctor = edge.run(&["doctor"]).ok().out();
    assert!(doctor.contains("edge node of mesh"), "{doctor}");
}

#[test]
fn a_root_key_without_a_backup_gets_one_later() {
    let home = home("cloud");
    let init = |home: &Home, more: &[&str]| {
        let mut command = home.command([&["mesh", "init", "--json"], more].concat());
        command.env("KARMAN_PASSPHRASE", "correct horse battery");
        let said = Ran::of(command.output().unwrap()).ok().out();
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        said["mesh"].as_str().unwrap().to_owned()
    };
    let mesh = init(&home, &[]);
    let file = home.path().join("root.txt");
    let file = file.to_str().unwrap();
    assert_eq!(init(&home, &["--backup", file]), mesh);
    assert_eq!(init(&Home::new(), &["--restore", file]), mesh);
    home.run(["mesh", "init"]).fails(2, "is there already");
}

#[test]
fn an_invitation_for_one_node_works_without_an_issuer_and_who_leaves_is_a_stranger() {
    let cloud = first();
    let known = home("edge");
    let said = known.run(["node", "id", "--json"]).ok().out();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let key = said["key"].as_str().unwrap().to_owned();
    let word = cloud.invite(&["--tier", "edge", "--for", &key]);
    cloud.run(&["mesh", "leave"]).fails(4, "is running");
    let Node { home: root, server } = cloud;
    server.kill();
    home("edge")
        .run(["node", "up", "--listen", "127.0.0.1:0", "--join", &word])
        .fails(3, "it belongs to node");
    // Nobody is there, and it is a member.
    let edge = up(known, &["--join", &word]);
    assert_ne!(edge.home.control("/status")["mesh"], serde_json::Value::Null);
    root.run(["mesh", "leave"]).fails(3, "root key");
    let Node { home, server } = edge;
    server.kill();
    let left = home.run(["mesh", "leave"]).ok().out();
    assert!(left.contains("left mesh"), "{left}");
    home.run(["mesh", "leave"]).fails(4, "no mesh");
    let alone = up(home, &[]);
    assert_eq!(alone.home.control("/status")["mesh"], serde_json::Value::Null);
}

#[test]
fn nodes_of_another_mesh_are_strangers() {
    let (ours, theirs) = (first(), first());
    theirs.run(&["deploy", &path("tiny")]).ok();
    ours.server.kill();
    configure(&ours.home, "cloud", &[theirs.address()]);
    let ours = up(ours.home, &[]);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(3) {
        ours.run(&["call", "tiny", "-"])
            .fails(4, "no node in reach offers `tiny`");
        pause();
    }
    assert_eq!(theirs.run(&["mesh", "peers", "--json"]).ok().out(), "");
    home("edge")
        .run(["mesh", "invite", "--tier", "edge"])
        .fails(4, "root key");
}
