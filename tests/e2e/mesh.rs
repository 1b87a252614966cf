//! Nodes as processes of their own that join one mesh on loopback: they find each other, share the work, and keep strangers
//! out.

mod membership;

use crate::support::{Home, Ran, Server, guest, pause, until};
use std::time::{Duration, Instant};

/// The time within which what one node offers is found from every other.
pub(crate) const FOUND: Duration = Duration::from_secs(10);

pub(crate) struct Node {
    pub(crate) home: Home,
    pub(crate) server: Server,
}

/// A folder whose node listens on loopback only, and does not look for others there.
pub(crate) fn home(tier: &str) -> Home {
    let home = Home::new();
    configure(&home, tier, &[]);
    home
}

fn configure(home: &Home, tier: &str, entrances: &[String]) {
    let folder = home.path().join("config/karman");
    std::fs::create_dir_all(&folder).unwrap();
    let config = format!(
        "tier = \"{tier}\"\n[mesh]\nlisten = \"127.0.0.1:0\"\nfind-neighbours = false\nentrances = {entrances:?}\n"
    );
    std::fs::write(folder.join("node.toml"), config).unwrap();
}

pub(crate) fn up(home: Home, more: &[&str]) -> Node {
    let arguments = [&["node", "up", "--listen", "127.0.0.1:0"], more].concat();
    let server = home.start(arguments);
    Node { home, server }
}

/// The node where the mesh is made.
pub(crate) fn first() -> Node {
    let home = home("cloud");
    home.run(["mesh", "init"]).ok();
    up(home, &[])
}

impl Node {
    pub(crate) fn invite(&self, more: &[&str]) -> String {
        let arguments = [&["mesh", "invite"], more].concat();
        self.home.run(arguments).ok().out()
    }

    pub(crate) fn joined(&self, tier: &str, more: &[&str]) -> Self {
        let word = self.invite(&[&["--tier", tier], more].concat());
        up(home(tier), &["--join", &word])
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.home.run(arguments)
    }

    pub(crate) fn id(&self) -> String {
        let status = self.home.control("/status");
        status["node"].as_str().unwrap().to_owned()
    }

    /// Runs it until it succeeds: what the mesh has yet to hear of is there within [`FOUND`].
    #[track_caller]
    pub(crate) fn soon(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let started = Instant::now();
        loop {
            let ran = self.home.run_with(arguments, input);
            if ran.code == 0 || started.elapsed() > FOUND {
                return ran.ok();
            }
            pause();
        }
    }

    /// Waits until it knows what so many nodes offer, itself among them.
    #[track_caller]
    pub(crate) fn finds(&self, nodes: usize) {
        until(FOUND, "the nodes do not find each other", || {
            self.run(&["mesh", "offers", "--json"]).ok().out().lines().count() >= nodes
        });
    }
}

pub(crate) fn path(guest_name: &str) -> String {
    guest(guest_name).to_str().unwrap().to_owned()
}

#[test]
fn a_hedged_call_does_not_wait_for_a_node_that_hangs() {
    let home = home("cloud");
    home.run(["mesh", "init"]).ok();
    // By what calls took, it would soon ask the other one first.
    home.configure("[policies]\nroute = \"nearest-free\"\n");
    let cloud = up(home, &[]);
    let both = [cloud.joined("fog", &[]), cloud.joined("edge", &[])];
    for node in &both {
        node.run(&["deploy", &path("tiny")]).ok();
    }
    let providers = || {
        let offers = cloud.home.control("/mesh/offers");
        let offers = offers.as_array().unwrap();
        offers
            .iter()
            .filter(|offer| offer.to_string().contains("tiny"))
            .count()
    };
    until(FOUND, "the offers are not found", || providers() >= 2);
    let ran = cloud.soon(&["call", "tiny", "-"], b"12345");
    let ran_on = |ran: &Ran, node: &Node| ran.stderr.contains(&format!("ran on {}", &node.id()[..8]));
    let (nearest, other) = match ran_on(&ran, &both[0]) {
        true => (&both[0], &both[1]),
        false => (&both[1], &both[0]),
    };
    nearest.server.signal_stop();
    let hedged = ["call", "tiny", "-", "--within", "20s", "--hedge", "100ms"];
    let ran = cloud.home.run_with(hedged, b"123").ok();
    assert_eq!(ran.out(), "3");
    assert!(ran_on(&ran, other), "{ran:?}");
    // Without a hedge the first one has all the time.
    cloud
        .home
        .run_with(["call", "tiny", "-", "--within", "1s"], b"123")
        .fails(5, "within");
}

