//! Plugins' files between nodes: from several at once, over crashes, past one that lies.

use crate::mesh::{FOUND, Node, first, home, path};
use crate::support::member::Member;
use crate::support::{padded, pause};
use bytes::Bytes;
use karman_mesh::{Ask, CallHead, RemoteReport, Serve, Ticket, membership};
use karman_store::Slices;
use karman_types::{Digest, NodeId, Offer, OfferedTask, TaskError, TaskId, TaskRequest, TaskResponse, Tier};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SIZE: usize = 5 << 20;
/// Four pieces of 256 KiB are under way from one node, with the hashes that prove them.
const UNDER_WAY: u64 = 4 * ((256 << 10) + 4096);

/// An ordinary member that has one file, and gives it away slowly or not as it is.
struct Holder {
    member: Member,
    file: Arc<File>,
}

impl Deref for Holder {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.member
    }
}

struct File {
    node: NodeId,
    offers: &'static str,
    slices: Slices,
    lies: bool,
    slowly: Duration,
    /// Gives one more answer at once, and takes this many milliseconds over each that follows.
    tires: AtomicU64,
    /// Slices and bytes of slices that were sent.
    sent: AtomicU64,
    bytes: AtomicU64,
}

struct Gives(Arc<File>);

impl Serve for Gives {
    fn most_input(&self, _: &CallHead) -> Result<u64, TaskError> {
        Ok(64 << 10)
    }

    fn serve(
        &self,
        _: Arc<membership::Member>,
        head: CallHead,
        _: TaskRequest,
    ) -> Pin<Box<dyn Future<Output = Result<(TaskResponse, RemoteReport), TaskError>> + Send>> {
        let file = self.0.clone();
        Box::pin(async move {
            let Ask::ReadBlob { first, count, .. } = head.ask else {
                return Err(TaskError::unavailable("only files"));
            };
            tokio::time::sleep(file.slowly).await;
            if file.sent.load(Ordering::SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(file.tires.load(Ordering::SeqCst))).await;
            }
            let mut slice = file.slices.slice(first..first + count).unwrap().to_vec();
            if file.lies {
                *slice.last_mut().unwrap() ^= 1;
            }
            file.sent.fetch_add(1, Ordering::SeqCst);
            file.bytes.fetch_add(slice.len() as u64, Ordering::SeqCst);
            let response = TaskResponse {
                body: slice.into(),
                ..TaskResponse::default()
            };
            Ok((response, RemoteReport::default()))
        })
    }

    fn busy(&self) -> u32 {
        0
    }

    fn cores(&self) -> u32 {
        1
    }

    fn offer(&self) -> Option<Offer> {
        Some(Offer {
            node: self.0.node,
            tier: Tier::Edge,
            cores: 1,
            memory: 1 << 30,
            tasks: vec![OfferedTask {
                name: self.0.offers.into(),
                version: "0.1.0".parse().unwrap(),
                id: self.0.slices.digest(),
            }],
            models: Vec::new(),
        })
    }
}

impl Holder {
    fn join(cloud: &Node, offers: &'static str, component: &Bytes, lies: bool, slowly: Duration) -> Self {
        let invitation = cloud.invite(&["--tier", "edge", "--right", "deploy:*"]);
        let mut file = None;
        let member = Member::join(&invitation, |key| {
            let shared = Arc::new(File {
                node: key.id(),
                offers,
                slices: Slices::of(component.clone()),
                lies,
                slowly,
                tires: AtomicU64::new(0),
                sent: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
            });
            Gives(file.insert(shared).clone())
        });
        Self {
            member,
            file: file.unwrap(),
        }
    }

    /// Deploys the file, as often as it takes for the node to be in reach.
    fn deploy(&self, on: &str, within: Duration) -> Result<(), TaskError> {
        let reader: NodeId = on.parse().unwrap();
        let started = Instant::now();
        self.runtime.block_on(async {
            loop {
                let deployed = self.deploy_once(reader).await;
                let again = deployed.as_ref().is_err_and(|error| {
                    error.kind == karman_types::ErrorKind::Unavailable && started.elapsed() < within
                });
                if !again {
                    return deployed;
                }
            }
        })
    }

    /// Waits until it is known that the other one has the file, too.
    fn finds(&self, other: &Self) {
        let (digest, started) = (self.file.slices.digest(), Instant::now());
        let found = || self.runtime.block_on(self.mesh.holders(&digest));
        while !found().contains(&other.mesh.me()) {
            assert!(started.elapsed() < FOUND, "{} is not found", other.file.offers);
            pause();
        }
    }

