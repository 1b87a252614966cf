//! Links that behave as their profile says, under everything that leaves a node.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use karman_mesh::membership::RootKey;
use std::time::{Duration, Instant};
use support::{Node, addresses, head, invite, start, start_on, until};

const SOON: Duration = Duration::from_secs(20);
/// A satellite far out.
const FAR: &str = "[[link]]\nto = \"all\"\ndelay = \"750ms\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn what_leaves_takes_its_time() {
    let root = RootKey::generate().unwrap();
    let first = start(None, Some(&root));
    let at = addresses(&first).await;
    let slow = start_on(
        invite(&root, &at),
        "[[link]]\nto = \"all\"\ndelay = \"60ms\"\nrate = \"8 Mbit/s\"\n",
    );
    slow.mesh.admitted(SOON).await.unwrap();
    // Over the swarm first, then over the connection for calls.
    let mut direct = 0;
    while direct < 3 {
        direct += usize::from(slow.mesh.peers().iter().any(|peer| peer.direct_calls));
        let started = Instant::now();
        let body = vec![1; 100_000];
        slow.mesh
            .call(first.mesh.me(), head("vision/echo"), body)
            .await
            .unwrap();
        let time = started.elapsed();
        assert!(
            time >= Duration::from_millis(160),
            "{time:?}: 60 ms and 0.1 s at 8 Mbit/s"
        );
    }
    let started = Instant::now();
    slow.mesh.reach(first.mesh.me()).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(60));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_cuts_the_node_off_and_ends() {
    let root = RootKey::generate().unwrap();
    let first = start(None, Some(&root));
    let at = addresses(&first).await;
    let started = Instant::now();
    let slow = start_on(
        invite(&root, &at),
        "[[link]]\nto = \"tier=edge\"\noutages = [{ start = \"4s\", length = \"16s\" }]\n",
    );
    slow.mesh.admitted(SOON).await.unwrap();
    let call = async || {
        let call = karman_mesh::CallHead {
            within_ms: Some(500),
            ..head("vision/echo")
        };
        slow.mesh.call(first.mesh.me(), call, "1").await
    };
    call().await.unwrap();
    while started.elapsed() < Duration::from_millis(4500) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    while started.elapsed() < Duration::from_secs(19) {
        assert!(call().await.is_err());
    }
    // It was gone for so long that the connection broke.
    assert!(
        slow.mesh.peers().iter().all(|peer| peer.path.is_none()),
        "{:?}",
        slow.mesh.peers()
    );
    let until = Instant::now() + SOON;
    while call().await.is_err() {
        assert!(Instant::now() < until, "it does not come back");
    }
}

fn are_connected(one: &Node, other: &Node) -> bool {
    one.mesh.is_connected(&other.mesh.me()) && other.mesh.is_connected(&one.mesh.me())
}

/// Asks again and again who does a task, as somebody does who waits for it, until the other node says that it does.
async fn is_found(asks: &Node, other: &Node) {
    let started = Instant::now();
    loop {
        let found = asks.mesh.providers("vision/echo").await;
        if found.iter().any(|provider| provider.id == other.mesh.me()) {
            break;
        }
        assert!(started.elapsed() < 3 * SOON, "it is not found again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let answer = asks.mesh.call(other.mesh.me(), head("vision/echo"), "1").await;
    assert_eq!(answer.unwrap().0.body, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_are_alone_on_a_long_link_meet_again_whichever_was_started_anew() {
    let root = RootKey::generate().unwrap();
    let first = start(None, Some(&root));
    let at = addresses(&first).await;
    let second = start_on(invite(&root, &at), FAR);
    second.mesh.admitted(SOON).await.unwrap();
    let knows = |one: &Node, other: &Node| !one.mesh.place_of(other.id).is_empty();
    until("they do not know where the other is", || {
        knows(&first, &second) && knows(&second, &first)
    })
    .await;

    // The second remembers where the first is, which hears from it where it is now.
    let second = second.stop().start_on(None, FAR);
    let at: Vec<String> = addresses(&second).await.iter().map(ToString::to_string).collect();
    let is_there = |place: &String| {
        at.iter()
            .any(|address| address.starts_with(&format!("{place}/p2p/")))
    };
    until("the first does not hear where the second is", || {
        first.mesh.place_of(second.id).iter().any(is_there)
    })
    .await;
    // So it finds it from elsewhere, and there is nobody else to ask.
    let first = first.stop().start_on(Some(&root), FAR);
    until("they do not meet again", || are_connected(&first, &second)).await;
    tokio::join!(is_found(&first, &second), is_found(&second, &first));
}
