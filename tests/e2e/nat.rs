//! Twelve nodes in four networks: an internet, two homes behind routers that translate, and an office that lets no UDP
//! through. Each node is a process in a network namespace of its own; what one has, every other finds and calls.

use crate::internet::{Internet, Place};
use crate::support::{Home, Server, guest, pause};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long anything may take here. It takes a tenth of that; twelve nodes on two busy cores are slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes that go over a relay; those of public networks let 128 KiB through.
const TENSOR: usize = 1 << 20;

/// Every node's place, and its tier. One node of the second home is behind a translation that no hole goes through.
const PLACES: [(Place, &str); 12] = [
    (Place::Internet(1), "cloud"),
    (Place::Internet(2), "fog"),
    (Place::Internet(3), "fog"),
    (Place::Internet(4), "fog"),
    (Place::Internet(5), "fog"),
    (Place::Home(1, 2), "edge"),
    (Place::Home(1, 3), "edge"),
    (Place::Home(2, 2), "edge"),
    (Place::Home(2, 3), "edge"),
    (Place::Home(2, Place::UNPUNCHED), "edge"),
    (Place::Office(2), "edge"),
    (Place::Office(3), "edge"),
];

struct Node {
    place: Place,
    /// What it offers, and no other.
    task: String,
    id: String,
    home: Home,
    /// How long it took from the start of the process until it was a member and answered.
    joined: Duration,
    _server: Server,
}

impl Node {
    fn start(number: usize, internet: Option<&Internet>, join: Option<&str>) -> Self {
        let (place, tier) = PLACES[number];
        let home = Home::new();
        let folder = home.path().join("config/karman");
        std::fs::create_dir_all(&folder).unwrap();
        let mesh = match (internet, place) {
            // Of two hosts that use one port a router gives one another, a new one for each node that it talks to.
            (Some(_), Place::Home(_, host)) => {
                format!("[mesh]\nlisten = \"0.0.0.0:{}\"\n", 7200 + u16::from(host))
            }
            (Some(_), _) => String::new(),
            (None, _) => "[mesh]\nlisten = \"127.0.0.1:0\"\nfind-neighbours = false\n".to_owned(),
        };
        std::fs::write(folder.join("node.toml"), format!("tier = \"{tier}\"\n{mesh}")).unwrap();
        if join.is_none() {
            home.run(["mesh", "init"]).ok();
        }
        let mut arguments = vec!["node", "up", "--listen", "127.0.0.1:0"];
        arguments.extend(join.iter().flat_map(|word| ["--join", word]));
        let command = home.command(arguments);
        let started = Instant::now();
        let server = home.started(match internet {
            Some(internet) => internet.inside(place, &command),
            None => command,
        });
        let joined = started.elapsed();
        let task = format!("t-{number:02}");
        // The manifest is plain text, and the names are of one length.
        let tiny = std::fs::read(guest("tiny")).unwrap();
        let named = replace(tiny, b"name = \"tiny\"", format!("name = \"{task}\"").as_bytes());
        let file = home.path().join("task.wasm");
        std::fs::write(&file, named).unwrap();
        home.run(["deploy", file.to_str().unwrap()]).ok();
        let id = home.control("/status")["node"].as_str().unwrap().to_owned();
        Self {
            place,
            task,
            id,
            home,
            joined,
            _server: server,
        }
    }

    /// The nodes whose offer it does not find.
    fn misses<'a>(&self, nodes: &'a [Self]) -> Vec<&'a Self> {
        let offers = self.home.control("/mesh/offers");
        let offers = offers.as_array().cloned().unwrap_or_default();
        let found = |node: &&Self| {
            let offer = offers
                .iter()
                .find(|offer| offer["offer"]["node"] == node.id.as_str());
            offer.is_some_and(|offer| offer["offer"]["tasks"][0]["name"] == node.task.as_str())
        };
        nodes.iter().filter(|node| !found(node)).collect()
    }

    /// By which path it reaches the other.
    fn path_to(&self, other: &Self) -> String {
        let peers = self.home.control("/mesh/peers");
        let peers = peers.as_array().cloned().unwrap_or_default();
        let peer = peers.iter().find(|peer| peer["node"] == other.id.as_str());
        let path = peer.and_then(|peer| peer["path"].as_str());
        path.unwrap_or("not connected").to_owned()
    }

    fn call(&self, other: &Self, body: &[u8]) -> Duration {
        let started = Instant::now();
        let ran = self.home.run_with(["call", other.task.as_str(), "-"], body).ok();
        assert_eq!(ran.out(), body.len().to_string());
        assert!(
            ran.stderr.contains(&format!("ran on {}", &other.id[..8])),
            "{ran:?}"
        );
        started.elapsed()
    }
}

fn replace(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes
        .windows(from.len())
        .position(|window| window == from)
        .unwrap();
    bytes[at..at + from.len()].copy_from_slice(to);
    bytes
}

