//! Strangers at the gate of a running node: each is turned away and counted, and a member is let in beside them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use futures::{AsyncReadExt, AsyncWriteExt};
use karman_mesh::membership::RootKey;
use karman_mesh::{Multiaddr, PeerId};
use karman_types::Tier;
use libp2p::core::Endpoint;
use libp2p::core::muxing::{StreamMuxerBox, StreamMuxerExt};
use libp2p::core::transport::{DialOpts, PortUse};
use libp2p::core::upgrade::Version;
use libp2p::{Transport, noise, tcp, yamux};
use std::time::{Duration, Instant};
use support::{addresses, head, invite, start};

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
        let (answer, _) = member
            .mesh
            .call(first.mesh.me(), head("vision/echo"), "hello".into())
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
