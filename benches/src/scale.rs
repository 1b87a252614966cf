//! One mesh that grows from 25 to 200 nodes in this process, each with its own store, swarm and listening ports on loopback.
//!
//! Keys, `nN` being the number of nodes: `join_ms.nN.p50` and `.p99` (from the start of a node to its membership, eight joining
//! at once), `lookup_success.nN` (searches of a random node for the one task of another that found it), `lookup_ms.nN.p50` and
//! `.p99`, `lookup_kb.nN` (what passes the loopback interface for a search, with the connections that it begins, sent and
//! received; a node makes a handful an hour to keep its offers and its routing table fresh), `memory_mib.nN` (resident memory
//! that came with each node), `connections.nN` (of a node while it idles), `idle_bytes_per_s.nN` (all that passes the interface
//! while nobody asks for anything, sent and received, per node) and `idle_bytes_per_s.nN.PROTOCOL` (the part of it on that
//! protocol's streams; the rest is QUIC itself: keep-alives, acknowledgements, headers, encryption).

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use karman_mesh::membership::{Invitation, Issuer, Member, RootKey, Terms, UnixTime};
use karman_mesh::{CallHead, Mesh, MeshOptions, RemoteReport, Serve, Standing, wall_clock};
use karman_store::Store;
use karman_study::report::{Report, Target};
use karman_types::{Digest, NodeId, Offer, OfferedTask, TaskError, TaskRequest, TaskResponse, Tier};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::time::sleep;

const SIZES: [usize; 4] = [25, 50, 100, 200];
/// Nodes that join at once.
const TOGETHER: usize = 8;
const PATIENCE: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_secs(86_400);
const A_MOMENT: Duration = Duration::from_secs(5);
/// Bytes per second that a node may cost while it idles.
const IDLE_BUDGET: f64 = 1000.0;

pub(crate) fn run(quick: bool) -> Result<Report> {
    let mut report = Report::new("scale");
    let sizes = if quick { &SIZES[..1] } else { &SIZES[..] };
    let (rest, idle) = match quick {
        true => (5, 10),
        // It rests for longer than a connection stays that nobody uses.
        false => (180, 60),
    };
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut world = World::begin().await?;
        for &size in sizes {
            world.grow(size, &mut report).await?;
            sleep(if quick { A_MOMENT } else { settled(size) }).await;
            world.look_up(&mut report).await?;
            sleep(Duration::from_secs(rest)).await;
            world.idle(Duration::from_secs(idle), &mut report).await?;
        }
        Ok(report)
    })
}

/// How long the nodes get, when half of them have just come, to meet and to announce themselves: each has a core of its own elsewhere,
/// and here all of them have the cores of one machine.
fn settled(size: usize) -> Duration {
    Duration::from_secs(30) + size as u32 * Duration::from_millis(500)
}

struct World {
    root: RootKey,
    nodes: Vec<Node>,
    addresses: Vec<String>,
    /// Resident bytes before the first node.
    before: u64,
}

struct Node {
    mesh: Mesh,
    task: String,
    _folder: TempDir,
}

impl World {
    async fn begin() -> Result<Self> {
        let before = resident()?;
        let root = RootKey::generate()?;
        let first = Node::start(0, None, Some(Issuer::root(&root)))?;
        let started = Instant::now();
        let mut addresses = Vec::new();
        while addresses.len() < 2 {
            ensure!(started.elapsed() < PATIENCE, "the first node does not listen");
            addresses = first
                .mesh
                .addresses()
                .await
                .iter()
                .map(ToString::to_string)
                .collect();
        }
        first.mesh.announce().await;
        Ok(Self {
            root,
            nodes: vec![first],
            addresses,
            before,
        })
    }

    /// Lets nodes join until there are so many.
    async fn grow(&mut self, size: usize, report: &mut Report) -> Result<()> {
        let mut times = Vec::new();
        while self.nodes.len() < size {
            let numbers = self.nodes.len()..(self.nodes.len() + TOGETHER).min(size);
            let joined = try_join_all(numbers.map(|number| self.join(number))).await?;
            for (node, time) in joined {
                self.nodes.push(node);
                times.push(time);
            }
        }
        show(report, &format!("join_ms.n{size}"), times);
        let grown = resident()?.saturating_sub(self.before) as f64 / size as f64;
        report.figure(
            &format!("memory_mib.n{size}"),
            grown / f64::from(1 << 20),
            "MiB",
            Target::Shown,
        );
        Ok(())
    }

    async fn join(&self, number: usize) -> Result<(Node, f64)> {
        let now = wall_clock().as_secs();
        let now = UnixTime::from_seconds(now);
        let later = now.after(DAY);
        let terms = Terms::usual(Tier::Edge, later);
        let invitation = Issuer::root(&self.root).invite(&terms, later, None, self.addresses.clone(), now)?;
        let started = Instant::now();
        let node = Node::start(number, Some(invitation), None)?;
        node.mesh.admitted(PATIENCE).await?;
        let time = started.elapsed().as_secs_f64() * 1e3;
        node.mesh.announce().await;
        Ok((node, time))
    }

