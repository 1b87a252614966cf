//! Rounds of real nodes, each with its own mesh, sockets and disk, in one process.

use super::lead::lead;
use super::talk::say;
use super::{SwarmEntry, SwarmLed, SwarmOutcome, SwarmPlan, Swarms};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use karman_fed::swarm::{Cover, Layout, Letter, Link, Message, SwarmSettings};
use karman_mesh::membership::{Invitation, Issuer, Member, RootKey, Terms, UnixTime};
use karman_mesh::{
    Ask, CallHead, Mesh, MeshOptions, Multiaddr, Peer, RemoteReport, Serve, Standing, wall_clock,
};
use karman_store::Store;
use karman_types::{Digest, ErrorKind, NodeId, Offer, TaskError, TaskId, TaskRequest, TaskResponse, Tier};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::task::JoinHandle;

const NAME: &str = "flood/swarm";
const SEED: [u8; 32] = [5; 32];
const SOON: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(500);

/// Answers letters of rounds and nothing else.
#[derive(Default)]
struct Host {
    swarms: Swarms,
    /// Nothing before it has started, and after it has left.
    mesh: Mutex<Option<Mesh>>,
}

impl Serve for Host {
    fn most_input(&self, _: &CallHead) -> Result<u64, TaskError> {
        Ok(Letter::MOST as u64)
    }

    fn serve(
        &self,
        from: Arc<Member>,
        head: CallHead,
        request: TaskRequest,
    ) -> BoxFuture<'static, Result<(TaskResponse, RemoteReport), TaskError>> {
        let (swarms, mesh) = (self.swarms.clone(), self.mesh.lock().clone());
        async move {
            let mesh = mesh.ok_or_else(|| TaskError::unavailable("this node is not there"))?;
            let answer = swarms.take(&mesh, from.node, &head.name, request.body).await?;
            Ok((answer, RemoteReport::default()))
        }
        .boxed()
    }

    fn offer(&self) -> Option<Offer> {
        None
    }

    fn busy(&self) -> u32 {
        0
    }

    fn cores(&self) -> u32 {
        1
    }
}

struct Node {
    id: NodeId,
    mesh: Mesh,
    host: Arc<Host>,
    folder: TempDir,
}

