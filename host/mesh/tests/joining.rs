//! Nodes that come into a mesh and find what is offered there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use karman_mesh::membership::RootKey;
use libp2p::multiaddr::Protocol;
use std::time::{Duration, Instant};
use support::{addresses, head, invite, start, until};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_by_a_foreign_root_key_lets_nobody_in() {
    let (root, foreign) = (RootKey::generate().unwrap(), RootKey::generate().unwrap());
    let first = start(None, Some(&root));
    let stranger = start(Some(invite(&foreign, &addresses(&first).await)), None);
    let refused = stranger.mesh.admitted(Duration::from_secs(10)).await.unwrap_err();
    assert_eq!(refused.kind, karman_types::ErrorKind::Denied, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_let_in_by_nobody_is_told_where_it_has_looked() {
    let root = RootKey::generate().unwrap();
    // Nobody is there: the address is for documents.
    let nobody = "/ip4/192.0.2.7/udp/7117/quic-v1".parse().unwrap();
    let alone = start(Some(invite(&root, &[nobody])), None);
    let refused = alone.mesh.admitted(Duration::ZERO).await.unwrap_err();
    assert_eq!(refused.kind, karman_types::ErrorKind::Unavailable, "{refused}");
    let hint = refused.hint.unwrap();
    assert!(
        hint.contains("looked for at /ip4/192.0.2.7/udp/7117/quic-v1.") && hint.contains("--address"),
        "{hint}"
    );
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
    assert_eq!(member.mesh.node(first.id).await, Some(first.mesh.me()));
    let nobody = karman_types::NodeId::of_key(b"nobody");
    assert_eq!(member.mesh.node(nobody).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_that_reaches_only_a_member_is_let_in_by_the_issuer_behind_it() {
    let root = RootKey::generate().unwrap();
    let first = start(None, Some(&root));
    let member = start(Some(invite(&root, &addresses(&first).await)), None);
    member.mesh.admitted(SOON).await.unwrap();
    // The only address in its invitation leads over the member, which cannot let it in.
    let circuits = addresses(&member).await.into_iter().map(|address| {
        let over = address.with(Protocol::P2pCircuit);
        over.with_p2p(first.mesh.me()).unwrap()
    });
    let word = invite(&root, &circuits.collect::<Vec<_>>());
    let newcomer = start(Some(word.clone()), None);
    newcomer.mesh.admitted(SOON).await.unwrap();
    until("it does not come to the member", || {
        newcomer.mesh.is_connected(&member.mesh.me())
    })
    .await;
    until("the member does not tell it of the issuer", || {
        newcomer.mesh.is_connected(&first.mesh.me())
    })
    .await;
    let called = newcomer.mesh.call(first.mesh.me(), head("vision/echo"), "1");
    assert_eq!(called.await.unwrap().0.body, "1");
    // The word was for one node, whatever way it came.
    let other = start(Some(word), None);
    let refused = other.mesh.admitted(SOON).await.unwrap_err();
    assert_eq!(refused.kind, karman_types::ErrorKind::Denied, "{refused}");
}
