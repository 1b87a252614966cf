//! Nodes with the right `issue` let others in, while the machine with the root key is away.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use karman_mesh::GateError;
use karman_mesh::membership::{Invitation, Issuer, MembershipError, Right, RootKey, Terms};
use karman_types::Tier;
use std::time::Duration;
use support::{Node, addresses, head, invite, start, until};

const SOON: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3600);

fn rights(all: &[&str]) -> impl Iterator<Item = Right> {
    all.iter().map(|right| right.parse().unwrap())
}

/// A node that may let others in and put them out, by the root key's word.
async fn deputy(root: &RootKey, first: &Node) -> Node {
    let now = first.mesh.standing().now();
    let mut terms = Terms::usual(Tier::Fog, now.after(10 * HOUR));
    terms.rights = rights(&["call:*", "issue", "revoke"]).collect();
    let at = addresses(first).await.iter().map(ToString::to_string).collect();
    let word = Issuer::root(root).invite(&terms, now.after(HOUR), None, at, now);
    let node = start(Some(word.unwrap()), None);
    node.mesh.admitted(SOON).await.unwrap();
    node
}

/// What a node invites to.
async fn word_of(node: &Node) -> Invitation {
    let standing = node.mesh.standing();
    let at = addresses(node).await.iter().map(ToString::to_string).collect();
    let now = standing.now();
    let terms = Terms::usual(Tier::Edge, now.after(HOUR));
    standing.invite(&terms, now.after(HOUR), None, at).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deputy_lets_nodes_in_and_puts_them_out() {
    let root = RootKey::generate().unwrap();
    let first = start(None, Some(&root));
    let deputy = deputy(&root, &first).await;
    drop(first.stop());
    let one = start(Some(word_of(&deputy).await), None);
    one.mesh.admitted(SOON).await.unwrap();
    assert_eq!(
        one.mesh.standing().own().unwrap().issuer,
        Some(deputy.mesh.standing().public_key())
    );
    let called = one.mesh.call(deputy.mesh.me(), head("vision/echo"), "1");
    assert_eq!(called.await.unwrap().0.body, "1");

    // It gives neither more time than it has, nor its own right.
    let now = deputy.mesh.standing().now();
    let invites = |node: &Node, hours: u32, all: &[&str]| {
        let mut terms = Terms::usual(Tier::Edge, now.after(hours * HOUR));
        terms.rights = rights(all).collect();
        node.mesh
            .standing()
            .invite(&terms, now.after(HOUR), None, Vec::new())
    };
    for refused in [invites(&deputy, 11, &["call:*"]), invites(&deputy, 1, &["issue"])] {
        let why = refused.unwrap_err();
        let beyond = matches!(why, GateError::Issuer(MembershipError::BeyondIssuer { .. }));
        assert!(beyond, "{why}");
    }
    invites(&deputy, 1, &["call:*"]).unwrap();
    // Whoever it let in invites nobody.
    assert!(matches!(invites(&one, 1, &["call:*"]), Err(GateError::NoIssuer)));

    // Of what the other issuer has invited to, it does not know whether it was used.
    let elsewhere = start(Some(invite(&root, &addresses(&deputy).await)), None);
    until("a deputy does not say that it is not asked", || {
        let mut refusals = deputy.mesh.standing().refusals().into_iter();
        refusals.any(|(reason, _)| reason == "no-issuer")
    })
    .await;
    assert!(elsewhere.mesh.standing().own().is_none());

    let (peer, key) = (one.mesh.me(), one.mesh.standing().public_key());
    deputy.mesh.standing().revoke(&key).unwrap();
    until("it is still a member", || {
        deputy.mesh.standing().member(&peer).is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_an_issuer_those_are_put_out_whom_it_let_in() {
    let root = RootKey::generate().unwrap();
    let first = start(None, Some(&root));
    let deputy = deputy(&root, &first).await;
    let one = start(Some(word_of(&deputy).await), None);
    one.mesh.admitted(SOON).await.unwrap();
    one.mesh.dial(addresses(&first).await.swap_remove(0)).await;
    let (peer, standing) = (one.mesh.me(), first.mesh.standing());
    until("the two do not meet", || first.mesh.is_connected(&peer)).await;
    assert!(standing.member(&peer).is_some());
    standing.revoke(&deputy.mesh.standing().public_key()).unwrap();
    assert!(standing.member(&peer).is_none());
    until("the connection stands", || !first.mesh.is_connected(&peer)).await;
}
