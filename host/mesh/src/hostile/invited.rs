//! Those who would like to have the invitation of another, and strangers that ask members for more than a way to an issuer.

use super::old::hello;
use super::{HOUR, Scene, membership};
use crate::gate::{Credential, GateError, HELLO, Hello, Judge, PROTOCOL, Reply, WELCOME, exchange, key_of};
use crate::invitations::InvitationState;
use crate::membership::{Invitation, MembershipError};
use crate::standing::Standing;
use crate::support::invite;
use karman_store::Store;
use karman_types::Tier;
use libp2p::identity::Keypair;
use serde_bytes::ByteBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

/// What a newcomer with this word comes to, at a node with this key that shows this membership for a proof.
async fn shown_to(word: &Invitation, key: &Keypair, proof: ByteBuf) -> GateError {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let newcomer = Standing::open(store, Tier::Edge, Some(word.clone()), None).unwrap();
    let (ours, mut theirs) = duplex(1 << 20);
    let plays = async {
        let says: Hello = HELLO.read(&mut theirs).await.unwrap();
        assert!(matches!(says.credential, Credential::Invited));
        let judge = Reply::Judge(Box::new(Judge {
            membership: proof,
            lineage: None,
        }));
        WELCOME.write(&mut theirs, &judge).await.unwrap();
        theirs.flush().await.unwrap();
        // It has nothing more to say to such a node.
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty(), "{} bytes", rest.len());
    };
    let peer = key.public().to_peer_id();
    let (met, ()) = tokio::join!(exchange(&newcomer, peer, ours, true), plays);
    met.err().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_issuer_sees_the_word_of_an_invitation() {
    let scene = Scene::begin().await;
    let standing = scene.first.mesh.standing();
    let word = invite(&scene.root, &scene.at);
    let member = Keypair::generate_ed25519();
    let Credential::Membership(own) = membership(&scene.root, &member, standing.now(), HOUR) else {
        panic!("a membership")
    };
    let refused = shown_to(&word, &member, own).await;
    assert!(matches!(refused, GateError::NoJudge), "{refused}");
    // With what it has seen of an issuer it comes no further.
    let of_the_issuer = ByteBuf::from(standing.membership().unwrap().encode());
    let refused = shown_to(&word, &member, of_the_issuer).await;
    assert!(
        matches!(refused, GateError::NotAMember(MembershipError::WrongKey { .. })),
        "{refused}"
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_comes_in_by_an_invitation_that_was_withdrawn() {
    let scene = Scene::begin().await;
    let standing = scene.first.mesh.standing();
    let (word, now) = (invite(&scene.root, &scene.at), standing.now());
    standing.invitations().remember(&word, now).unwrap();
    let id = word.id().to_string();
    let withdrawn = standing.invitations().withdraw(&id, now).unwrap();
    assert_eq!(withdrawn.state, InvitationState::Withdrawn);
    let shown = Credential::Invitation(word.to_string());
    scene.shows(&Keypair::generate_ed25519(), shown, PROTOCOL).await;
    scene.refuses("withdrawn-invitation", 1).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_is_led_to_issuers_in_reach_and_nowhere_else() {
    let scene = Scene::begin().await;
    let member = scene.member().await;
    let stranger = Keypair::generate_ed25519();
    let to = [
        member.mesh.standing().public_key().to_vec(),
        key_of(&stranger.public().to_peer_id()).unwrap().to_vec(),
        vec![7; 3],
    ];
    for (times, key) in (1..).zip(to) {
        let says = hello(Credential::Through(ByteBuf::from(key)));
        scene.knock(&stranger, &HELLO.encode(&says).unwrap()).await;
        scene.refuses("no-issuer", times).await;
    }
    // A member that is no issuer gives no proof of being one.
    let says = HELLO.encode(&hello(Credential::Invited)).unwrap();
    let (ours, mut theirs) = duplex(1 << 20);
    let asks = async {
        theirs.write_all(&says).await.unwrap();
        let reply: Reply = WELCOME.read(&mut theirs).await.unwrap();
        assert!(matches!(reply, Reply::NoIssuer));
        drop(theirs);
    };
    let peer = stranger.public().to_peer_id();
    let (met, ()) = tokio::join!(exchange(member.mesh.standing(), peer, ours, false), asks);
    assert!(matches!(met.err().unwrap(), GateError::NoIssuer));
    scene.end().await;
}