#[test]
fn what_one_node_has_every_other_can_call() {
    let cloud = first();
    let (fog, edge) = (cloud.joined("fog", &[]), cloud.joined("edge", &[]));
    edge.run(&["deploy", &path("tiny")]).ok();

    let ran = cloud.soon(&["call", "tiny", "-"], b"12345");
    assert_eq!(ran.out(), "5");
    assert!(
        ran.stderr.contains(&format!("ran on {} (edge)", &edge.id()[..8])),
        "{ran:?}"
    );
    // Fog and edge have never met: they find each other through the first node.
    let ran = fog.soon(&["call", "tiny", "-"], b"123");
    assert_eq!(ran.out(), "3");
    assert!(ran.stderr.contains("(edge)"), "{ran:?}");

    let offers = fog.run(&["mesh", "offers", "--json"]).ok().out();
    assert_eq!(offers.lines().count(), 3, "{offers}");
    let peers = fog.run(&["mesh", "peers", "--json"]).ok().out();
    assert!(
        peers.lines().any(|line| line.contains("\"path\":\"direct\"")),
        "{peers}"
    );
    let pinged = fog.run(&["mesh", "ping", &edge.id()]).ok().out();
    assert!(pinged.contains("direct"), "{pinged}");

    // A call that takes too long ends on both sides.
    edge.run(&["deploy", &path("hostile")]).ok();
    let slow = [
        "call",
        "hostile",
        "-",
        "--within",
        "300ms",
        "--meta",
        "do=sleep 60000",
    ];
    let started = Instant::now();
    loop {
        let ran = cloud.run(&slow);
        if ran.code != 4 || started.elapsed() > FOUND {
            ran.fails(5, "did not finish within");
            break;
        }
    }
    let ended = Instant::now();
    loop {
        let status = edge.home.control("/status");
        let plugins = status["plugins"].as_array().unwrap();
        if plugins.iter().all(|plugin| plugin["running"] == 0) {
            break;
        }
        assert!(ended.elapsed() < FOUND, "the guest still runs: {status}");
        pause();
    }

    // What a node that is gone offered is not called any more, and its absence is said.
    edge.server.kill();
    cloud.run(&["call", "tiny", "-"]).fails(4, "tiny");
}

#[test]
fn a_link_is_measured_each_way_and_the_peers_show_it() {
    let cloud = first();
    let word = cloud.invite(&["--tier", "edge"]);
    let edge = home("edge");
    // What leaves the board is slow, what comes is not.
    let links = edge.path().join("links.toml");
    std::fs::write(&links, "[[link]]\nto = \"all\"\nrate = \"4 Mbit/s\"\n").unwrap();
    let edge = up(
        edge,
        &["--join", &word, "--link-profile", links.to_str().unwrap()],
    );
    let rates_of = |text: &str| {
        let rates = text
            .split("   ")
            .find_map(|column| column.trim().strip_suffix(" Mbit/s"));
        let (down, up) = rates?.split_once('/')?;
        Some([down, up].map(|figure| figure.parse::<f64>().ok()))
    };
    let peers = || cloud.run(&["mesh", "peers"]).ok().out();
    cloud.soon(&["mesh", "ping", &edge.id()], b"");
    assert_eq!(rates_of(&peers()), None, "nothing was measured yet");
    let pinged = cloud.run(&["mesh", "ping", &edge.id(), "--rates"]).ok().out();
    let Some([Some(down), Some(up)]) = rates_of(&pinged) else {
        panic!("{pinged}")
    };
    assert!(down > 0.0 && down < 5.0 && up > down, "{pinged}");
    assert_eq!(rates_of(&peers()), Some([Some(down), Some(up)]), "{}", peers());
}

