//! Links that behave as their profile says, under everything that leaves a node.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use karman_mesh::membership::RootKey;
use std::time::{Duration, Instant};
use support::{addresses, head, invite, start, start_on};

const SOON: Duration = Duration::from_secs(20);

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
