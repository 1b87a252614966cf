//! Every way in which a node misbehaves, against a live mesh under honest load: each is refused by name, and no honest call
//! fails.

mod crowd;
mod invited;
mod old;
mod roots;

use crate::call::tests::head as call_head;
use crate::calling::CALL;
use crate::gate::{Credential, HELLO, Hello, PROTOCOL};
use crate::membership::{Issuer, Membership, RootKey, Terms, UnixTime};
use crate::reports::OFFER;
use crate::support::{Node, addresses, head, invite, start, start_lying};
use futures::future::poll_fn;
use futures::{AsyncReadExt, AsyncWriteExt};
use karman_types::{ErrorKind, TaskError, Tier};
use libp2p::core::Endpoint;
use libp2p::core::muxing::{StreamMuxerBox, StreamMuxerExt, SubstreamBox};
use libp2p::core::transport::{DialOpts, PortUse};
use libp2p::core::upgrade::Version;
use libp2p::identity::Keypair;
use libp2p::{Multiaddr, PeerId, StreamProtocol, Transport, noise, tcp, yamux};
use parking_lot::Mutex;
use serde_bytes::ByteBuf;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;

const SOON: Duration = Duration::from_secs(10);
/// How long a flood lasts.
const FLOOD: Duration = Duration::from_secs(3);
const NO_CBOR: [u8; 12] = [8, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];

/// A mesh with honest nodes in it that call each other all the time.
struct Scene {
    root: RootKey,
    first: Node,
    at: Vec<Multiaddr>,
    honest: Arc<Honest>,
}

#[derive(Default)]
struct Honest {
    done: AtomicUsize,
    failed: Mutex<Vec<TaskError>>,
    over: AtomicBool,
}

