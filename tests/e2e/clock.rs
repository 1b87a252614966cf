//! Boards without a battery boot in 1970 (`faketime` makes them).

use crate::mesh::{Node, first, up};
use crate::support::{pause, until};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long anything may take here; a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the membership lasts that runs out.
const LASTS: Duration = Duration::from_secs(4);

fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let places = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let mut found = places.filter(|path| path.exists());
    found
        .next()
        .expect("no `faketime` on this machine: run `apt-get install faketime`")
}

/// With a clock that shows what `faketime` makes of this.
fn at(time: &str, mut command: Command) -> Command {
    command
        .env("LD_PRELOAD", library())
        .env("FAKETIME", time)
        // Time that only ever passes is right on a board, too.
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("DONT_FAKE_MONOTONIC", "1");
    command
}

fn up_at(time: &str, node: Node) -> Node {
    let Node { home, server } = node;
    server.kill();
    let command = at(time, home.command(["node", "up", "--listen", "127.0.0.1:0"]));
    let server = home.started(command);
    Node { home, server }
}

fn up_in_1970(node: Node) -> Node {
    up_at("@1970-01-01 00:01:00", node)
}

fn refused(node: &Node, reason: &str) -> bool {
    let counter = format!("karman_mesh_refusals_total{{reason=\"{reason}\"}}");
    node.server.get("/metrics").text().contains(&counter)
}

#[test]
fn a_board_in_1970_joins_holds_what_it_must_and_lets_in_nobody_whose_time_is_over() {
    let cloud = first();
    let lasts = format!("{}s", LASTS.as_secs());
    let brief = cloud.joined("edge", &["--lasts", &lasts]);
    let joined = Instant::now();
    brief.server.signal_kill();
    // The next one joins when that membership is over, so it has seen a time after its end.
    let mut board = cloud.joined("edge", &[]);
    while joined.elapsed() < LASTS + Duration::from_secs(2) {
        board.server.kill();
        board = up(board.home, &[]);
    }
    let accept = ["call", "nowhere", "-", "--accept", "local", "--within", "1h"];
    let task = board.run(&accept).ok().out();

    let board = up_in_1970(board);
    until(PATIENCE, "it does not come back into the mesh", || {
        board.run(&["mesh", "peers"]).out().lines().count() >= 2
    });
    let status = board.server.get(&format!("/accepted/{task}")).json();
    assert_eq!(status["state"], "deadline-unknown", "{status}");

    // By the clock of the one that shows it, and by the board's, that membership is good for decades.
    let entrances = board.home.control("/mesh/addresses");
    let config = brief.home.path().join("config/karman/node.toml");
    let entrance = format!(
        "tier = \"edge\"\n[mesh]\nlisten = \"127.0.0.1:0\"\nfind-neighbours = false\nentrances = {entrances}\n"
    );
    std::fs::write(config, entrance).unwrap();
    let brief = up_in_1970(brief);
    let started = Instant::now();
    while !refused(&board, "expired") {
        assert!(
            started.elapsed() < PATIENCE,
            "{}",
            board.server.get("/metrics").text()
        );
        pause();
    }
    drop(brief);
}

#[test]
fn a_clock_that_was_ahead_is_told_and_set_back_by_the_operator() {
    let cloud = first();
    let edge = up_at("+40d", cloud.joined("edge", &[]));
    assert!(edge.server.said.contains("outside mesh"), "{}", edge.server.said);
    edge.server.kill();
    let edge = up(edge.home, &[]);
    assert!(
        edge.server.said.contains("and its clock shows"),
        "{}",
        edge.server.said
    );
    edge.run(&["node", "reset-clock"]).fails(4, "is running");
    let Node { home, server } = edge;
    server.kill();
    let doctor = home.run(["doctor"]).ok().out();
    assert!(
        doctor.contains("this node has seen") && doctor.contains("karman node reset-clock"),
        "{doctor}"
    );
    let back = home.run(["node", "reset-clock"]).ok().out();
    assert!(back.contains("it had seen"), "{back}");
    let edge = up(home, &[]);
    assert!(edge.server.said.contains("in mesh"), "{}", edge.server.said);
    edge.soon(&["mesh", "ping", &cloud.id()], b"");
    assert!(!refused(&cloud, "expired"));
}
