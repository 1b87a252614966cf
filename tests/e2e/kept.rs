//! Kept tasks: three keepers agree on them, they outlive their owner, and no effect happens twice.

use crate::internet::{Internet, Place};
use crate::mesh::path;
use crate::support::{Answer, Home, Ran, Server};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

/// The time within which anything here happens. It takes a fraction of that; five nodes on two busy cores are slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// Links here are fast, and the tests in a hurry. An attempt that its node did not survive counts, and many do not.
const HURRY: &str = "[keepers]\nheartbeat = \"200 ms\"\nelection = \"600 ms\"\ntakeover = \"3 s\"\npatience = \"3 s\"\n\
    [tasks]\nattempts = 100\nlongest-pause = \"1 s\"\n";

/// Nodes with addresses that stay, so that they can be started again.
struct Sites {
    internet: Option<Internet>,
    sites: Vec<Site>,
}

struct Site {
    home: Home,
    place: Place,
    server: Option<Server>,
    id: String,
}

impl Sites {
    /// The first one has made the mesh; the first three keep tasks.
    fn new(count: u8, internet: Option<Internet>) -> Self {
        let listen: Vec<(Ipv4Addr, u16)> = (1..=count)
            .map(|n| match internet {
                Some(_) => (Place::Internet(n).address(), 7117),
                None => (Ipv4Addr::LOCALHOST, free_port()),
            })
            .collect();
        let entrances: Vec<String> = listen
            .iter()
            .map(|(ip, port)| format!("/ip4/{ip}/udp/{port}/quic-v1"))
            .collect();
        let mut sites = Self {
            internet,
            sites: Vec::new(),
        };
        for (n, (ip, port)) in (1..=count).zip(&listen) {
            let home = Home::new();
            let folder = home.path().join("config/karman");
            std::fs::create_dir_all(&folder).unwrap();
            let mesh = format!(
                "[mesh]\nlisten = \"{ip}:{port}\"\nfind-neighbours = false\nentrances = {entrances:?}\n"
            );
            std::fs::write(folder.join("node.toml"), format!("tier = \"fog\"\n{mesh}{HURRY}")).unwrap();
            let word = match sites.sites.first() {
                None => {
                    home.run(["mesh", "init"]).ok();
                    None
                }
                Some(first) => {
                    let rights = ["--right", "bucket-read:*", "--right", "bucket-write:*"];
                    let invite = [&["mesh", "invite", "--tier", "fog"][..], &rights].concat();
                    Some(first.home.run(invite).ok().out())
                }
            };
            sites.sites.push(Site {
                home,
                place: Place::Internet(n),
                server: None,
                id: String::new(),
            });
            let last = sites.sites.len() - 1;
            sites.up(last, word.as_deref());
            sites.sites[last].id = sites[last].home.control("/status")["node"]
                .as_str()
                .unwrap()
                .to_owned();
        }
        sites
    }

    fn up(&mut self, n: usize, join: Option<&str>) {
        let site = &mut self.sites[n];
        let mut arguments = vec!["node", "up", "--listen", "127.0.0.1:0"];
        arguments.extend(join.iter().flat_map(|word| ["--join", word]));
        let command = site.home.command(arguments);
        let mut server = site.home.started(match &self.internet {
            Some(internet) => internet.inside(site.place, &command),
            None => command,
        });
        // Nobody reads what it says, and it has much to say of nodes that come and go.
        if let Some(mut said) = server.stderr.take() {
            std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        }
        site.server = Some(server);
    }

    fn kill(&mut self, n: usize) {
        if let Some(server) = self.sites[n].server.take() {
            server.kill();
        }
    }

    fn name_keepers(&self) -> Ran {
        let ids: Vec<&str> = self.sites[..3].iter().map(|site| site.id.as_str()).collect();
        let ran = self[0].home.run([&["mesh", "keepers"], &ids[..]].concat()).ok();
        for site in &self.sites {
            // Every node learns it from its neighbours.
            site.soon(|site| site.home.run(["mesh", "keepers", "--json"]).code == 0);
        }
        ran
    }
}

impl std::ops::Index<usize> for Sites {
    type Output = Site;

    fn index(&self, n: usize) -> &Site {
        &self.sites[n]
    }
}

impl Site {
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<Answer> {
        self.home.ask(method, path, headers, body)
    }

    #[track_caller]
    fn soon(&self, holds: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !holds(self) {
            assert!(started.elapsed() < PATIENCE, "it does not come about");
        }
    }

    fn deploy(&self, guest: &str) {
        self.home.run(["deploy", &path(guest), "--grant-asked"]).ok();
    }

    /// The id of the task, once it is accepted; nothing when this node does not say so.
    fn accept(&self, key: &str, sleep: &str) -> Option<String> {
        let headers = [
            ("karman-accept", "kept"),
            ("karman-idempotency-key", key),
            ("karman-meta-sleep", sleep),
        ];
        let answer = self.ask("POST", "/tasks/tally", &headers, key.as_bytes())?;
        match answer.status {
            202 => Some(answer.json()["task"].as_str().unwrap().to_owned()),
            503 => None,
            _ => panic!("{answer:?}"),
        }
    }

