//! Nodes that echo what they are called with.

use futures::FutureExt;
use futures::future::BoxFuture;
use karman_mesh::membership::{Invitation, Issuer, Member, RootKey, Terms, UnixTime};
use karman_mesh::{Ask, CallHead, Mesh, MeshOptions, Multiaddr, RemoteReport, Serve, Standing, wall_clock};
use karman_space::LinkProfile;
use karman_store::{NodeKeys, Store};
use karman_types::{NodeId, Offer, OfferedTask, TaskError, TaskId, TaskRequest, TaskResponse, Tier};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Answers a call with its own body, and a call of `slow` never.
struct Echo {
    node: NodeId,
    /// Calls of `slow` that wait.
    waiting: Arc<AtomicUsize>,
}

/// Counts one for as long as it is there.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Serve for Echo {
    fn most_input(&self, _: &CallHead) -> Result<u64, TaskError> {
        Ok(64 << 20)
    }

    fn serve(
        &self,
        _: Arc<Member>,
        head: CallHead,
        request: TaskRequest,
    ) -> BoxFuture<'static, Result<(TaskResponse, RemoteReport), TaskError>> {
        if head.name == "slow" {
            let waits = Counted::new(&self.waiting);
            return async move {
                let _waits = waits;
                std::future::pending().await
            }
            .boxed();
        }
        let response = TaskResponse {
            body: request.body,
            ..TaskResponse::default()
        };
        async { Ok((response, RemoteReport::default())) }.boxed()
    }

    fn busy(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst) as u32
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
                name: "vision/echo".into(),
                version: semver::Version::new(0, 1, 0),
                id: karman_types::Digest::of(b"echo"),
            }],
            models: Vec::new(),
        })
    }
}

pub(crate) struct Node {
    #[allow(dead_code, reason = "not every test asks for it")]
    pub(crate) id: NodeId,
    pub(crate) mesh: Mesh,
    #[allow(dead_code, reason = "not every test has calls that wait")]
    pub(crate) waiting: Arc<AtomicUsize>,
    folder: TempDir,
}

impl Node {
    #[allow(dead_code, reason = "not every test stops nodes")]
    pub(crate) fn stop(self) -> Stopped {
        Stopped(self.folder)
    }

    /// Gives the mesh that this node has made another root key. What the one before has signed holds for so long.
    #[allow(dead_code, reason = "not every test replaces the root key")]
    pub(crate) fn rotate(&self, next: &RootKey, grace: Duration) {
        let keys = NodeKeys::open(self.folder.path()).unwrap();
        keys.keep_next_mesh_root(next.seed()).unwrap();
        self.mesh.standing().rotate(grace).unwrap();
        assert!(keys.next_mesh_root().unwrap().is_none());
    }
}

/// The store of a node, once its former run has let go of it.
fn opened(folder: &TempDir) -> Store {
    let started = Instant::now();
    loop {
        match Store::open(folder.path()) {
            Ok(store) => return store,
            Err(error) => assert!(started.elapsed() < Duration::from_secs(30), "{error}"),
        }
        std::thread::yield_now();
    }
}

/// A node that was stopped: what it knows is on its disk.
#[allow(dead_code, reason = "not every test stops nodes")]
pub(crate) struct Stopped(TempDir);

#[allow(dead_code, reason = "not every test stops nodes")]
impl Stopped {
    /// Starts it again, at another address.
    pub(crate) fn start(self, root: Option<&RootKey>) -> Node {
        start_in(self.0, None, root, None, None)
    }

    /// Starts it again, at another address, with links that behave as this says.
    pub(crate) fn start_on(self, root: Option<&RootKey>, links: &str) -> Node {
        let links = LinkProfile::from_toml(links).unwrap();
        start_in(self.0, None, root, None, Some(links))
    }

    /// Starts it again, at another address; it has forgotten all that it ever met, and is told of these.
    pub(crate) fn start_among(self, told: Invitation) -> Node {
        let met = ["acquaintances", "entrances"];
        opened(&self.0).mesh().remove(&met).unwrap();
        start_in(self.0, Some(told), None, None, None)
    }
}

pub(crate) fn start(invitation: Option<Invitation>, root: Option<&RootKey>) -> Node {
    start_as(invitation, root, None, None)
}

/// A node whose links behave as this says.
#[allow(dead_code, reason = "not every test emulates links")]
pub(crate) fn start_on(invitation: Invitation, links: &str) -> Node {
    let links = LinkProfile::from_toml(links).unwrap();
    start_as(Some(invitation), None, None, Some(links))
}

/// A node that gives another's id for its own.
#[allow(dead_code, reason = "not every test has liars")]
pub(crate) fn start_lying(invitation: Invitation, says: NodeId) -> Node {
    start_as(Some(invitation), None, Some(says), None)
}

fn start_as(
    invitation: Option<Invitation>,
    root: Option<&RootKey>,
    says: Option<NodeId>,
    links: Option<LinkProfile>,
) -> Node {
    start_in(tempfile::tempdir().unwrap(), invitation, root, says, links)
}

fn start_in(
    folder: TempDir,
    invitation: Option<Invitation>,
    root: Option<&RootKey>,
    says: Option<NodeId>,
    links: Option<LinkProfile>,
) -> Node {
    let store = opened(&folder);
    let (id, seed) = (store.node_key().id(), *store.node_key().seed());
    let entrances = invitation.iter().flat_map(|invitation| invitation.addresses());
    let options = MeshOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        entrances: entrances.map(|address| address.parse().unwrap()).collect(),
        find_neighbours: false,
        links,
    };
    let standing = Standing::open(store, Tier::Edge, invitation, root.map(Issuer::root)).unwrap();
    let waiting = Arc::new(AtomicUsize::new(0));
    let echo = Echo {
        node: says.unwrap_or(id),
        waiting: waiting.clone(),
    };
    let mesh = Mesh::start(options, &seed, Arc::new(standing), Arc::new(echo)).unwrap();
    Node {
        id,
        mesh,
        waiting,
        folder,
    }
}

/// Waits until it holds.
#[allow(dead_code, reason = "not every test waits for something")]
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn addresses(node: &Node) -> Vec<Multiaddr> {
    let started = Instant::now();
    loop {
        let addresses = node.mesh.addresses().await;
        if addresses.len() == 2 {
            return addresses;
        }
        assert!(started.elapsed() < Duration::from_secs(10), "it does not listen");
        tokio::task::yield_now().await;
    }
}

pub(crate) fn invite(root: &RootKey, addresses: &[Multiaddr]) -> Invitation {
    let now = wall_clock().as_secs();
    let now = UnixTime::from_seconds(now);
    let later = now.after(Duration::from_secs(3600));
    let addresses = addresses.iter().map(ToString::to_string).collect();
    Issuer::root(root)
        .invite(&Terms::usual(Tier::Edge, later), later, None, addresses, now)
        .unwrap()
}

/// A call of this task.
#[allow(dead_code, reason = "not every test calls")]
pub(crate) fn head(name: &str) -> CallHead {
    CallHead {
        ask: Ask::Call,
        name: name.into(),
        task: TaskId::from_parts(0, 1),
        attempt: 1,
        idempotency_key: None,
        within_ms: Some(30_000),
        chain: Vec::new(),
        content_type: String::new(),
        metadata: Vec::new(),
    }
}
