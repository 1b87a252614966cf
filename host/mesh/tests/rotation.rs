//! A mesh gets another root key while it lives.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use karman_mesh::membership::{RootKey, UnixTime};
use std::time::Duration;
use support::{Node, addresses, head, invite, start, until};

const SOON: Duration = Duration::from_secs(20);
/// How long what the old key has signed holds: memberships here are given for an hour.
const GRACE: Duration = Duration::from_secs(60);

/// Whether the node belongs to the mesh of this key, by a membership that this key has signed.
fn belongs(node: &Node, root: &RootKey, grace_ends: UnixTime) -> bool {
    let standing = node.mesh.standing();
    let lasts = standing.own().is_some_and(|own| own.not_after > grace_ends);
    standing.mesh() == root.public() && lasts
}

#[tokio::test(flavor = "multi_thread")]
async fn members_follow_while_they_are_connected_and_old_words_still_lead_in() {
    let root = RootKey::generate().unwrap();
    let first = start(None, Some(&root));
    let at = addresses(&first).await;
    let old_word = invite(&root, &at);
    let member = start(Some(invite(&root, &at)), None);
    member.mesh.admitted(SOON).await.unwrap();
    first.mesh.standing().revoke(&[7; 32]).unwrap();

    let mut keys = vec![root];
    for _ in 0..2 {
        let next = RootKey::generate().unwrap();
        first.rotate(&next, GRACE);
        let ends = first.mesh.standing().now().after(2 * GRACE);
        for node in [&first, &member] {
            until("a member does not follow", || belongs(node, &next, ends)).await;
        }
        keys.push(next);
    }
    let called = member.mesh.call(first.mesh.me(), head("vision/echo"), "1");
    assert_eq!(called.await.unwrap().0.body, "1");

    // By a word of the first key, two keys ago.
    let ends = first.mesh.standing().now().after(2 * GRACE);
    let late = start(Some(old_word), None);
    late.mesh.admitted(SOON).await.unwrap();
    until("an old word does not lead in", || belongs(&late, &keys[2], ends)).await;
    let new = start(Some(invite(&keys[2], &at)), None);
    new.mesh.admitted(SOON).await.unwrap();
    // What was revoked stays so under each of them.
    let mut refusals = first.mesh.standing().refusals().into_iter();
    assert!(!refusals.any(|(reason, _)| reason == "foreign"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_reaches_those_that_are_connected() {
    let root = RootKey::generate().unwrap();
    let first = start(None, Some(&root));
    let at = addresses(&first).await;
    let [one, two] = [0, 1].map(|_| start(Some(invite(&root, &at)), None));
    for member in [&one, &two] {
        member.mesh.admitted(SOON).await.unwrap();
    }
    one.mesh.dial(addresses(&two).await.swap_remove(0)).await;
    let (peer, key) = (two.mesh.me(), two.mesh.standing().public_key());
    until("the two do not meet", || one.mesh.is_connected(&peer)).await;
    first.mesh.standing().revoke(&key).unwrap();
    until("the other is not told", || {
        one.mesh.standing().member(&peer).is_none()
    })
    .await;
}