    fn state(&self, task: &str) -> Option<String> {
        let answer = self.ask("GET", &format!("/accepted/{task}"), &[], b"")?;
        Some(answer.json()["state"].as_str()?.to_owned())
    }

    /// How often this key was counted in the bucket of this node.
    fn counted(&self, key: &str) -> u64 {
        let read = [("karman-meta-read", "1")];
        let answer = self.ask("POST", "/tasks/tally", &read, key.as_bytes()).unwrap();
        answer.text().parse().unwrap_or_else(|_| panic!("{answer:?}"))
    }
}

fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().port()
}

#[test]
fn a_kept_task_outlives_its_owner() {
    let mut sites = Sites::new(4, None);
    sites[3].deploy("hostile");
    let named = sites.name_keepers();
    assert!(named.out().contains("leads"), "{named:?}");
    // Neither the caller nor the provider owns it: the third keeper does, and is gone before there is an answer.
    let accept = [
        "call",
        "hostile",
        "-",
        "--accept",
        "kept",
        "--meta",
        "do=sleep 1000",
    ];
    let task = sites[2].home.run(accept).ok().out();
    sites[2].soon(|site| site.state(&task).as_deref() == Some("running"));
    sites.kill(2);
    let waited = ["task", "result", &task, "--wait", "60s"];
    let answered = sites[1].home.run(waited).ok().out();
    assert!(!answered.is_empty());
    // A node that is no keeper is told as well, and a repetition of what it forgets is not.
    let status = sites[3].home.run(["task", "status", &task, "--json"]).ok().out();
    assert!(status.contains("\"done\""), "{status}");
    sites[3].home.run(["task", "result", &task, "--forget"]).ok();
    sites[0]
        .home
        .run(["task", "result", &task])
        .fails(4, "kept no longer");
}

#[test]
fn without_keepers_nothing_is_kept() {
    let sites = Sites::new(1, None);
    sites[0].deploy("tally");
    let refused = sites[0].home.run(["call", "tally", "-", "--accept", "kept"]);
    let refused = refused.fails(4, "three keepers");
    assert!(
        refused.stderr.contains("karman mesh keepers NODE NODE NODE"),
        "{refused:?}"
    );
    assert!(refused.stderr.contains("--accept local"), "{refused:?}");
    let answer = sites[0].ask("POST", "/tasks/tally", &[("karman-accept", "kept")], b"a");
    let answer = answer.unwrap();
    assert_eq!(
        (answer.status, &answer.json()["code"]),
        (503, &"unavailable".into())
    );
    sites[0].home.run(["mesh", "keepers"]).fails(4, "no keepers");
    let twice = [sites[0].id.as_str(); 3];
    let arguments = [&["mesh", "keepers"][..], &twice].concat();
    sites[0].home.run(arguments).fails(2, "three different");
    sites[0]
        .home
        .run(["mesh", "keepers", "9c01d2e7"])
        .fails(2, "three keep");
}

/// Networks of our own, with a site for each of so many nodes; where that is not permitted, the reason is printed.
fn networks(count: u8) -> Option<Internet> {
    let places: Vec<Place> = (1..=count).map(Place::Internet).collect();
    Internet::new(&places)
        .inspect_err(|why| eprintln!("no networks of our own ({why}): nothing is cut"))
        .ok()
}

#[test]
fn the_side_without_a_majority_keeps_nothing() {
    let Some(internet) = networks(3) else { return };
    let sites = Sites::new(3, Some(internet));
    sites[0].deploy("tally");
    sites.name_keepers();
    let internet = sites.internet.as_ref().unwrap();
    let places: Vec<Place> = sites.sites.iter().map(|site| site.place).collect();
    internet.cut(&places[..2], &places[2..]).unwrap();
    let accept = ["call", "tally", "-", "--accept", "kept", "--key", "here"];
    sites[2].home.run(accept).fails(4, "no majority");
    // The others may have to elect a leader first.
    sites[1].soon(|site| site.home.run_with(accept, b"here").code == 0);
    let task = sites[1].home.run_with(accept, b"here").ok().out();
    sites[2]
        .home
        .run(["task", "status", &task])
        .fails(4, "no majority");
    internet.mend().unwrap();
    sites[2].soon(|site| site.state(&task).as_deref() == Some("done"));
    assert_eq!(sites[2].home.run(["task", "result", &task]).ok().out(), "1");
}

/// What is done to the nodes while tasks come.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Kill,
    Cut,
}

