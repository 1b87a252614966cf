//! Strangers at the gate of a running node: each is turned away and counted, and a member is let in beside them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use futures::future::BoxFuture;
use futures::{AsyncReadExt, AsyncWriteExt, FutureExt};
use karman_mesh::membership::{Invitation, Issuer, Member, RootKey, Terms, UnixTime};
use karman_mesh::{Ask, CallHead, Mesh, MeshOptions, Multiaddr, PeerId, RemoteReport, Serve, Standing};
use karman_store::Store;
use karman_types::{NodeId, Offer, OfferedTask, TaskError, TaskId, TaskRequest, TaskResponse, Tier};
use libp2p::core::Endpoint;
use libp2p::core::muxing::{StreamMuxerBox, StreamMuxerExt};
use libp2p::core::transport::{DialOpts, PortUse};
use libp2p::core::upgrade::Version;
use libp2p::{Transport, noise, tcp, yamux};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// Answers every call with its own body.
struct Echo(NodeId);

impl Serve for Echo {
    fn most_input(&self, _: &CallHead) -> Result<u64, TaskError> {
        Ok(1 << 20)
    }

    fn serve(
        &self,
        _: Arc<Member>,
        _: CallHead,
        request: TaskRequest,
    ) -> BoxFuture<'static, Result<(TaskResponse, RemoteReport), TaskError>> {
        let response = TaskResponse {
            body: request.body,
            ..TaskResponse::default()
        };
        async { Ok((response, RemoteReport::default())) }.boxed()
    }

    fn offer(&self) -> Option<Offer> {
        Some(Offer {
            node: self.0,
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

struct Node {
    mesh: Mesh,
    _folder: TempDir,
}

fn start(invitation: Option<Invitation>, root: Option<&RootKey>) -> Node {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let (id, seed) = (store.node_key().id(), *store.node_key().seed());
    let entrances = invitation.iter().flat_map(|invitation| invitation.addresses());
    let options = MeshOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        entrances: entrances.map(|address| address.parse().unwrap()).collect(),
        find_neighbours: false,
    };
    let standing = Standing::open(store, Tier::Edge, invitation, root.map(Issuer::root)).unwrap();
    let mesh = Mesh::start(options, &seed, Arc::new(standing), Arc::new(Echo(id))).unwrap();
    Node {
        mesh,
        _folder: folder,
    }
}

async fn addresses(node: &Node) -> Vec<Multiaddr> {
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

fn invite(root: &RootKey, addresses: &[Multiaddr]) -> Invitation {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let now = UnixTime::from_seconds(now);
    let later = now.after(Duration::from_secs(3600));
    let addresses = addresses.iter().map(ToString::to_string).collect();
    Issuer::root(root)
        .invite(&Terms::usual(Tier::Edge, later), later, None, addresses, now)
        .unwrap()
}

/// A connection by a key that belongs to nobody, with what it says first; true when the node has closed it.
async fn knock(address: &Multiaddr, says: &[u8]) -> bool {
    let key = libp2p::identity::Keypair::generate_ed25519();
    let mut transport = tcp::tokio::Transport::new(tcp::Config::default())
        .upgrade(Version::V1Lazy)
        .authenticate(noise::Config::new(&key).unwrap())
        .multiplex(yamux::Config::default())
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)))
        .boxed();
    let dialled = transport.dial(
        address.clone(),
        DialOpts {
            role: Endpoint::Dialer,
            port_use: PortUse::New,
        },
    );
    let (_, mut muxer): (PeerId, StreamMuxerBox) = dialled.unwrap().await.unwrap();
    let mut stream = futures::future::poll_fn(|context| {
        let _ = muxer.poll_unpin(context);
        muxer.poll_outbound_unpin(context)
    })
    .await
    .unwrap();
    let spoken = async {
        let _ = stream.write_all(says).await;
        let _ = stream.flush().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
    };
    let gone = futures::future::poll_fn(|context| {
        while let std::task::Poll::Ready(event) = muxer.poll_unpin(context) {
            if event.is_err() {
                return std::task::Poll::Ready(());
            }
        }
        std::task::Poll::Pending
    });
    let ended = async {
        tokio::select! {
            () = spoken => {}
            () = gone => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(10), ended).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_turned_away_and_a_member_is_served_beside_them() {
    let root = RootKey::generate().unwrap();
    let first = start(None, Some(&root));
    let at = addresses(&first).await;
    let tcp = at
        .iter()
        .find(|address| address.to_string().contains("/tcp/"))
        .unwrap();

    let member = start(Some(invite(&root, &at)), None);
    let admitted = member.mesh.admitted(Duration::from_secs(10)).await.unwrap();
    assert_eq!(admitted.tier, Tier::Edge);

    let four_gib = u32::MAX.to_le_bytes().to_vec();
    let mut no_cbor = 8u32.to_le_bytes().to_vec();
    no_cbor.extend([0xff; 8]);
    let deep = [&4096u32.to_le_bytes()[..], &[0x81; 4096]].concat();
    for (number, says) in [four_gib, no_cbor, deep, Vec::from(*b"GET / HTTP/1.1\r\n\r\n")]
        .iter()
        .enumerate()
    {
        assert!(knock(tcp, says).await, "{says:02x?} was not turned away");
        assert_eq!(first.mesh.standing().turned_away(), number as u64 + 1);
        // Members do not notice.
        let head = CallHead {
            ask: Ask::Call,
            name: "vision/echo".into(),
            task: TaskId::from_parts(0, 1),
            attempt: 1,
            idempotency_key: None,
            within_ms: Some(10_000),
            chain: Vec::new(),
            content_type: String::new(),
            metadata: Vec::new(),
        };
        let (answer, _) = member
            .mesh
            .call(first.mesh.me(), head, "hello".into())
            .await
            .unwrap();
        assert_eq!(answer.body, "hello");
    }
    // A root key that is not ours signs what is worth nothing here.
    let foreign = RootKey::generate().unwrap();
    let stranger = start(Some(invite(&foreign, &at)), None);
    let refused = stranger.mesh.admitted(Duration::from_secs(10)).await.unwrap_err();
    assert_eq!(refused.kind, karman_types::ErrorKind::Denied, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capability_is_found_under_every_level() {
    let root = RootKey::generate().unwrap();
    let first = start(None, Some(&root));
    first.mesh.announce().await;
    let member = start(Some(invite(&root, &addresses(&first).await)), None);
    member.mesh.admitted(Duration::from_secs(10)).await.unwrap();
    for level in ["vision/echo", "vision"] {
        let started = Instant::now();
        while member.mesh.providers(level).await.is_empty() {
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "`{level}` is not found"
            );
        }
    }
    assert!(member.mesh.providers("echo").await.is_empty());
}
