//! Whole ways through a mesh, and every refusal on them. `refusals` holds what an attacker tries.

mod refusals;
mod revoking;

use super::*;
use karman_types::{NodeId, Tier};
use proptest::prelude::*;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

fn now() -> UnixTime {
    UnixTime::from_seconds(1_800_000_000)
}

fn root() -> RootKey {
    RootKey::from_seed(&[1; 32])
}

fn mesh() -> MeshKey {
    root().public()
}

fn nobody() -> Revocations {
    Revocations::new(mesh())
}

fn rights(texts: &[&str]) -> Rights {
    texts.iter().map(|text| text.parse::<Right>().unwrap()).collect()
}

fn terms(texts: &[&str], not_after: UnixTime) -> Terms {
    Terms {
        tier: Tier::Edge,
        rights: rights(texts),
        not_after,
    }
}

fn key(seed: u8) -> [u8; 32] {
    statement::public_key(&[seed; 32])
}

/// The node of seed 2, which may issue for 30 days, call every task and read every bucket.
fn issuer() -> Issuer {
    let terms = terms(
        &["issue", "revoke", "call:*", "bucket-read:*"],
        now().after(30 * DAY),
    );
    let membership = Issuer::root(&root()).issue(&key(2), &terms, now()).unwrap();
    Issuer::node(&mesh(), &[2; 32], &membership, now(), &nobody()).unwrap()
}

/// What the issuer gives the node of seed 3, for 7 days.
fn membership() -> Membership {
    issuer()
        .issue(&key(3), &terms(&["call:vision/*"], now().after(7 * DAY)), now())
        .unwrap()
}

#[test]
fn a_node_joins_with_an_invitation_and_is_known_to_all() {
    let given = terms(&["call:*"], now().after(7 * DAY));
    let addresses = vec!["/ip4/10.0.0.1/udp/4001/quic-v1".to_owned()];
    let text = issuer()
        .invite(&given, now().after(DAY), None, addresses.clone(), now())
        .unwrap()
        .to_string();
    let invitation: Invitation = text.to_uppercase().parse().unwrap();
    assert_eq!(invitation.to_string(), text);
    assert_eq!(
        (invitation.mesh(), invitation.addresses()),
        (&mesh(), &addresses[..])
    );
    assert_eq!(invitation.accept(&key(3), now()), Ok(None));

    for (redeemer, signer) in [(issuer(), Some(key(2))), (Issuer::root(&root()), None)] {
        assert_eq!(redeemer.has_made(&invitation), signer.is_some());
        let (id, terms) = redeemer.redeem(&invitation, &key(3), now(), &nobody()).unwrap();
        assert_eq!((id, &terms), (invitation.id(), &given));
        let membership = redeemer.issue(&key(3), &terms, now()).unwrap();
        let membership = Membership::decode(&membership.encode()).unwrap();
        let member = membership.verify(&mesh(), &key(3), now(), &nobody()).unwrap();
        let Member {
            tier, rights, issued, ..
        } = &member;
        assert_eq!((member.node, member.issuer), (NodeId::of_key(&key(3)), signer));
        assert_eq!((*tier, rights, *issued), (Tier::Edge, &given.rights, now()));
        assert_eq!(member.not_after, given.not_after);
    }
}

#[test]
fn an_invitation_for_a_node_needs_no_issuer() {
    let given = Terms::usual(Tier::Space, now().after(7 * DAY));
    for inviter in [issuer(), Issuer::root(&root())] {
        let invitation = inviter
            .invite(&given, now().after(DAY), Some(&key(3)), Vec::new(), now())
            .unwrap();
        let text = invitation.to_string();
        assert!(text.len() < 2500, "{} characters", text.len());
        let invitation: Invitation = text.parse().unwrap();
        assert_eq!(invitation.for_node(), Some(&key(3)));
        let membership = invitation.accept(&key(3), now()).unwrap().unwrap();
        let member = membership.verify(&mesh(), &key(3), now(), &nobody()).unwrap();
        assert_eq!((member.tier, member.rights), (given.tier, given.rights.clone()));
        assert!(matches!(
            invitation.accept(&key(4), now()),
            Err(MembershipError::WrongKey { .. })
        ));
    }
}

