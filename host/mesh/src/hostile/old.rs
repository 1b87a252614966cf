//! What was true once, shown again by a member: it changes nothing, and is counted.

use super::{HOUR, SOON, Scene, membership};
use crate::gate::{
    About, Credential, HELLO, Hello, PROTOCOL, Reply, Shown, Thanks, WELCOME, Welcome, exchange,
};
use crate::gate::{GateError, key_of};
use crate::membership::{Issuer, MembershipError, RootKey, Terms, UnixTime};
use crate::offer::{self, StatusReport};
use crate::reports::Heard;
use futures::future::poll_fn;
use karman_types::Tier;
use libp2p::core::muxing::StreamMuxerExt;
use libp2p::identity::Keypair;
use serde_bytes::ByteBuf;
use std::task::Poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_util::compat::FuturesAsyncReadCompatExt;

pub(super) fn hello(credential: Credential) -> Hello {
    Hello {
        version: PROTOCOL,
        credential,
        revocations: [0; 32],
        about: about(),
        lineage: None,
    }
}

pub(super) fn about() -> About {
    About {
        calls: None,
        run: 1,
        charter: None,
    }
}

impl Scene {
    /// Goes through the gate like a member, and says at its end that it knows of these revocations.
    pub(super) async fn ends_with(&self, key: &Keypair, says: &Hello, list: &[u8]) {
        let (mut muxer, stream) = self.connect(key).await.unwrap();
        let mut stream = stream.compat();
        let talking = async {
            HELLO.write(&mut stream, says).await.unwrap();
            stream.flush().await.unwrap();
            let Reply::Welcome(_) = WELCOME.read(&mut stream).await.unwrap() else {
                panic!("a member is let in")
            };
            let revoked = Some(ByteBuf::from(list));
            WELCOME.write(&mut stream, &Thanks { revoked }).await.unwrap();
            let _ = stream.flush().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        };
        let closed = poll_fn(|context| {
            while let Poll::Ready(event) = muxer.poll_unpin(context) {
                if event.is_err() {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        });
        let ended = async {
            tokio::select! {
                () = talking => {}
                () = closed => {}
            }
        };
        tokio::time::timeout(SOON, ended).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_revocations_from_before() {
    let scene = Scene::begin().await;
    let standing = scene.first.mesh.standing().clone();
    let now = standing.now();
    let evil = Keypair::generate_ed25519();
    let out = [Keypair::generate_ed25519(), Keypair::generate_ed25519()];
    let mut lists = vec![standing.revocations()];
    for revoked in &out {
        let key = key_of(&revoked.public().to_peer_id()).unwrap();
        standing.revoke(&key).unwrap();
        lists.push(standing.revocations());
    }
    let says = hello(membership(&scene.root, &evil, now, HOUR));
    // It has just been told of both: what it sends instead is from before.
    for (times, old) in (1..).zip(&lists[..2]) {
        scene.ends_with(&evil, &says, old).await;
        scene.refuses("old-revocations", times).await;
    }
    scene.ends_with(&evil, &says, &lists[2]).await;
    assert_eq!(scene.refused("old-revocations"), 2);
    assert_eq!(standing.revocations(), lists[2]);
    for (times, revoked) in (1..).zip(&out) {
        let shows = membership(&scene.root, revoked, now, HOUR);
        scene.shows(revoked, shows, PROTOCOL).await;
        scene.refuses("revoked", times).await;
    }
    scene.end().await;
}

/// The other side of a gate, as a member plays it that shows this list.
pub(super) async fn receives(
    mut stream: DuplexStream,
    membership: &ByteBuf,
    list: ByteBuf,
    lineage: Option<ByteBuf>,
) {
    let _: Hello = HELLO.read(&mut stream).await.unwrap();
    let welcome = Welcome {
        version: PROTOCOL,
        membership: membership.clone(),
        about: about(),
        granted: None,
        revocations: [0; 32],
        revoked: Some(list),
        lineage,
    };
    let reply = Reply::Welcome(Box::new(welcome));
    WELCOME.write(&mut stream, &reply).await.unwrap();
    stream.flush().await.unwrap();
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_from_before_what_a_member_has_shown_itself() {
    let scene = Scene::begin().await;
    let (issuer, member) = (scene.first.mesh.standing().clone(), scene.member().await);
    let standing = member.mesh.standing();
    let evil = Keypair::generate_ed25519();
    let peer = evil.public().to_peer_id();
    let Credential::Membership(shows) = membership(&scene.root, &evil, issuer.now(), HOUR) else {
        panic!("a membership")
    };
    let old = issuer.revocations();
    issuer.revoke(&[7; 32]).unwrap();
    let meets = async |list: ByteBuf| {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (met, ()) = tokio::join!(
            exchange(standing, peer, ours, true),
            receives(theirs, &shows, list, None)
        );
        met
    };
    let shown: Shown = meets(issuer.revocations()).await.unwrap();
    standing.admitted(peer, shown, None);
    let refused = meets(old).await.err().unwrap();
    assert!(
        matches!(
            refused,
            GateError::NotAMember(MembershipError::Old { shown: 0, had: 1, .. })
        ),
        "{refused}"
    );
    assert_eq!(refused.reason(), Some("old-revocations"));
    assert_eq!(standing.revocations_number(), 1);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_of_a_node_from_before() {
    let scene = Scene::begin().await;
    let asks = scene.member().await;
    let (id, standing) = (scene.first.mesh.me(), asks.mesh.standing().clone());
    let offer = asks.mesh.reach(id).await.unwrap();
    let peers = asks.mesh.0.peers.clone();
    let run = standing.run_of(&id).unwrap();
    // Far beyond what the node itself says meanwhile.
    let report = |number: u64, busy: u32| StatusReport {
        run,
        number: (1 << 40) + number,
        busy,
        offer: Some((*offer).clone()),
    };
    let hears = || Heard::new(peers.clone(), standing.clone(), id);
    let mut heard = hears();
    let known = heard.take(report(2, 7)).unwrap().unwrap();
    assert_eq!(known.1, 7);
    // On the same stream, on another one, of a run before, and of another node.
    assert!(heard.take(report(2, 0)).is_err());
    assert!(hears().take(report(1, 0)).is_err());
    let before = StatusReport {
        run: run ^ 1,
        ..report(3, 0)
    };
    assert!(hears().take(before).is_err());
    let mut of_another = (*offer).clone();
    of_another.node = asks.id;
    let of_another = StatusReport {
        offer: Some(of_another),
        ..report(3, 0)
    };
    assert!(hears().take(of_another).is_err());

    // A node that begins again with what was is listened to no more.
    let (mut says, ours) = tokio::io::duplex(1 << 20);
    let listens = hears().listen(ours);
    let speaks = async {
        for number in [4u32, 5, 4] {
            offer::tell(&mut says, &report(number.into(), number))
                .await
                .unwrap();
        }
    };
    tokio::join!(listens, speaks);
    assert_eq!(peers.fresh(&id).unwrap().1, 5);
    let counted = standing.refusals();
    for (reason, times) in [("old-offer", 4), ("offer-of-another", 1)] {
        assert!(counted.contains(&(reason, times)), "{counted:?}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_membership_of_its_own_from_before() {
    let scene = Scene::begin().await;
    let member = scene.member().await;
    let standing = member.mesh.standing();
    let own = standing.own().unwrap();
    let issued = |root: &RootKey, at: u64| {
        let at = UnixTime::from_seconds(at);
        let terms = Terms::usual(Tier::Edge, at.after(2 * HOUR));
        Issuer::root(root).issue(&own.key, &terms, at).unwrap()
    };
    let now = own.issued.seconds();
    standing.granted(issued(&scene.root, now - 60)).unwrap();
    assert_eq!(standing.own().unwrap().issued, own.issued);
    assert_eq!(standing.refusals(), [("old-membership", 1)]);
    let newer = issued(&scene.root, now + 1);
    standing.granted(newer.clone()).unwrap();
    assert_eq!(standing.shown(), Some(newer.encode()));

    // By the next root key it is newer, though the clock there is behind.
    let next = RootKey::generate().unwrap();
    scene.first.rotate(&next, HOUR);
    let lineage = scene.first.mesh.standing().lineage();
    standing
        .follow(lineage.as_deref().map(|bytes| &bytes[..]))
        .unwrap();
    let behind = issued(&next, now - 60);
    standing.granted(behind).unwrap();
    assert!(!standing.wants_renewal());
    let of_before = issued(&scene.root, now + 2);
    standing.granted(of_before.clone()).unwrap();
    assert_ne!(standing.shown(), Some(of_before.encode()));
}