    /// Random nodes look for the task of others.
    async fn look_up(&self, report: &mut Report) -> Result<()> {
        let (size, before) = (self.nodes.len(), loopback()?);
        let (mut times, mut found) = (Vec::new(), 0);
        let pairs: Vec<_> = (0..200)
            .map(|_| (fastrand::usize(..size), fastrand::usize(..size)))
            .filter(|(asks, has)| asks != has)
            .collect();
        for (asks, has) in &pairs {
            let (asks, has) = (&self.nodes[*asks], &self.nodes[*has]);
            let started = Instant::now();
            let providers = asks.mesh.providers(&has.task).await;
            times.push(started.elapsed().as_secs_f64() * 1e3);
            found += usize::from(providers.iter().any(|provider| provider.id == has.mesh.me()));
        }
        let share = found as f64 / pairs.len() as f64;
        report.figure(
            &format!("lookup_success.n{size}"),
            share,
            "share",
            Target::AtLeast(1.0),
        );
        show(report, &format!("lookup_ms.n{size}"), times);
        let bytes = 2 * (loopback()? - before);
        report.figure(
            &format!("lookup_kb.n{size}"),
            bytes as f64 / pairs.len() as f64 / 1e3,
            "kB",
            Target::Shown,
        );
        Ok(())
    }

    /// What passes while nobody asks for anything.
    async fn idle(&self, time: Duration, report: &mut Report) -> Result<()> {
        let size = self.nodes.len();
        let (streams, all, started) = (self.traffic(), loopback()?, Instant::now());
        sleep(time).await;
        let per_node = |bytes: u64| bytes as f64 / started.elapsed().as_secs_f64() / size as f64;
        // What one sends another receives.
        let all = per_node(2 * (loopback()? - all));
        let key = format!("idle_bytes_per_s.n{size}");
        report.figure(&key, all, "B/s", Target::AtMost(IDLE_BUDGET));
        let connections: usize = self.nodes.iter().map(Node::connections).sum();
        report.figure(
            &format!("connections.n{size}"),
            connections as f64 / size as f64,
            "",
            Target::Shown,
        );
        for (protocol, bytes) in self.traffic() {
            let before = streams.get(&protocol).copied().unwrap_or_default();
            report.figure(
                &format!("{key}.{protocol}"),
                per_node(bytes - before),
                "B/s",
                Target::Shown,
            );
        }
        Ok(())
    }

    /// Bytes of each protocol so far, sent and received.
    fn traffic(&self) -> BTreeMap<String, u64> {
        let mut sum = BTreeMap::new();
        for traffic in self.nodes.iter().flat_map(|node| node.mesh.traffic()) {
            *sum.entry(traffic.protocol).or_default() += traffic.sent + traffic.received;
        }
        sum
    }
}

impl Node {
    /// Others that it is connected with.
    fn connections(&self) -> usize {
        let peers = self.mesh.peers();
        peers.iter().filter(|peer| peer.path.is_some()).count()
    }

    fn start(number: usize, invitation: Option<Invitation>, issuer: Option<Issuer>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let store = Store::open(folder.path())?;
        let (id, seed) = (store.node_key().id(), *store.node_key().seed());
        let entrances = invitation.iter().flat_map(|invitation| invitation.addresses());
        let options = MeshOptions {
            listen: "127.0.0.1:0".parse()?,
            entrances: entrances.filter_map(|address| address.parse().ok()).collect(),
            find_neighbours: false,
            links: None,
        };
        let task = format!("scale/n{number}");
        let offers = Offers {
            node: id,
            task: task.clone(),
        };
        let standing = Standing::open(store, Tier::Edge, invitation, issuer)?;
        let mesh = Mesh::start(options, &seed, Arc::new(standing), Arc::new(offers))?;
        Ok(Self {
            mesh,
            task,
            _folder: folder,
        })
    }
}

/// Offers one task. Nobody calls it.
struct Offers {
    node: NodeId,
    task: String,
}

impl Serve for Offers {
    fn most_input(&self, _: &CallHead) -> Result<u64, TaskError> {
        Ok(0)
    }

    fn serve(
        &self,
        _: Arc<Member>,
        _: CallHead,
        _: TaskRequest,
    ) -> BoxFuture<'static, Result<(TaskResponse, RemoteReport), TaskError>> {
        async { Err(TaskError::unavailable("this study makes no calls")) }.boxed()
    }

    fn busy(&self) -> u32 {
        0
    }

    fn cores(&self) -> u32 {
        1
    }

    fn offer(&self) -> Option<Offer> {
        Some(Offer {
            node: self.node,
            tier: Tier::Edge,
            cores: 1,
            memory: 1 << 30,
            tasks: vec![OfferedTask {
                name: self.task.clone(),
                version: semver::Version::new(0, 1, 0),
                id: Digest::of(self.task.as_bytes()),
            }],
            models: Vec::new(),
        })
    }
}

fn show(report: &mut Report, key: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    report.figure(&format!("{key}.p50"), at(0.5), "ms", Target::Shown);
    report.figure(&format!("{key}.p99"), at(0.99), "ms", Target::Shown);
}

/// Bytes that this process has in memory.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = status.split(' ').nth(1).context("a second column")?.parse()?;
    Ok(pages * 4096)
}

/// Bytes that the loopback interface has carried.
fn loopback() -> Result<u64> {
    let interfaces = std::fs::read_to_string("/proc/net/dev")?;
    let line = interfaces
        .lines()
        .find_map(|line| line.trim().strip_prefix("lo:"));
    let received = line.and_then(|line| line.split_whitespace().next());
    Ok(received.context("no loopback interface")?.parse()?)
}
