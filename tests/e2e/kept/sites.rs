//! Nodes with addresses that stay, in networks of their own that can be cut.

use crate::internet::{Internet, Place};
use crate::mesh::path;
use crate::support::{Answer, Home, Ran, Server, pause, until};
use std::io::BufRead;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The time within which anything here happens. It takes a fraction of that; five nodes on two busy cores are slow.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// Links here are fast, the tests in a hurry, and the log gives way to snapshots soon. An attempt that its node did not survive counts, and many do not.
const HURRY: &str = "[keepers]\nheartbeat = \"200 ms\"\nelection = \"600 ms\"\ntakeover = \"2 s\"\npatience = \"2 s\"\nlog = 30\n\
    [tasks]\nattempts = 100\nlongest-pause = \"1 s\"\n";

/// Nodes with addresses that stay, so that they can be started again.
pub(super) struct Sites {
    pub(super) internet: Option<Internet>,
    pub(super) sites: Vec<Site>,
    /// How often a node has said that the owner of kept tasks is lost.
    pub(super) lost: Arc<AtomicUsize>,
}

pub(super) struct Site {
    pub(super) home: Home,
    pub(super) place: Place,
    server: Option<Server>,
    pub(super) id: String,
}

impl Sites {
    /// The first one has made the mesh; the first three keep tasks.
    pub(super) fn new(count: u8, internet: Option<Internet>) -> Self {
        Self::with(count, internet, "")
    }

    /// The same, with more under `[mesh]`.
    pub(super) fn with(count: u8, internet: Option<Internet>, more: &str) -> Self {
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
            lost: Arc::default(),
        };
        for (n, (ip, port)) in (1..=count).zip(&listen) {
            let home = Home::new();
            let folder = home.path().join("config/karman");
            std::fs::create_dir_all(&folder).unwrap();
            let mesh = format!(
                "[mesh]\nlisten = \"{ip}:{port}\"\nfind-neighbours = false\nentrances = {entrances:?}\n{more}"
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

    pub(super) fn up(&mut self, n: usize, join: Option<&str>) {
        let site = &mut self.sites[n];
        let mut arguments = vec!["node", "up", "--listen", "127.0.0.1:0"];
        arguments.extend(join.iter().flat_map(|word| ["--join", word]));
        let command = site.home.command(arguments);
        let mut server = site.home.started(match &self.internet {
            Some(internet) => internet.inside(site.place, &command),
            None => command,
        });
        // It has much to say of nodes that come and go, and must not wait for a reader.
        if let Some(said) = server.stderr.take() {
            let lost = self.lost.clone();
            std::thread::spawn(move || {
                let mut lines = said.lines().map_while(Result::ok);
                while let Some(line) = lines.next() {
                    if line.contains("panicked at") {
                        eprintln!("a node: {line} {}", lines.next().unwrap_or_default());
                    }
                    let is_lost = line.contains("an owner of kept tasks is lost");
                    lost.fetch_add(is_lost.into(), Ordering::Relaxed);
                }
            });
        }
        site.server = Some(server);
    }

    pub(super) fn kill(&mut self, n: usize) {
        if let Some(server) = self.sites[n].server.take() {
            server.kill();
        }
    }

    /// What each node thinks of the keepers, and what it said last.
    pub(super) fn explain(&self) -> String {
        let of = |site: &Site| {
            let said = |path: &str| site.ask("GET", path, &[], b"").map(|answer| answer.text());
            let (keepers, logs) = (said("/mesh/keepers"), said("/logs").unwrap_or_default());
            let last = logs.char_indices().rev().nth(3_000).map_or(0, |(at, _)| at);
            format!("{} {:?}\n{keepers:?}\n{}\n", site.id, site.place, &logs[last..])
        };
        self.sites.iter().map(of).collect()
    }

    pub(super) fn name_keepers(&self) -> Ran {
        let ids: Vec<&str> = self.sites[..3].iter().map(|site| site.id.as_str()).collect();
        let ran = self[0].home.run([&["mesh", "keepers"], &ids[..]].concat()).ok();
        for site in &self.sites {
            // Every node learns it from its neighbours.
            site.soon(|site| site.home.run(["mesh", "keepers", "--json"]).code == 0);
        }
        ran
    }
}

impl Sites {
    /// A task that is kept is done, and counted once; its id.
    #[track_caller]
    pub(super) fn keep(&self, key: &str) -> String {
        let started = Instant::now();
        let task = loop {
            if let Some(task) = self[0].accept(key, "0") {
                break task;
            }
            assert!(started.elapsed() < PATIENCE, "`{key}` is not accepted");
            pause();
        };
        self[0].soon(|site| site.state(&task).as_deref() == Some("done"));
        assert_eq!(self[0].counted(key), 1, "{key}");
        task
    }
}

impl std::ops::Index<usize> for Sites {
    type Output = Site;

    fn index(&self, n: usize) -> &Site {
        &self.sites[n]
    }
}

impl Site {
    pub(super) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Option<Answer> {
        self.home.ask(method, path, headers, body)
    }

    /// How often this node has refused something for this reason.
    pub(super) fn refused(&self, reason: &str) -> u64 {
        let metrics = self.server.as_ref().unwrap().get("/metrics").text();
        let row = format!("karman_mesh_refusals_total{{reason=\"{reason}\"}} ");
        let found = metrics.lines().find_map(|line| line.strip_prefix(&row));
        found.map_or(0, |count| count.parse().unwrap())
    }

    #[track_caller]
    pub(super) fn soon(&self, holds: impl Fn(&Self) -> bool) {
        until(PATIENCE, "it does not come about", || holds(self));
    }

    pub(super) fn deploy(&self, guest: &str) {
        self.home.run(["deploy", &path(guest), "--grant-asked"]).ok();
    }

    /// The id of the task, once it is accepted; nothing when this node does not say so.
    pub(super) fn accept(&self, key: &str, sleep: &str) -> Option<String> {
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

    pub(super) fn state(&self, task: &str) -> Option<String> {
        let answer = self.ask("GET", &format!("/accepted/{task}"), &[], b"")?;
        Some(answer.json()["state"].as_str()?.to_owned())
    }

    /// How often this key was counted in the bucket of this node.
    pub(super) fn counted(&self, key: &str) -> u64 {
        let read = [("karman-meta-read", "1")];
        let answer = self.ask("POST", "/tasks/tally", &read, key.as_bytes()).unwrap();
        answer.text().parse().unwrap_or_else(|_| panic!("{answer:?}"))
    }
}

/// Free for UDP and for TCP, where connections of before may still hold it.
fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        // Calls come on the next one.
        if [port, port + 1]
            .iter()
            .all(|port| UdpSocket::bind(("127.0.0.1", *port)).is_ok())
        {
            return port;
        }
    }
}

/// Networks of our own, with a site for each of so many nodes; where that is not permitted, the reason is printed.
pub(super) fn networks(count: u8) -> Option<Internet> {
    let places: Vec<Place> = (1..=count).map(Place::Internet).collect();
    Internet::new(&places)
        .inspect_err(|why| eprintln!("no networks of our own ({why}): nothing is cut"))
        .ok()
}
