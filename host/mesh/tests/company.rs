//! Members find each other again after they have moved, as long as somebody is where it was.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use karman_mesh::membership::RootKey;
use std::time::{Duration, Instant};
use support::{Node, addresses, invite, start, until};

const SOON: Duration = Duration::from_secs(30);

/// Whether the node knows where the other is, and writes it down.
fn knows(node: &Node, other: &Node) -> bool {
    !node.mesh.place_of(other.id).is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_members_that_move_at_the_same_time_find_each_other_by_a_third() {
    let root = RootKey::generate().unwrap();
    let first = start(None, Some(&root));
    let at = addresses(&first).await;
    // Each is invited to the first, and told of nobody else.
    let [stays, moves] = [0, 1].map(|_| start(Some(invite(&root, &at)), None));
    for member in [&stays, &moves] {
        member.mesh.admitted(SOON).await.unwrap();
    }
    until("they do not get to know each other", || {
        knows(&moves, &stays) && knows(&stays, &moves)
    })
    .await;
    let [moved, first] = [moves.stop(), first.stop()];
    // Neither is where the other has met it.
    let moved = moved.start(None);
    let first = first.start(Some(&root));
    until("the two do not find each other", || {
        moved.mesh.is_connected(&first.mesh.me()) && first.mesh.is_connected(&moved.mesh.me())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_is_known_to_be_gone() {
    let root = RootKey::generate().unwrap();
    let first = start(None, Some(&root));
    let at = addresses(&first).await;
    let member = start(Some(invite(&root, &at)), None);
    member.mesh.admitted(SOON).await.unwrap();
    let is_there = || first.mesh.is_connected(&member.mesh.me());
    until("it does not come", is_there).await;
    member.mesh.leave().await;
    let left = Instant::now();
    until("it is not missed", || !is_there()).await;
    // Of one that says nothing the first would know after 30 s of silence.
    assert!(left.elapsed() < SOON / 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_finds_nobody_says_so_and_goes_on_looking() {
    let root = RootKey::generate().unwrap();
    let first = start(None, Some(&root));
    let at = addresses(&first).await;
    let member = start(Some(invite(&root, &at)), None);
    member.mesh.admitted(SOON).await.unwrap();
    until("it does not get to know the first", || knows(&member, &first)).await;
    assert_eq!(member.mesh.situation().await.search, None);

    let (id, peer) = (first.id, first.mesh.me());
    let (gone, member) = (first.stop(), member.stop().start(None));
    // It knows by which key the first is called, though nobody is there to ask.
    assert_eq!(member.mesh.node(id).await, Some(peer));
    let started = Instant::now();
    let search = loop {
        match member.mesh.situation().await.search {
            Some(search) if search.tries > 2 => break search,
            search => assert!(started.elapsed() < SOON, "{search:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(search.known, 1);
    // Both have moved and there is no third: somebody has to tell.
    let first = gone.start(Some(&root));
    member.mesh.dial(addresses(&first).await.swap_remove(0)).await;
    until("the two do not meet", || {
        member.mesh.is_connected(&first.mesh.me())
    })
    .await;
    assert_eq!(member.mesh.situation().await.search, None);
}