    async fn deploy_once(&self, reader: NodeId) -> Result<(), TaskError> {
        let out = || TaskError::unavailable("out of reach");
        let peer = self.mesh.node(reader).await.ok_or_else(out)?;
        let standing = self.mesh.standing();
        let ticket = Ticket {
            name: "tiny".into(),
            digest: self.file.slices.digest(),
            reader,
            not_after: standing.now().after(Duration::from_secs(3600)),
        };
        let ask = Ask::Deploy {
            downgrade: false,
            digest: ticket.digest,
            size: SIZE as u64,
        };
        let ticket = ticket.sign(standing)?;
        self.mesh.call(peer, head(ask), ticket).await.map(drop)
    }

    /// Waits until its offer can be found from this node.
    fn is_found_from(&self, node: &Node) {
        let started = Instant::now();
        loop {
            let offers = node.home.control("/mesh/offers").to_string();
            if offers.contains(&format!("\"name\":\"{}\"", self.file.offers)) {
                return;
            }
            assert!(
                started.elapsed() < FOUND,
                "{} is not found: {offers}",
                self.file.offers
            );
            pause();
        }
    }
}

fn head(ask: Ask) -> CallHead {
    CallHead {
        ask,
        name: "tiny".into(),
        task: TaskId::from_parts(0, 1),
        attempt: 1,
        idempotency_key: None,
        within_ms: Some(60_000),
        chain: Vec::new(),
        content_type: String::new(),
        metadata: Vec::new(),
    }
}

fn read(file: &std::path::Path) -> Bytes {
    std::fs::read(file).unwrap().into()
}

/// What the node said of the last blob that it fetched.
fn fetched(node: &Node) -> serde_json::Value {
    let logs = node.home.control("/logs");
    let mut events = logs.as_array().unwrap().iter();
    events
        .rfind(|event| event.to_string().contains("fetched  blob=tiny"))
        .unwrap_or_else(|| panic!("nothing was fetched: {logs}"))
        .clone()
}

#[test]
fn a_file_comes_from_all_who_have_it_and_a_liar_is_dropped_at_once() {
    let cloud = first();
    let (fog, edge) = (cloud.joined("fog", &[]), cloud.joined("edge", &[]));
    let component = read(&padded(&cloud.home, SIZE));
    let deployer = Holder::join(&cloud, "deployer", &component, false, Duration::ZERO);
    let liar = Holder::join(&cloud, "liar", &component, true, Duration::ZERO);
    deployer.deploy(&fog.id(), FOUND).unwrap();
    liar.is_found_from(&edge);
    deployer.finds(&liar);
    // It has no task, but then there is a connection to it, as there is to the fog: else that one has brought all before there is.
    edge.home
        .run_with(["call", "liar", "-"], b"1234")
        .fails(4, "only files");
    let started = Instant::now();
    while !edge
        .home
        .control("/mesh/offers")
        .to_string()
        .contains("\"name\":\"tiny\"")
    {
        assert!(started.elapsed() < FOUND, "the fog's file is not found");
        pause();
    }
    // It brings the first piece, and then leaves the others all the time to be found.
    deployer.file.sent.store(0, Ordering::SeqCst);
    deployer.file.tires.store(3000, Ordering::SeqCst);
    let lied_before = liar.file.sent.load(Ordering::SeqCst);
    let started = Instant::now();
    deployer.deploy(&edge.id(), FOUND).unwrap();
    println!(
        "5 MiB from three nodes, one of which lies, in {:.1?}",
        started.elapsed()
    );
    println!("{}", fetched(&edge));

    assert_eq!(edge.home.run_with(["call", "tiny", "-"], b"1234").ok().out(), "4");
    let lied = liar.file.sent.load(Ordering::SeqCst) - lied_before;
    assert!((1..=4).contains(&lied), "the liar was asked {lied} times");
    let metrics = edge.server.get("/metrics").text();
    assert!(metrics.contains("reason=\"corrupt-blob\"} 1"), "{metrics}");
    let from = fetched(&edge).to_string();
    assert!(from.contains(&fog.id()[..8]), "{from}");
    assert!(from.contains(&deployer.file.node.short()), "{from}");
    assert!(!from.contains(&liar.file.node.short()), "{from}");
}

