//! The data plane of two nodes that reach each other directly.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use bytes::Bytes;
use karman_mesh::membership::RootKey;
use karman_mesh::{Ask, CallHead};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::{Node, addresses, head, invite, start};

const SOON: Duration = Duration::from_secs(10);

/// A mesh of two, with calls from the second to the first on a connection of their own.
async fn two() -> (Node, Node) {
    let root = RootKey::generate().unwrap();
    let first = start(None, Some(&root));
    let second = start(Some(invite(&root, &addresses(&first).await)), None);
    second.mesh.admitted(SOON).await.unwrap();
    // The first calls ask for the connection and do not wait for it.
    let started = Instant::now();
    while !direct(&second, &first) {
        assert!(started.elapsed() < SOON, "there is no direct connection");
        echo(&second, &first, "hello".into()).await;
    }
    (first, second)
}

fn direct(from: &Node, to: &Node) -> bool {
    let peers = from.mesh.peers();
    peers
        .iter()
        .any(|peer| peer.id == to.mesh.me() && peer.direct_calls)
}

async fn until(is: impl Fn() -> bool) {
    let started = Instant::now();
    while !is() {
        assert!(started.elapsed() < SOON, "it does not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn echo(from: &Node, to: &Node, body: Bytes) {
    let (answer, _) = from
        .mesh
        .call(to.mesh.me(), head("vision/echo"), body.clone())
        .await
        .unwrap();
    assert!(answer.body == body, "{} bytes came back changed", body.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_run_on_a_connection_of_their_own_in_both_directions() {
    let (first, second) = two().await;
    let many = (0..1_000).map(|_| echo(&second, &first, Bytes::from(vec![7; 1024])));
    futures::future::join_all(many).await;
    until(|| direct(&first, &second)).await;
    echo(&first, &second, "back".into()).await;
    assert!(direct(&second, &first));
    assert_eq!(first.mesh.standing().refusals(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_comes_back_as_it_was() {
    let (first, second) = two().await;
    let mut body = vec![0; 64 << 20];
    fastrand::Rng::with_seed(1).fill(&mut body);
    echo(&second, &first, body.into()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_dropped_ends_there() {
    let (first, second) = two().await;
    let mesh = second.mesh.clone();
    let to = first.mesh.me();
    let call = tokio::spawn(async move { mesh.call(to, head("slow"), Bytes::from(vec![7; 1 << 20])).await });
    until(|| first.waiting.load(Ordering::SeqCst) == 1).await;
    call.abort();
    until(|| first.waiting.load(Ordering::SeqCst) == 0).await;
    assert!(direct(&second, &first));
}

#[tokio::test(flavor = "multi_thread")]
async fn keepers_are_answered_while_a_node_has_all_the_work_that_it_takes() {
    let (first, second) = two().await;
    let (mesh, to) = (second.mesh.clone(), first.mesh.me());
    let calls = (0..300).map(|_| mesh.call(to, head("slow"), Bytes::new()));
    let calls = futures::future::join_all(calls);
    let keeps = async {
        until(|| first.waiting.load(Ordering::SeqCst) >= 224).await;
        let keep = CallHead {
            ask: Ask::Keep { snapshot: false },
            ..head("vision/echo")
        };
        let asked = mesh.call(to, keep, Bytes::from_static(b"vote"));
        let (answer, _) = tokio::time::timeout(SOON, asked).await.unwrap().unwrap();
        assert_eq!(answer.body, "vote");
        assert_eq!(first.waiting.load(Ordering::SeqCst), 224, "the others wait here");
    };
    tokio::select! {
        _ = calls => panic!("nobody answers them"),
        () = keeps => {}
    }
    until(|| first.waiting.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_ends_there_when_its_time_is_over() {
    let (first, second) = two().await;
    let mut short = head("slow");
    short.within_ms = Some(100);
    let late = second.mesh.call(first.mesh.me(), short, Bytes::new()).await;
    assert_eq!(late.unwrap_err().kind, karman_types::ErrorKind::Deadline);
    until(|| first.waiting.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_put_out_is_cut_off_here_too() {
    let (first, second) = two().await;
    let mesh = second.mesh.clone();
    let to = first.mesh.me();
    let call = tokio::spawn(async move { mesh.call(to, head("slow"), Bytes::new()).await });
    until(|| first.waiting.load(Ordering::SeqCst) == 1).await;
    let key = second.mesh.standing().public_key();
    first.mesh.standing().revoke(&key).unwrap();
    // What it had under way ends, and nothing new begins.
    assert!(call.await.unwrap().is_err());
    until(|| first.waiting.load(Ordering::SeqCst) == 0).await;
    until(|| !direct(&second, &first) && !direct(&first, &second)).await;
    let again = second
        .mesh
        .call(first.mesh.me(), head("vision/echo"), "hello")
        .await;
    assert!(again.is_err());
}