#[test]
fn the_node_that_everybody_joined_comes_back_somewhere_else() {
    let cloud = first();
    let edge = cloud.joined("edge", &[]);
    edge.run(&["deploy", &path("tiny")]).ok();
    assert_eq!(cloud.soon(&["call", "tiny", "-"], b"12345").out(), "5");
    // Nobody knows its new port, and it knows no entrance: it finds the others where they were.
    cloud.server.kill();
    let cloud = up(cloud.home, &[]);
    assert_eq!(cloud.soon(&["call", "tiny", "-"], b"123456").out(), "6");
}

#[test]
fn a_node_and_the_one_that_let_it_in_come_back_somewhere_else() {
    let cloud = first();
    let fog = cloud.joined("fog", &[]);
    let edge = cloud.joined("edge", &[]);
    fog.run(&["deploy", &path("tiny")]).ok();
    assert_eq!(edge.soon(&["call", "tiny", "-"], b"12345").out(), "5");
    // Where the edge was let in nobody is any more; it finds the third one where that was, and so does the cloud.
    cloud.server.kill();
    edge.server.kill();
    let edge = up(edge.home, &[]);
    assert_eq!(edge.soon(&["call", "tiny", "-"], b"123456").out(), "6");
    let cloud = up(cloud.home, &[]);
    assert_eq!(cloud.soon(&["call", "tiny", "-"], b"1234567").out(), "7");
}

#[test]
fn code_moves_only_with_the_right_to_deploy() {
    let cloud = first();
    let edge = cloud.joined("edge", &[]);
    let fog = cloud.joined("fog", &["--right", "deploy:tiny"]);
    let tiny = path("tiny");
    let on_edge = format!("on {}", &edge.id()[..8]);

    let deployed = cloud.soon(&["deploy", &tiny, "--on", "tier=edge"], b"").out();
    assert!(deployed.contains(&on_edge), "{deployed}");
    assert_eq!(edge.home.run_with(["call", "tiny", "-"], b"1234").ok().out(), "4");

    let by_fog = fog.soon(&["deploy", &tiny, "--on", &edge.id()], b"").out();
    assert!(by_fog.contains(&on_edge), "{by_fog}");
    fog.run(&["deploy", &path("hostile"), "--on", &edge.id()])
        .fails(3, "has no right `deploy:hostile`");
    let metrics = edge.server.get("/metrics").text();
    for counted in [
        "karman_mesh_peers{path=\"direct\"} 2",
        "karman_mesh_refusals_total{reason=\"call-denied\"} 1",
        "karman_mesh_traffic_bytes_total{protocol=\"/karman/kad/1\",direction=\"sent\"}",
    ] {
        assert!(metrics.contains(counted), "{counted}: {metrics}");
    }
    edge.run(&["deploy", &tiny, "--on", "tier=cloud"])
        .fails(3, "has no right `deploy:tiny`");
    fog.run(&["deploy", &tiny, "--on", "tier=space"])
        .fails(4, "no node in reach");
    fog.run(&["deploy", &tiny, "--on", "everywhere"])
        .fails(2, "everywhere");

    edge.run(&["undeploy", "tiny", "--on", "tier=fog"])
        .fails(3, "has no right `deploy:tiny`");
    fog.run(&["undeploy", "tiny", "--on", "tier=cloud"])
        .fails(4, "has `tiny`");
    let gone = fog.run(&["undeploy", "tiny", "--on", "tier=edge"]).ok().out();
    assert!(gone.contains(&on_edge), "{gone}");
    edge.run(&["undeploy", "tiny"]).fails(4, "tiny");
}