/// Does the same for every item at once.
fn all<T: Sync, R: Send>(items: &[T], what: impl Fn(&T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let running: Vec<_> = items.iter().map(|item| scope.spawn(|| what(item))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn twelve_nodes_behind_routers_and_firewalls_call_each_other() {
    let internet = match Internet::new(&PLACES.map(|(place, _)| place)) {
        Ok(internet) => Some(internet),
        Err(why) => {
            eprintln!("no networks of our own ({why}): the same nodes, on loopback, behind nothing");
            None
        }
    };
    let started = Instant::now();
    let first = Node::start(0, internet.as_ref(), None);
    let numbers: Vec<usize> = (1..PLACES.len()).collect();
    let mut nodes = vec![first];
    let invited: Vec<(usize, String)> = numbers
        .iter()
        .map(|number| {
            let invite = ["mesh", "invite", "--tier", PLACES[*number].1];
            (*number, nodes[0].home.run(invite).ok().out())
        })
        .collect();
    nodes.extend(all(&invited, |(number, word)| {
        Node::start(*number, internet.as_ref(), Some(word))
    }));
    println!("{} nodes are up after {:.1?}", nodes.len(), started.elapsed());
    for node in nodes.iter().filter(|node| matches!(node.place, Place::Office(_))) {
        println!(
            "the office, where no UDP passes, joined after {:.1?}",
            node.joined
        );
        assert!(node.joined < PATIENCE, "TCP did not win in time");
    }

    let last_start = Instant::now();
    let found = all(&nodes, |node| {
        loop {
            let missing = node.misses(&nodes);
            if missing.is_empty() {
                break;
            }
            let missing: Vec<Place> = missing.iter().map(|node| node.place).collect();
            assert!(
                last_start.elapsed() < PATIENCE,
                "{:?} does not find {missing:?}",
                node.place
            );
            pause();
        }
        last_start.elapsed()
    });
    println!("every offer is found from every node after {found:.1?}");

    let started = Instant::now();
    let mut took: Vec<Duration> = all(&nodes, |node| {
        let others = nodes.iter().filter(|other| other.id != node.id);
        others
            .map(|other| node.call(other, b"12345"))
            .collect::<Vec<Duration>>()
    })
    .concat();
    took.sort();
    let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
    println!(
        "{} calls in {:.1?}: median {median:.1?}, longest {longest:.1?}",
        took.len(),
        started.elapsed()
    );
    assert_eq!(took.len(), 132);
    if internet.is_some() {
        judge_paths(&nodes);
    }
}

fn judge_paths(nodes: &[Node]) {
    let of = |home: u8| {
        let at_home = |node: &&Node| matches!(node.place, Place::Home(number, host) if number == home && host != Place::UNPUNCHED);
        nodes.iter().filter(at_home).collect::<Vec<&Node>>()
    };
    let (one, other) = (of(1), of(2));
    let punched = || {
        one.iter()
            .any(|node| other.iter().any(|other| node.path_to(other) == "direct"))
    };
    let started = Instant::now();
    while !punched() {
        assert!(
            started.elapsed() < PATIENCE,
            "no hole is punched between the homes"
        );
        pause();
    }
    println!("the homes have a hole after {:.1?} more", started.elapsed());

    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (node, other) in nodes
        .iter()
        .flat_map(|node| nodes.iter().map(move |other| (node, other)))
    {
        if node.id != other.id {
            let way = format!("{} to {}", node.place, other.place);
            *counts.entry((way, node.path_to(other))).or_default() += 1;
        }
    }
    for ((way, path), count) in &counts {
        println!("{way:<24} {path:<14} {count}");
        // UDP does not leave the office.
        let office = way.contains("office") && way != "office to office";
        assert!(!office || path != "direct", "{way} is {path}");
    }

    let at = |place: Place| nodes.iter().find(|node| node.place == place).unwrap();
    let ping = |from: &Node, to: &Node| from.home.run(["mesh", "ping", &to.id]).ok().out();
    // That UDP does not pass is known once somebody has waited for it.
    let started = Instant::now();
    let pinged = loop {
        let pinged = ping(at(Place::Office(2)), at(Place::Internet(1)));
        assert!(pinged.contains("tcp"), "{pinged}");
        if pinged.contains("UDP does not pass") {
            break pinged;
        }
        assert!(started.elapsed() < PATIENCE, "{pinged}");
        pause();
    };
    println!("office to cloud: {pinged}");
    let doctor = |node: &Node| node.home.run(["doctor"]).ok().out();
    let office = doctor(at(Place::Office(2)));
    assert!(office.contains("over TCP"), "{office}");
    let hidden = at(Place::Home(2, Place::UNPUNCHED));
    let home = doctor(hidden);
    assert!(
        home.contains("behind a router that translates; others come over a relay"),
        "{home}"
    );
    println!("what the doctor says behind a router:\n{home}");
    for node in one {
        let pinged = ping(node, hidden);
        println!("home to what cannot be punched: {pinged}");
        assert!(pinged.contains("relayed"), "{pinged}");
        let took = node.call(hidden, &vec![7; TENSOR]);
        println!("{} MiB over the relay in {took:.1?}", TENSOR >> 20);
    }
}