impl Node {
    fn start(invitation: Option<Invitation>, root: Option<&RootKey>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let (id, seed) = (store.node_key().id(), *store.node_key().seed());
        let entrances = invitation.iter().flat_map(|invitation| invitation.addresses());
        let options = MeshOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            entrances: entrances.map(|address| address.parse().unwrap()).collect(),
            find_neighbours: false,
            links: None,
        };
        let standing = Standing::open(store, Tier::Edge, invitation, root.map(Issuer::root)).unwrap();
        let host = Arc::new(Host::default());
        let mesh = Mesh::start(options, &seed, Arc::new(standing), host.clone()).unwrap();
        *host.mesh.lock() = Some(mesh.clone());
        Self {
            id,
            mesh,
            host,
            folder,
        }
    }

    async fn address(&self) -> Multiaddr {
        let started = Instant::now();
        loop {
            if let [first, _] = &self.mesh.addresses().await[..] {
                return first.clone();
            }
            assert!(started.elapsed() < SOON, "it does not listen");
            tokio::task::yield_now().await;
        }
    }

    fn join(
        &self,
        lead: NodeId,
        update: Vec<f32>,
        link: Link,
    ) -> JoinHandle<Result<SwarmOutcome, TaskError>> {
        let entry = SwarmEntry {
            name: NAME.into(),
            lead,
            update,
            weight: 1,
            rule: None,
            link,
            patience: LONG,
            neglect: LONG,
            protection: 0.0,
            disk: 1 << 30,
        };
        let (swarms, folder) = (self.host.swarms.clone(), self.folder.path().join("swarm"));
        tokio::spawn(async move { swarms.join(entry, &folder).await })
    }

    fn waits(&self) -> bool {
        self.host.swarms.0.lock().contains_key(NAME)
    }

    /// Whether there is a connection with another, and it is known for a member.
    fn knows(&self, other: &Self) -> bool {
        let is = |peer: &Peer| peer.member.as_ref().is_some_and(|member| member.node == other.id);
        let mut peers = self.mesh.peers().into_iter();
        peers.any(|peer| peer.path.is_some() && is(&peer))
    }

    /// How many chunks it holds.
    fn held(&self) -> u32 {
        self.host.swarms.0.lock().get(NAME).map_or(0, |seat| seat.held())
    }

    /// Goes, without a word to anybody.
    fn leave(self) {
        self.host.mesh.lock().take();
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < SOON, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn invite(root: &RootKey, address: &Multiaddr) -> Invitation {
    let now = wall_clock().as_secs();
    let now = UnixTime::from_seconds(now);
    let later = now.after(Duration::from_secs(3600));
    let issuer = Issuer::root(root);
    let terms = Terms::usual(Tier::Edge, later);
    issuer
        .invite(&terms, later, None, vec![address.to_string()], now)
        .unwrap()
}

/// A mesh of a node that leads and so many others, all of which have met.
async fn meshed(others: usize) -> (Node, Vec<Node>) {
    let root = RootKey::generate().unwrap();
    let first = Node::start(None, Some(&root));
    let mut addresses = vec![first.address().await];
    let mut nodes = Vec::new();
    for _ in 0..others {
        let node = Node::start(Some(invite(&root, &addresses[0])), None);
        node.mesh.admitted(SOON).await.unwrap();
        for address in &addresses[1..] {
            node.mesh.dial(address.clone()).await;
        }
        addresses.push(node.address().await);
        nodes.push(node);
    }
    for (place, node) in nodes.iter().enumerate() {
        until("the first does not meet all", || first.knows(node)).await;
        for (other, address) in nodes[..place].iter().zip(&addresses[1..]) {
            let started = Instant::now();
            while !(node.knows(other) && other.knows(node)) {
                assert!(started.elapsed() < SOON, "two nodes do not meet");
                node.mesh.dial(address.clone()).await;
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        }
    }
    (first, nodes)
}

fn update(client: usize, numbers: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(client as u64);
    (0..numbers).map(|_| random.f32() - 0.5).collect()
}

fn plan(layout: Layout, slot: Duration) -> SwarmPlan {
    SwarmPlan {
        name: NAME.into(),
        settings: SwarmSettings {
            layout,
            neighbours: 4,
            spray: 0.25,
            cover: Cover::OfSwarm(0.2),
            patience: 600,
            silence: 400,
            ..SwarmSettings::default()
        },
        numbers: layout.room() as u32 / 4,
        weights: BTreeMap::new(),
        slot,
        patience: Duration::from_secs(300),
    }
}

/// Has these nodes wait for the round, and leads it.
async fn all_join(
    first: &Node,
    nodes: &[Node],
    plan: &SwarmPlan,
    link: Link,
) -> Vec<JoinHandle<Result<SwarmOutcome, TaskError>>> {
    let numbers = plan.numbers as usize;
    let join = |(client, node): (usize, &Node)| node.join(first.id, update(client, numbers), link);
    let joined: Vec<_> = nodes.iter().enumerate().map(join).collect();
    until("they do not wait for the round", || nodes.iter().all(Node::waits)).await;
    joined
}

async fn led(first: &Node, plan: &SwarmPlan, clients: &[NodeId]) -> SwarmLed {
    let led = lead(&first.mesh, plan, clients, SEED).await.unwrap();
    assert!(led.refused.is_empty(), "{:?}", led.refused);
    assert_eq!(led.clients, clients);
    let mut around = led.neighbours.iter();
    assert!(around.all(|some| some.len() >= plan.settings.neighbours.min(clients.len() - 1)));
    led
}

/// What the round comes to for all of them: whoever has the same updates has the same mean.
async fn all_come_to(joined: Vec<JoinHandle<Result<SwarmOutcome, TaskError>>>) -> Vec<SwarmOutcome> {
    let outcomes = join_all(joined).await.into_iter();
    let outcomes: Vec<SwarmOutcome> = outcomes.map(|outcome| outcome.unwrap().unwrap()).collect();
    for outcome in &outcomes {
        assert_eq!(outcome.rebuilt, outcomes[0].rebuilt);
        assert!(
            bits(outcome) == bits(&outcomes[0]),
            "another mean of the same updates"
        );
    }
    outcomes
}

fn bits(outcome: &SwarmOutcome) -> &[u8] {
    bytemuck::cast_slice(&outcome.mean)
}

/// 20 nodes, 4 MiB each.
#[tokio::test(flavor = "multi_thread")]
async fn twenty_peers_come_to_the_same_mean_bit_by_bit() {
    let layout = Layout {
        chunk: 256 << 10,
        chunks: 16,
    };
    let plan = plan(layout, Duration::from_millis(200));
    assert_eq!(layout.room(), 4 << 20);
    let (first, nodes) = meshed(20).await;
    let ids: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
    let joined = all_join(&first, &nodes, &plan, Link { up: 12, down: 36 }).await;
    let led = led(&first, &plan, &ids).await;
    assert!(led.gone.is_empty(), "{:?}", led.gone);
    assert!(led.covered);
    let outcomes = all_come_to(joined).await;
    for outcome in &outcomes {
        assert_eq!((outcome.rebuilt.len(), outcome.of), (20, 20));
        assert!(outcome.left_out.is_empty(), "{:?}", outcome.left_out);
        assert!(outcome.covered);
    }
    let numbers = plan.numbers as usize;
    let exact = (0..20)
        .map(|client| f64::from(update(client, numbers)[7]))
        .sum::<f64>()
        / 20.0;
    assert!((f64::from(outcomes[0].mean[7]) - exact).abs() < 1e-6);
    for node in nodes {
        node.leave();
    }
    first.leave();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_leaves_in_the_middle_does_not_stop_the_others() {
    let layout = Layout {
        chunk: 4 << 10,
        chunks: 16,
    };
    let plan = plan(layout, Duration::from_millis(50));
    let (first, mut nodes) = meshed(7).await;
    let ids: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
    let mut joined = all_join(&first, &nodes, &plan, Link { up: 4, down: 12 }).await;
    nobody_else_says_anything(&nodes).await;
    let (leaver, waits) = (nodes.pop().unwrap(), joined.pop().unwrap());
    let gone = leaver.id;
    let leaves = async {
        // It has its own chunks, and the first of another.
        until("the round does not begin", || leaver.held() > layout.chunks).await;
        waits.abort();
        let _ = waits.await;
        leaver.leave();
    };
    let (led, ()) = tokio::join!(led(&first, &plan, &ids), leaves);
    assert_eq!(led.gone, [gone]);
    let outcomes = all_come_to(joined).await;
    for outcome in &outcomes {
        assert!(outcome.rebuilt.len() >= 6, "{:?}", outcome.rebuilt);
        assert_eq!(outcome.of, 7);
    }
    for node in nodes {
        node.leave();
    }
    first.leave();
}

/// Each sends a chunk in a slot, and the time is over after two and a half: there is far more to send.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_taken_for_gone_when_the_time_is_over() {
    let layout = Layout {
        chunk: 4 << 10,
        chunks: 16,
    };
    let slot = Duration::from_secs(2);
    let plan = SwarmPlan {
        patience: slot * 5 / 2,
        ..plan(layout, slot)
    };
    let (first, nodes) = meshed(4).await;
    let ids: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
    let joined = all_join(&first, &nodes, &plan, Link { up: 1, down: 1 }).await;
    let led = led(&first, &plan, &ids).await;
    assert!(led.gone.is_empty(), "{:?}: {:?}", led.gone, led.why);
    join_all(joined).await;
    for node in nodes {
        node.leave();
    }
    first.leave();
}

/// Neither a member that does not lead, nor bytes that are no letter.
async fn nobody_else_says_anything(nodes: &[Node]) {
    let round = Digest::of(b"a round");
    let (mesh, to) = (&nodes[1].mesh, &nodes[0]);
    let denied = say(mesh, NAME, round, to.id, Message::End).await.unwrap_err();
    assert_eq!(denied.kind, ErrorKind::Denied, "{denied}");
    let none = say(mesh, NAME, round, to.id, Message::Want(vec![1]))
        .await
        .unwrap_err();
    assert_eq!(none.kind, ErrorKind::Unavailable, "{none}");
    let head = CallHead::new(Ask::Swarm, NAME, TaskId::from_parts(0, 0));
    let garbage = mesh.call(to.mesh.me(), head, "no letter").await.unwrap_err();
    assert_eq!(garbage.kind, ErrorKind::Invalid, "{garbage}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_that_nobody_waits_for_says_who_does_not() {
    let layout = Layout { chunk: 64, chunks: 2 };
    let (first, nodes) = meshed(2).await;
    let ids: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
    let plan = plan(layout, Duration::from_millis(10));
    let none = lead(&first.mesh, &plan, &ids, SEED).await.unwrap_err();
    assert_eq!(none.kind, ErrorKind::Unavailable);
    let hint = none.hint.unwrap();
    assert!(ids.iter().all(|id| hint.contains(&id.short())), "{hint}");
    // One that brings an update of another length is left out, and one alone is no round.
    let link = Link { up: 1, down: 1 };
    let (long, right) = (
        nodes[0].join(first.id, vec![0.5; 33], link),
        nodes[1].join(first.id, vec![0.5; 32], link),
    );
    until("they do not wait for the round", || nodes.iter().all(Node::waits)).await;
    let one = lead(&first.mesh, &plan, &ids, SEED).await.unwrap_err();
    assert!(one.hint.unwrap().contains("33 numbers instead of 32"));
    for waits in [long, right] {
        waits.abort();
        assert!(waits.await.unwrap_err().is_cancelled());
    }
    assert!(
        !nodes.iter().any(Node::waits),
        "who does not wait any more has left"
    );
    for node in nodes {
        node.leave();
    }
    first.leave();
}