#[test]
fn what_was_verified_before_a_power_cut_is_not_fetched_again() {
    let cloud = first();
    let mut edge = cloud.joined("edge", &[]);
    let component = read(&padded(&cloud.home, SIZE));
    let deployer = Holder::join(&cloud, "deployer", &component, false, Duration::from_millis(100));
    let id = edge.id();
    deployer.meets(&id);
    // It comes back where it was.
    let address = edge.home.control("/mesh/addresses")[0].to_string();
    let port = address.split('/').nth(4).unwrap().to_owned();
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| deployer.deploy(&id, Duration::ZERO));
        let started = Instant::now();
        while deployer.file.bytes.load(Ordering::SeqCst) < 2 << 20 {
            assert!(started.elapsed() < FOUND, "nothing is fetched");
            std::thread::yield_now();
        }
        edge.server.signal_kill();
        let cut = cut.join().unwrap();
        assert!(cut.is_err(), "{cut:?}");
    });
    let before = deployer.file.bytes.load(Ordering::SeqCst);
    edge = crate::mesh::up(edge.home, &["--mesh-listen", &format!("127.0.0.1:{port}")]);
    deployer.deploy(&id, Duration::from_secs(30)).unwrap();
    let sent = deployer.file.bytes.load(Ordering::SeqCst);
    println!(
        "{before} bytes were sent before the cut, {} after it, for a file of {SIZE}",
        sent - before
    );
    let whole = SIZE as u64 + SIZE as u64 / 100;
    assert!(sent <= whole + UNDER_WAY, "{sent} bytes were sent");
    assert_eq!(edge.home.run_with(["call", "tiny", "-"], b"123").ok().out(), "3");
}

#[test]
fn a_file_is_read_only_by_those_who_were_sent_it() {
    let cloud = first();
    let file = padded(&cloud.home, SIZE);
    cloud.run(&["deploy", file.to_str().unwrap()]).ok();
    let component = read(&file);
    let member = Holder::join(&cloud, "member", &component, false, Duration::ZERO);
    let fog = cloud.joined("fog", &[]);
    let digest = member.file.slices.digest();
    let read_by = |ticket: Bytes, digest: Digest, count: u64| {
        member.runtime.block_on(async {
            let peer = member.mesh.node(cloud.id().parse().unwrap()).await.unwrap();
            let ask = Ask::ReadBlob {
                digest,
                size: SIZE as u64,
                first: 0,
                count,
            };
            member.mesh.call(peer, head(ask), ticket).await
        })
    };
    let standing = member.mesh.standing();
    let ticket = |reader: NodeId, name: &str, hours: u64| {
        let not_after = standing.now().seconds() + hours * 3600;
        let ticket = Ticket {
            name: name.into(),
            digest,
            reader,
            not_after: karman_mesh::membership::UnixTime::from_seconds(not_after - 3600),
        };
        ticket.sign(standing).unwrap()
    };
    let own = member.file.node;
    assert!(read_by(ticket(own, "tiny", 2), digest, 1).is_ok());
    let says = |answer: Result<_, TaskError>| answer.map(drop).unwrap_err().message;
    assert!(says(read_by(Bytes::new(), digest, 1)).contains("no such bundle"));
    assert!(says(read_by(ticket(fog.id().parse().unwrap(), "tiny", 2), digest, 1)).contains("is for node"));
    assert!(says(read_by(ticket(own, "hostile", 2), digest, 1)).contains("hostile"));
    assert!(says(read_by(ticket(own, "tiny", 2), Digest::of(b"other"), 1)).contains("another file"));
    assert!(says(read_by(ticket(own, "tiny", 2), digest, 1 << 40)).contains("at most"));
    assert!(says(read_by(ticket(own, "tiny", 0), digest, 1)).contains("was good until"));

    // The name of the file is not that of the plugin: the right is judged by what the plugin calls itself.
    let renamed = home("edge");
    let hidden = renamed.path().join("tiny.wasm");
    std::fs::copy(path("hostile"), &hidden).unwrap();
    let tinker = cloud.joined("fog", &["--right", "deploy:tiny"]);
    tinker.soon(&["mesh", "ping", &cloud.id()], b"");
    tinker
        .run(&["deploy", hidden.to_str().unwrap(), "--on", &cloud.id()])
        .fails(3, "has no right `deploy:hostile`");
}
