//! Nodes as processes of their own that join one mesh on loopback: they find each other, share the work, and keep strangers
//! out.

use crate::support::{Home, Ran, Server, guest, pause};
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
        let started = Instant::now();
        while self.run(&["mesh", "offers", "--json"]).ok().out().lines().count() < nodes {
            assert!(started.elapsed() < FOUND, "the nodes do not find each other");
            pause();
        }
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
    let started = Instant::now();
    while providers() < 2 {
        assert!(started.elapsed() < FOUND, "the offers are not found");
        pause();
    }
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
    let started = Instant::now();
    while fog.run(&["call", "tiny", "-"]).code == 0 {
        assert!(started.elapsed() < FOUND, "a revoked node still answers");
        pause();
    }
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