impl Scene {
    async fn begin() -> Self {
        let root = RootKey::generate().unwrap();
        let first = start(None, Some(&root));
        let at = addresses(&first).await;
        let honest = Arc::new(Honest::default());
        let scene = Self {
            root,
            first,
            at,
            honest,
        };
        let member = scene.member().await;
        let (to, counts) = (scene.first.mesh.me(), scene.honest.clone());
        tokio::spawn(async move {
            while !counts.over.load(Ordering::Relaxed) {
                let called = member.mesh.call(to, head("vision/echo"), vec![7; 1024]);
                match called.await {
                    Ok(_) => _ = counts.done.fetch_add(1, Ordering::Relaxed),
                    Err(error) => counts.failed.lock().push(error),
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        scene
    }

    async fn member(&self) -> Node {
        let member = start(Some(invite(&self.root, &self.at)), None);
        member.mesh.admitted(SOON).await.unwrap();
        member
    }

    /// How often the first node has refused something for this reason.
    fn refused(&self, reason: &str) -> u64 {
        let refusals = self.first.mesh.standing().refusals();
        let found = refusals.into_iter().find(|(name, _)| *name == reason);
        found.map_or(0, |(_, count)| count)
    }

    async fn refuses(&self, reason: &str, times: u64) {
        let started = Instant::now();
        while self.refused(reason) < times {
            let all = self.first.mesh.standing().refusals();
            assert!(
                started.elapsed() < SOON,
                "not refused as `{reason}` {times} times: {all:?}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// No honest call has failed, and they went on until now.
    async fn end(self) {
        let before = self.honest.done.load(Ordering::Relaxed);
        let started = Instant::now();
        while self.honest.done.load(Ordering::Relaxed) < before + 10 {
            assert!(started.elapsed() < SOON, "honest calls do not go on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.honest.over.store(true, Ordering::Relaxed);
        let done = self.honest.done.load(Ordering::Relaxed);
        assert_eq!(*self.honest.failed.lock(), [], "beside {done} honest calls");
    }

    fn tcp(&self) -> &Multiaddr {
        let is_tcp = |address: &&Multiaddr| address.to_string().contains("/tcp/");
        self.at.iter().find(is_tcp).unwrap()
    }

    /// A connection with the first stream open, as the gate wants it; an error where the node turns it away before.
    async fn connect(&self, key: &Keypair) -> io::Result<(StreamMuxerBox, SubstreamBox)> {
        let mut transport = tcp::tokio::Transport::new(tcp::Config::default())
            .upgrade(Version::V1Lazy)
            .authenticate(noise::Config::new(key).unwrap())
            .multiplex(yamux::Config::default())
            .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)))
            .boxed();
        let how = DialOpts {
            role: Endpoint::Dialer,
            port_use: PortUse::New,
        };
        let dialled = transport.dial(self.tcp().clone(), how).unwrap();
        let (_, mut muxer): (PeerId, StreamMuxerBox) = dialled.await?;
        let stream = poll_fn(|context| {
            let _ = muxer.poll_unpin(context);
            muxer.poll_outbound_unpin(context)
        });
        let stream = stream.await?;
        Ok((muxer, stream))
    }

    /// Shows this at the gate, and waits until the node has closed the connection.
    async fn knock(&self, key: &Keypair, says: &[u8]) {
        let (mut muxer, mut stream) = self.connect(key).await.unwrap();
        let speaking = async {
            let _ = stream.write_all(says).await;
            let _ = stream.flush().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        };
        let closed = poll_fn(|context| {
            while let Poll::Ready(event) = muxer.poll_unpin(context) {
                if event.is_err() {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        });
        let ended = async {
            tokio::select! {
                () = speaking => {}
                () = closed => {}
            }
        };
        tokio::time::timeout(SOON, ended).await.unwrap();
    }

    async fn shows(&self, key: &Keypair, credential: Credential, version: u16) {
        let hello = Hello {
            version,
            credential,
            revocations: [0; 32],
            about: old::about(),
            lineage: None,
        };
        self.knock(key, &HELLO.encode(&hello).unwrap()).await;
    }
}

fn membership(root: &RootKey, key: &Keypair, now: UnixTime, lasts: Duration) -> Credential {
    let key = key.clone().try_into_ed25519().unwrap().public().to_bytes();
    let terms = Terms::usual(Tier::Edge, now.after(lasts));
    let membership: Membership = Issuer::root(root).issue(&key, &terms, now).unwrap();
    Credential::Membership(ByteBuf::from(membership.encode()))
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn memberships_that_do_not_hold() {
    let scene = Scene::begin().await;
    let now = scene.first.mesh.standing().now();
    let (key, other) = (Keypair::generate_ed25519(), Keypair::generate_ed25519());

    let foreign = RootKey::generate().unwrap();
    scene
        .shows(&key, membership(&foreign, &key, now, HOUR), PROTOCOL)
        .await;
    scene.refuses("foreign", 1).await;

    let long_ago = UnixTime::from_seconds(now.seconds() - 86_400);
    let expired = membership(&scene.root, &key, long_ago, HOUR);
    scene.shows(&key, expired, PROTOCOL).await;
    scene.refuses("expired", 1).await;

    let replayed = membership(&scene.root, &key, now, HOUR);
    scene.shows(&other, replayed, PROTOCOL).await;
    scene.refuses("wrong-key", 1).await;

    let public = key.clone().try_into_ed25519().unwrap().public().to_bytes();
    scene.first.mesh.standing().revoke(&public).unwrap();
    scene
        .shows(&key, membership(&scene.root, &key, now, HOUR), PROTOCOL)
        .await;
    scene.refuses("revoked", 1).await;

    let word = invite(&scene.root, &scene.at);
    let user = start(Some(word.clone()), None);
    user.mesh.admitted(SOON).await.unwrap();
    let again = Credential::Invitation(word.to_string());
    scene.shows(&other, again, PROTOCOL).await;
    scene.refuses("used-invitation", 1).await;

    scene
        .shows(&other, membership(&scene.root, &other, now, HOUR), PROTOCOL + 1)
        .await;
    scene.refuses("version", 1).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_hello() {
    let scene = Scene::begin().await;
    let key = Keypair::generate_ed25519();
    let deep = [&4096u32.to_le_bytes()[..], &[0x81; 4096]].concat();
    scene.knock(&key, &u32::MAX.to_le_bytes()).await;
    scene.refuses("too-long", 1).await;
    for says in [&NO_CBOR[..], &deep] {
        scene.knock(&key, says).await;
    }
    scene.refuses("malformed", 2).await;
    scene.knock(&key, b"GET / HTTP/1.1\r\n\r\n").await;
    scene.refuses("too-long", 2).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_connections_that_say_nothing() {
    let scene = Scene::begin().await;
    let until = Instant::now() + FLOOD;
    let mut silent = Vec::new();
    while Instant::now() < until {
        let key = Keypair::generate_ed25519();
        if let Ok(Ok(connected)) = tokio::time::timeout(Duration::from_millis(200), scene.connect(&key)).await
            && silent.len() < 100
        {
            silent.push(connected);
        }
    }
    assert!(!silent.is_empty());
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_opens_streams_without_end() {
    let scene = Scene::begin().await;
    let evil = scene.member().await;
    let to = scene.first.mesh.me();
    let until = Instant::now() + FLOOD;
    let mut held = Vec::new();
    while Instant::now() < until {
        let opening = evil.mesh.stream(to, CALL);
        if let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(50), opening).await {
            held.push(stream);
        }
    }
    assert!(held.len() > 100, "{} streams were opened", held.len());
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_of_calls_that_are_none() {
    let scene = Scene::begin().await;
    let evil = scene.member().await;
    for protocol in [CALL, OFFER] {
        for says in [&u32::MAX.to_le_bytes()[..], &NO_CBOR] {
            says_on(&evil, scene.first.mesh.me(), protocol.clone(), says).await;
        }
    }
    scene.refuses("call-too-long", 1).await;
    scene.refuses("call-malformed", 1).await;
    scene.end().await;
}

async fn says_on(evil: &Node, to: PeerId, protocol: StreamProtocol, says: &[u8]) {
    let mut stream = evil.mesh.stream(to, protocol).await.unwrap();
    // It may be refused before all of it is through.
    let _ = stream.write_all(says).await;
    let _ = stream.flush().await;
    let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut Vec::new())).await;
}

/// Bytes that this process has in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or_default() * 4096
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_promised_and_never_come() {
    let scene = Scene::begin().await;
    let evil = scene.member().await;
    let to = scene.first.mesh.me();
    let plane = direct(&evil, to).await;
    let before = resident();
    let mut held = Vec::new();
    while held.len() < 200 {
        let Some((input, mut output)) = plane.open(&to).await else {
            panic!("no stream")
        };
        let promise = crate::call::promise(&head("vision/echo"), 64 << 20);
        output.write_all(&promise).await.unwrap();
        output.write_all(&[0; 1024]).await.unwrap();
        held.push((input, output));
    }
    // Twelve GiB were promised. What a stalled body takes is what has come of it.
    let grown = resident().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes more in memory");
    scene.end().await;
}

async fn direct(evil: &Node, to: PeerId) -> Arc<crate::data::Plane> {
    let started = Instant::now();
    let plane = evil.mesh.0.plane.clone().unwrap();
    while !plane.reaches(&to) {
        assert!(started.elapsed() < SOON, "calls have no connection of their own");
        evil.mesh.call(to, head("vision/echo"), "1").await.unwrap();
    }
    plane
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_the_member_may_not_make_or_that_is_too_long() {
    let scene = Scene::begin().await;
    let evil = scene.member().await;
    let to = scene.first.mesh.me();
    let deploy = crate::CallHead {
        ask: crate::Ask::Deploy {
            downgrade: false,
            digest: karman_types::Digest::of(b"x"),
            size: 1,
        },
        ..call_head("vision/echo")
    };
    let refused = evil.mesh.call(to, deploy, "x").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Denied, "{refused}");
    scene.refuses("call-denied", 1).await;
    let long = vec![0; (64 << 20) + 1];
    let refused = evil.mesh.call(to, head("vision/echo"), long).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Limit, "{refused}");
    scene.refuses("call-body-too-long", 1).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_speaks_for_another() {
    let scene = Scene::begin().await;
    let asks = scene.member().await;
    let liar = start_lying(invite(&scene.root, &scene.at), scene.first.id);
    liar.mesh.admitted(SOON).await.unwrap();
    liar.mesh.announce().await;
    let address = addresses(&liar).await.swap_remove(0);
    asks.mesh.dial(address).await;
    let started = Instant::now();
    let refused = loop {
        match asks.mesh.reach(liar.mesh.me()).await {
            Err(error) if error.message.contains("speaks for another") => break error,
            other => assert!(started.elapsed() < SOON, "{other:?}"),
        }
    };
    assert_eq!(refused.kind, ErrorKind::Unavailable);
    let counted = asks.mesh.standing().refusals();
    assert!(
        counted.iter().any(|(reason, _)| *reason == "offer-of-another"),
        "{counted:?}"
    );
    let providers = asks.mesh.providers("vision/echo").await;
    assert!(providers.iter().all(|provider| provider.id != liar.mesh.me()));
    scene.end().await;
}
