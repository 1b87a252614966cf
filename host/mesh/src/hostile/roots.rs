//! Root keys that the mesh does not have, or has no more.

use super::old::{hello, receives};
use super::{HOUR, Scene, membership};
use crate::gate::{Credential, GateError, HELLO, Hello, exchange};
use crate::membership::{Lineage, MembershipError, RootKey, UnixTime};
use libp2p::identity::Keypair;
use serde_bytes::ByteBuf;
use std::time::Duration;

fn any_root() -> RootKey {
    RootKey::generate().unwrap()
}

/// What claims that another root key has followed `old`, in the words of `says`.
fn claim(old: &RootKey, says: &RootKey, new: &RootKey, now: UnixTime) -> ByteBuf {
    let mut lineage = Lineage::new(says.public());
    let succession = says.succession(&new.public(), now, now.after(HOUR));
    lineage.add(succession).unwrap();
    // The key that says so is put in the place of the one that should.
    let bytes = lineage.encode();
    let at = bytes
        .windows(32)
        .position(|bytes| bytes == says.public().as_bytes())
        .unwrap();
    let mut forged = bytes;
    forged[at..at + 32].copy_from_slice(old.public().as_bytes());
    ByteBuf::from(forged)
}

fn shows(root: &RootKey, key: &Keypair, now: UnixTime, lineage: ByteBuf) -> Hello {
    Hello {
        lineage: Some(lineage),
        ..hello(membership(root, key, now, HOUR))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_that_claim_a_new_root_key() {
    let scene = Scene::begin().await;
    let now = scene.first.mesh.standing().now();
    let (key, theirs) = (Keypair::generate_ed25519(), any_root());

    let forged = claim(&scene.root, &theirs, &any_root(), now);
    let says = shows(&theirs, &key, now, forged);
    scene.knock(&key, &HELLO.encode(&says).unwrap()).await;
    scene.refuses("false-root", 1).await;

    // A mesh of their own, with a history of its own.
    let own = claim(&theirs, &theirs, &any_root(), now);
    let says = shows(&theirs, &key, now, own);
    scene.knock(&key, &HELLO.encode(&says).unwrap()).await;
    scene.refuses("foreign", 1).await;

    // The root key has got out, and somebody names another one as its next.
    let next = any_root();
    scene.first.rotate(&next, HOUR);
    let fork = claim(&scene.root, &scene.root, &theirs, now);
    let says = shows(&theirs, &key, now, fork);
    scene.knock(&key, &HELLO.encode(&says).unwrap()).await;
    scene.refuses("forked-root", 1).await;
    assert_eq!(scene.first.mesh.standing().mesh(), next.public());
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_only_the_old_root_key_refuses_a_stranger_with_a_new_one() {
    let scene = Scene::begin().await;
    let member = scene.member().await;
    let standing = member.mesh.standing();
    let (key, theirs) = (Keypair::generate_ed25519(), any_root());
    let now = standing.now();
    let Credential::Membership(shown) = membership(&theirs, &key, now, HOUR) else {
        panic!("a membership")
    };
    let lineage = claim(&scene.root, &theirs, &any_root(), now);
    let (ours, stream) = tokio::io::duplex(1 << 20);
    let plays = receives(stream, &shown, standing.revocations(), Some(lineage));
    let (met, ()) = tokio::join!(exchange(standing, key.public().to_peer_id(), ours, true), plays);
    let refused = met.err().unwrap();
    assert!(
        matches!(refused, GateError::NotAMember(MembershipError::FalseRoot { .. })),
        "{refused}"
    );
    assert_eq!(standing.mesh(), scene.root.public());
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memberships_of_a_root_key_that_holds_no_more() {
    let scene = Scene::begin().await;
    let now = scene.first.mesh.standing().now();
    let key = Keypair::generate_ed25519();
    let public = crate::gate::key_of(&key.public().to_peer_id()).unwrap();
    let old = || hello(membership(&scene.root, &key, now, HOUR));
    let [next, last] = [0, 1].map(|_| any_root());
    scene.first.rotate(&next, HOUR);
    let revocations = scene.first.mesh.standing().revocations();
    scene.ends_with(&key, &old(), &revocations).await;
    assert_eq!(scene.refused("old-root"), 0);

    // Revoked under the new key, it does not come back by the old one.
    scene.first.mesh.standing().revoke(&public).unwrap();
    scene.knock(&key, &HELLO.encode(&old()).unwrap()).await;
    scene.refuses("revoked", 1).await;

    // For no time at all: every member has to be invited again, honest or not.
    let other = Keypair::generate_ed25519();
    scene.first.rotate(&last, Duration::ZERO);
    let says = hello(membership(&next, &other, now, HOUR));
    scene.knock(&other, &HELLO.encode(&says).unwrap()).await;
    scene.refuses("old-root", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_stays_connected_when_its_root_key_holds_no_more() {
    let scene = Scene::begin().await;
    let standing = scene.first.mesh.standing();
    let lets_in = async |root: &RootKey| {
        let key = Keypair::generate_ed25519();
        let peer = key.public().to_peer_id();
        let Credential::Membership(shown) = membership(root, &key, standing.now(), HOUR) else {
            panic!("a membership")
        };
        let (ours, stream) = tokio::io::duplex(1 << 20);
        let plays = receives(stream, &shown, standing.revocations(), None);
        let (met, ()) = tokio::join!(exchange(standing, peer, ours, true), plays);
        standing.admitted(peer, met.unwrap(), None);
        peer
    };
    let [next, last] = [0, 1].map(|_| any_root());
    let peer = lets_in(&scene.root).await;
    scene.first.rotate(&next, HOUR);
    assert!(
        standing.member(&peer).is_some(),
        "the key before holds for an hour"
    );

    let peer = lets_in(&next).await;
    assert!(standing.member(&peer).is_some());
    scene.first.rotate(&last, Duration::ZERO);
    assert!(
        standing.member(&peer).is_none(),
        "it was told nothing, and says nothing"
    );
}