#[test]
fn contacts_are_those_of_the_running_node_and_the_doctor_tells_when_they_are_not_read() {
    let home = home("cloud");
    let (plan, nothing) = (home.path().join("plan.toml"), home.path().join("nothing.toml"));
    std::fs::write(&nothing, "").unwrap();
    home.configure(&format!("contacts = {plan:?}"));
    let node = up(home, &[]);
    let doctor = node.run(&["doctor"]).ok().out();
    assert!(
        doctor.contains("plan.toml") && doctor.contains("the plan stays as it was"),
        "{doctor}"
    );
    let contact = "[[contact]]\nfrom = \"00000000000000aa\"\nto = \"00000000000000bb\"\nrate = \"1 Mbit/s\"\n\
        start = \"2008-09-21T00:00:00Z\"\nend = \"2999-09-21T00:00:00Z\"\n";
    std::fs::write(&plan, contact).unwrap();
    let mut command = node.home.command(["mesh", "contacts", "--json"]);
    command.env("KARMAN_CONFIG", &nothing);
    let shown = Ran::of(command.output().unwrap()).ok().out();
    assert!(shown.contains("00000000000000aa"), "{shown}");
    // One that no node would start with.
    std::fs::write(&nothing, "tier = \"moon\"").unwrap();
    let mut command = node.home.command(["doctor"]);
    command.env("KARMAN_CONFIG", &nothing);
    let said = Ran::of(command.output().unwrap());
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.out().contains("1 ahead"), "{said:?}");
}

impl Node {
    /// Where other nodes can reach it.
    fn address(&self) -> String {
        let addresses = self.home.control("/mesh/addresses");
        addresses[0].as_str().unwrap().to_owned()
    }
}

#[test]
fn a_rehearsal_on_links_of_a_profile() {
    let cloud = first();
    let word = cloud.invite(&["--tier", "edge"]);
    let edge = home("edge");
    let profile = |text: &str| {
        let file = edge.path().join("links.toml");
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let wrong = profile("[[link]]\nto = \"tier=cloud\"\nlag = \"80ms\"\n");
    edge.run([
        "node",
        "up",
        "--listen",
        "127.0.0.1:0",
        "--join",
        &word,
        "--link-profile",
        &wrong,
    ])
    .fails(2, "lag");
    let slow = profile("[[link]]\nto = \"tier=cloud\"\ndelay = \"80ms\"\n");
    let edge = up(edge, &["--join", &word, "--link-profile", &slow]);
    let pinged = edge.soon(&["mesh", "ping", &cloud.id(), "--json"], b"").out();
    let pinged: serde_json::Value = serde_json::from_str(&pinged).unwrap();
    assert!(pinged["round_trip_us"].as_u64().unwrap() >= 80_000, "{pinged}");
}

#[test]
fn the_doctor_says_why_nobody_is_met() {
    let cloud = first();
    let edge = cloud.joined("edge", &[]);
    let healthy = edge.soon(&["doctor"], b"").out();
    assert!(healthy.contains("1 node in reach"), "{healthy}");
    assert!(healthy.contains("edge node of mesh"), "{healthy}");
    let Node { home, server } = edge;
    drop((cloud, server));
    let edge = up(home, &[]);
    let started = Instant::now();
    let mut said = String::new();
    while !said.contains("quic-v1: Connection refused") {
        assert!(started.elapsed() < FOUND, "{said}");
        said = edge.run(&["doctor"]).ok().out();
    }
    assert!(said.contains("nobody is in reach"), "{said}");
}

#[test]
fn a_plugin_waits_for_a_node_that_has_just_gone() {
    let cloud = first();
    let edge = cloud.joined("edge", &[]);
    let id = edge.id();
    cloud.soon(&["mesh", "ping", &id], b"");
    edge.server.kill();
    let sent = cloud.run(&["deploy", &path("tiny"), "--on", &id, "--wait", "1h"]);
    assert!(sent.ok().out().contains("waits for"), "it does not wait");
}
