use super::Plane;
use crate::answers::Answers;
use crate::ask::{CallHead, RemoteReport};
use crate::membership::{Issuer, Member, RootKey, Terms};
use crate::mesh::Serve;
use crate::standing::Standing;
use crate::swarm::Wires;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_store::Store;
use karman_types::{Offer, TaskError, TaskRequest, TaskResponse, Tier};
use libp2p::PeerId;
use libp2p::identity::Keypair;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::runtime::Handle;

/// Does nothing for anybody.
struct Idle;

impl Serve for Idle {
    fn most_input(&self, _: &CallHead) -> Result<u64, TaskError> {
        Ok(0)
    }

    fn serve(
        &self,
        _: Arc<Member>,
        _: CallHead,
        _: TaskRequest,
    ) -> BoxFuture<'static, Result<(TaskResponse, RemoteReport), TaskError>> {
        async { Err(TaskError::unavailable("idle")) }.boxed()
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

/// A node that has only its data plane: whom it knows, the test says.
struct Node {
    id: PeerId,
    plane: Arc<Plane>,
    standing: Arc<Standing>,
    _folder: TempDir,
}

impl Node {
    fn start(root: &RootKey) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let keypair = Keypair::ed25519_from_bytes(*store.node_key().seed()).unwrap();
        let standing = Arc::new(Standing::open(store, Tier::Edge, None, Some(Issuer::root(root))).unwrap());
        let answers = Arc::new(Answers::new(standing.clone(), Arc::new(Idle), Handle::current()));
        let at = "127.0.0.1:0".parse().unwrap();
        Self {
            id: keypair.public().to_peer_id(),
            plane: Plane::start(
                &keypair,
                at,
                standing.clone(),
                answers,
                Handle::current(),
                Wires::default(),
            )
            .unwrap(),
            standing,
            _folder: folder,
        }
    }

    /// Lets the other in, as the gate would have.
    fn knows(&self, other: &Self, root: &RootKey, port: u16) {
        let now = self.standing.now();
        let later = now.after(Duration::from_secs(3600));
        let terms = Terms::usual(Tier::Edge, later);
        let key = other.standing.public_key();
        let membership = Issuer::root(root).issue(&key, &terms, now).unwrap();
        let member = self.standing.verify(&membership, &key).unwrap();
        self.standing.admitted(
            other.id,
            crate::gate::Shown {
                member,
                about: crate::gate::About {
                    calls: Some(port),
                    run: 1,
                    charter: None,
                },
                knew: crate::gate::Knew {
                    mesh: root.public(),
                    revocations: 0,
                    run: 1,
                    news: 0,
                },
            },
            Some("127.0.0.1".into()),
        );
    }

    fn port(&self) -> u16 {
        self.standing.about().calls.unwrap()
    }
}

async fn until(is: impl Fn() -> bool) {
    let started = Instant::now();
    while !is() {
        assert!(started.elapsed() < Duration::from_secs(10), "it does not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_let_in_and_strangers_counted() {
    let root = RootKey::generate().unwrap();
    let (node, member, stranger) = (Node::start(&root), Node::start(&root), Node::start(&root));
    node.knows(&member, &root, member.port());
    for asks in [&member, &stranger] {
        asks.knows(&node, &root, node.port());
        asks.plane.want(node.id);
    }
    until(|| node.plane.reaches(&member.id) && member.plane.reaches(&node.id)).await;
    assert!(member.plane.open(&node.id).await.is_some());
    until(|| node.standing.refusals() == [("not-admitted", 1)]).await;
    until(|| !stranger.plane.reaches(&node.id)).await;
    assert!(!node.plane.reaches(&stranger.id));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_at_that_address_is_not_taken_for_it() {
    let root = RootKey::generate().unwrap();
    let (node, other, asks) = (Node::start(&root), Node::start(&root), Node::start(&root));
    other.knows(&asks, &root, asks.port());
    let at = ("127.0.0.1".into(), other.port());
    let refused = asks.plane.connect(&node.id, at).await.unwrap_err();
    assert!(refused.to_string().contains("another node answers"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_waits_for_a_port_that_is_blocked() {
    let root = RootKey::generate().unwrap();
    let (node, asks) = (Node::start(&root), Node::start(&root));
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    asks.knows(&node, &root, silent.local_addr().unwrap().port());
    let started = Instant::now();
    for _ in 0..1_000 {
        asks.plane.want(node.id);
        assert!(asks.plane.open(&node.id).await.is_none());
    }
    assert!(started.elapsed() < Duration::from_secs(1));
    // One attempt was made for all of them.
    let mut packet = [0; 2048];
    let (_, from) = silent.recv_from(&mut packet).unwrap();
    assert_eq!(from.port(), asks.port());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_membership_that_is_over_ends_the_connection() {
    let root = RootKey::generate().unwrap();
    let (node, member) = (Node::start(&root), Node::start(&root));
    node.knows(&member, &root, member.port());
    member.knows(&node, &root, node.port());
    member.plane.want(node.id);
    until(|| node.plane.reaches(&member.id)).await;
    node.standing.revoke(&member.standing.public_key()).unwrap();
    until(|| !node.plane.reaches(&member.id) && !member.plane.reaches(&node.id)).await;
    assert!(node.standing.member(&member.id).is_none());
}

/// Carries packets between one node and one that calls it, until it is cut.
struct Cable {
    port: u16,
    cut: Arc<AtomicBool>,
}

impl Cable {
    async fn to(port: u16) -> Self {
        let [near, far] = [socket().await, socket().await];
        far.connect(("127.0.0.1", port)).await.unwrap();
        let (port, cut) = (
            near.local_addr().unwrap().port(),
            Arc::new(AtomicBool::new(false)),
        );
        tokio::spawn(carry(near, far, cut.clone()));
        Self { port, cut }
    }
}

async fn socket() -> tokio::net::UdpSocket {
    tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap()
}

async fn carry(near: tokio::net::UdpSocket, far: tokio::net::UdpSocket, cut: Arc<AtomicBool>) {
    let (mut there, mut back) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut calls = None;
    loop {
        tokio::select! {
            Ok((length, from)) = near.recv_from(&mut there) => {
                calls = Some(from);
                if !cut.load(Ordering::SeqCst) {
                    let _ = far.send(&there[..length]).await;
                }
            }
            Ok(length) = far.recv(&mut back) => {
                if let Some(calls) = calls.filter(|_| !cut.load(Ordering::SeqCst)) {
                    let _ = near.send_to(&back[..length], calls).await;
                }
            }
            else => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_does_not_wait_until_a_dead_connection_has_timed_out() {
    let root = RootKey::generate().unwrap();
    let (node, asks) = (Node::start(&root), Node::start(&root));
    let cable = Cable::to(node.port()).await;
    node.knows(&asks, &root, asks.port());
    asks.knows(&node, &root, cable.port);
    asks.plane.want(node.id);
    until(|| asks.plane.reaches(&node.id)).await;
    let connection = asks.plane.connection(&node.id).unwrap();
    let (_input, mut output) = asks.plane.open(&node.id).await.unwrap();
    cable.cut.store(true, Ordering::SeqCst);
    output.write_all(b"is anybody there?").await.unwrap();
    let silent = asks.plane.falls_silent(&node.id);
    tokio::time::timeout(Duration::from_secs(60), silent)
        .await
        .unwrap();
    // Otherwise it would have timed out, later.
    assert_eq!(
        connection.close_reason(),
        Some(quinn::ConnectionError::LocallyClosed)
    );
    assert!(!asks.plane.reaches(&node.id));
}