#[test]
fn a_membership_holds_until_its_end_for_its_key_unless_it_is_revoked() {
    let refused = |key: u8, now: UnixTime, revoked: &Revocations| {
        let verified = membership().verify(&mesh(), &self::key(key), now, revoked);
        verified.unwrap_err()
    };
    let too_late = refused(3, now().after(8 * DAY), &nobody());
    assert!(matches!(too_late, MembershipError::Expired { .. }));
    let of_another = refused(4, now(), &nobody());
    assert!(matches!(of_another, MembershipError::WrongKey { .. }));
    let mut revoked = nobody();
    revoked.add(issuer().revoke(&key(3), now()).unwrap()).unwrap();
    let revoked = refused(3, now(), &revoked);
    assert!(matches!(revoked, MembershipError::Revoked { .. }));
}

#[test]
fn sizes_are_those_we_say() {
    let root_signed = Issuer::root(&root()).issue(&key(3), &Terms::usual(Tier::Edge, UnixTime::MAX), now());
    let sizes = [root_signed.unwrap().encode().len(), membership().encode().len()];
    assert!(sizes[0] < 512 && sizes[1] < 1024, "{sizes:?} bytes");
}

fn any_right() -> impl Strategy<Value = Right> {
    let kind = prop::sample::select(vec!["call", "deploy", "bucket-read", "bucket-write"]);
    (kind, "[a-z0-9/._*-]{1,20}").prop_map(|(kind, name)| format!("{kind}:{name}").parse().unwrap())
}

fn any_terms() -> impl Strategy<Value = Terms> {
    let tiers = prop::sample::select(vec![Tier::Edge, Tier::Fog, Tier::Cloud, Tier::Space]);
    let rights = prop::collection::vec(any_right(), 0..12);
    (tiers, rights, now().seconds()..u64::MAX).prop_map(|(tier, rights, end)| Terms {
        tier,
        rights: rights.into_iter().collect(),
        not_after: UnixTime::from_seconds(end),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn memberships_say_what_was_given(terms in any_terms(), key: [u8; 32]) {
        let membership = Issuer::root(&root()).issue(&key, &terms, now()).unwrap();
        let membership = Membership::decode(&membership.encode()).unwrap();
        let member = membership.verify(&mesh(), &key, now(), &nobody()).unwrap();
        prop_assert_eq!(&member.rights, &terms.rights);
        prop_assert_eq!((member.tier, member.not_after), (terms.tier, terms.not_after));
    }

    /// Whatever an issuer gives, it held; what it may not give, nobody takes from it.
    #[test]
    fn an_issuer_gives_no_more_than_it_has(terms in any_terms()) {
        let held = rights(&["issue", "revoke", "call:*", "bucket-read:*"]);
        match issuer().issue(&key(3), &terms, now()) {
            Ok(membership) => {
                let member = membership.verify(&mesh(), &key(3), now(), &nobody()).unwrap();
                prop_assert!(held.covers(&member.rights));
                prop_assert!(member.not_after <= now().after(30 * DAY));
            }
            Err(error) => prop_assert!(
                matches!(error, MembershipError::BeyondIssuer { .. }),
                "{error}"
            ),
        }
    }

    #[test]
    fn a_typo_is_always_refused(at: prop::sample::Index, with in "[a-z0-9 ]", for_node: bool) {
        let given = Terms::usual(Tier::Edge, now().after(DAY));
        let node = for_node.then(|| key(3));
        let invitation = Issuer::root(&root()).invite(&given, now().after(DAY), node.as_ref(), Vec::new(), now());
        let text = invitation.unwrap().to_string();
        let at = at.index(text.len());
        prop_assume!(text[at..=at] != with);
        let wrong = format!("{}{with}{}", &text[..at], &text[at + 1..]);
        let error = wrong.parse::<Invitation>().unwrap_err();
        prop_assert_eq!(matches!(error, MembershipError::Typo { .. }), at >= 4, "{}", error);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), at: prop::sample::Index) {
        let _ = Membership::decode(&bytes);
        let _ = Revocations::decode(mesh(), &bytes);
        let _ = Succession::decode(&bytes);
        let _ = Lineage::decode(&bytes);
        let mut bent = membership().encode();
        let at = at.index(bent.len());
        bent[at] ^= bytes.first().copied().unwrap_or(1) | 1;
        let verified = Membership::decode(&bent).and_then(|m| m.verify(&mesh(), &key(3), now(), &nobody()));
        prop_assert!(verified.is_err());
    }
}
