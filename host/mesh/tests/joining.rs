//! Nodes that come into a mesh and find what is offered there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use karman_mesh::membership::RootKey;
use std::time::{Duration, Instant};
use support::{addresses, invite, start};

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_by_a_foreign_root_key_lets_nobody_in() {
    let (root, foreign) = (RootKey::generate().unwrap(), RootKey::generate().unwrap());
    let first = start(None, Some(&root));
    let stranger = start(Some(invite(&foreign, &addresses(&first).await)), None);
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