const KILLS: usize = 20;
const CUTS: usize = 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// `KARMAN_KEPT_TASKS` says how many tasks; `KARMAN_SEED` repeats a run.
#[test]
fn whatever_is_killed_or_cut_nothing_is_lost_or_done_twice() {
    let tasks = number("KARMAN_KEPT_TASKS").unwrap_or(60) as usize;
    let seed = number("KARMAN_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    println!("seed {seed}, {tasks} tasks");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut sites = Sites::new(5, networks(5));
    // The one that made the mesh runs nothing: what it owns runs elsewhere.
    (1..5).for_each(|n| sites[n].deploy("tally"));
    sites.name_keepers();

    let mut blows = [[Blow::Kill; KILLS].as_slice(), &[Blow::Cut; CUTS]].concat();
    rng.shuffle(&mut blows);
    let started = Instant::now();
    let mut accepted: BTreeMap<String, String> = BTreeMap::new();
    let mut longest = Duration::ZERO;
    for (number, blow) in blows.iter().enumerate() {
        let share = tasks * number / blows.len()..tasks * (number + 1) / blows.len();
        let keys: Vec<String> = share.map(|key| format!("key-{key}")).collect();
        let before = Instant::now();
        let handed_in = match blow {
            Blow::Kill => under_a_kill(&mut sites, &mut rng, &keys),
            Blow::Cut => under_a_cut(&sites, &mut rng, &keys),
        };
        longest = longest.max(before.elapsed());
        accepted.extend(handed_in);
    }
    println!(
        "{} accepted while {KILLS} were killed and {CUTS} cuts made, in {:.1?}; the longest blow took {longest:.1?}",
        accepted.len(),
        started.elapsed()
    );
    assert_eq!(accepted.len(), tasks);

    let started = Instant::now();
    for (key, task) in &accepted {
        let asked = &sites[rng.usize(..5)];
        asked.soon(|site| site.state(task).as_deref() == Some("done"));
        let result = asked.ask("GET", &format!("/accepted/{task}/result?wait=9s"), &[], b"");
        assert_eq!(result.map(|result| result.text()).as_deref(), Some("1"), "{key}");
    }
    println!("all are done after {:.1?} more", started.elapsed());
    sites[0].deploy("tally");
    for key in accepted.keys() {
        let counted: Vec<u64> = sites.sites.iter().map(|site| site.counted(key)).collect();
        assert_eq!(
            counted.iter().sum::<u64>(),
            1,
            "{key} was counted {counted:?} times"
        );
    }
}

type Accepted = Vec<(String, String)>;

/// A node goes, tasks come, the node comes back.
fn under_a_kill(sites: &mut Sites, rng: &mut fastrand::Rng, keys: &[String]) -> Accepted {
    let victim = rng.usize(..sites.sites.len());
    let (early, late) = keys.split_at(keys.len() / 2);
    let mut accepted = hand_in(sites, rng, early, &[0, 1, 2, 3, 4]);
    sites.kill(victim);
    let others: Vec<usize> = (0..5).filter(|n| *n != victim).collect();
    accepted.extend(hand_in(sites, rng, late, &others));
    sites.up(victim, None);
    accepted
}

/// The network is cut in two; tasks come on both sides; it is whole again.
fn under_a_cut(sites: &Sites, rng: &mut fastrand::Rng, keys: &[String]) -> Accepted {
    let Some(internet) = &sites.internet else {
        return hand_in(sites, rng, keys, &[0, 1, 2, 3, 4]);
    };
    let alone = rng.usize(..3);
    let (mut few, mut many) = (vec![alone], Vec::new());
    for n in (0..5).filter(|n| *n != alone) {
        match n >= 3 && rng.bool() {
            true => few.push(n),
            false => many.push(n),
        }
    }
    let places = |side: &[usize]| -> Vec<Place> { side.iter().map(|n| sites[*n].place).collect() };
    internet.cut(&places(&few), &places(&many)).unwrap();
    let nobodys = format!("nobody's-{}", rng.u32(..));
    let accepted = std::thread::scope(|scope| {
        let on_the_wrong_side = scope.spawn(|| sites[alone].accept(&nobodys, "0"));
        let accepted = hand_in(sites, rng, keys, &many);
        let refused = on_the_wrong_side.join().unwrap();
        assert_eq!(refused, None, "a minority has accepted a task");
        accepted
    });
    internet.mend().unwrap();
    accepted
}

/// Hands each key in until it is accepted, at some of these nodes.
fn hand_in(sites: &Sites, rng: &mut fastrand::Rng, keys: &[String], at: &[usize]) -> Accepted {
    let seeded: Vec<(&String, fastrand::Rng)> = keys.iter().map(|key| (key, rng.fork())).collect();
    std::thread::scope(|scope| {
        let running: Vec<_> = seeded
            .into_iter()
            .map(|(key, mut rng)| {
                scope.spawn(move || {
                    // Some take long enough to be killed in the middle.
                    let sleep = ["0", "100", "400"][rng.usize(..3)];
                    let started = Instant::now();
                    loop {
                        if let Some(task) = sites[at[rng.usize(..at.len())]].accept(key, sleep) {
                            return (key.clone(), task);
                        }
                        assert!(started.elapsed() < PATIENCE, "{key} is not accepted");
                    }
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
