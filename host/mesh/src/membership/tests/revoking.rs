use super::*;

fn by_root(node: u8, at: u64) -> Revocation {
    let at = now().after(Duration::from_secs(at));
    Issuer::root(&root()).revoke(&key(node), at).unwrap()
}

fn by_issuer(node: u8, at: u64) -> Revocation {
    issuer()
        .revoke(&key(node), now().after(Duration::from_secs(at)))
        .unwrap()
}

fn set(revocations: impl IntoIterator<Item = Revocation>) -> Revocations {
    let mut set = nobody();
    for revocation in revocations {
        set.add(revocation).unwrap();
    }
    set
}

#[test]
fn a_revoked_node_is_out_and_so_are_the_members_of_a_revoked_issuer() {
    for revoked in [set([by_issuer(3, 0)]), set([by_root(2, 0)])] {
        let error = membership()
            .verify(&mesh(), &key(3), now(), &revoked)
            .unwrap_err();
        let node = *revoked.iter().next().unwrap().node();
        assert_eq!(
            error,
            MembershipError::Revoked {
                node: NodeId::of_key(&node)
            }
        );
    }
    assert!(
        membership()
            .verify(&mesh(), &key(3), now(), &set([by_root(4, 0)]))
            .is_ok()
    );
}

#[test]
fn no_issuer_puts_out_who_holds_the_root_key() {
    let every = Terms {
        rights: Rights::all(),
        ..terms(&[], now().after(DAY))
    };
    let holder = Issuer::root(&root()).issue(&key(3), &every, now()).unwrap();
    let judged = |revoked: &Revocations| holder.verify(&mesh(), &key(3), now(), revoked);
    let by_issuer = set([by_issuer(3, 0)]);
    // It is known all the same, and passed on.
    assert!(by_issuer.contains(&key(3)));
    assert!(judged(&by_issuer).unwrap().holds_root());
    let by_root = judged(&set([by_root(3, 0)]));
    assert!(
        matches!(by_root, Err(MembershipError::Revoked { .. })),
        "{by_root:?}"
    );
}

#[test]
fn only_the_root_key_and_those_with_the_right_revoke() {
    let plain = Issuer::root(&root())
        .issue(&key(4), &terms(&["issue"], now().after(DAY)), now())
        .unwrap();
    let plain = Issuer::node(&mesh(), &[4; 32], &plain, now(), &nobody()).unwrap();
    assert!(matches!(
        plain.revoke(&key(3), now()),
        Err(MembershipError::NotAnIssuer {
            right: Right::Revoke,
            ..
        })
    ));
    assert!(matches!(
        issuer().revoke(&key(3), now().after(31 * DAY)),
        Err(MembershipError::Expired { .. })
    ));
    assert!(issuer().revoke(&key(3), UnixTime::from_seconds(0)).is_err());

    // What was signed for another mesh, and what was bent.
    let other = RootKey::from_seed(&[9; 32]);
    let foreign = Issuer::root(&other).revoke(&key(3), now()).unwrap();
    assert!(nobody().add(foreign).is_err());
    let bytes = set([by_root(3, 0), by_issuer(4, 0)]).encode();
    for at in (0..bytes.len()).step_by(7) {
        let mut bent = bytes.clone();
        bent[at] ^= 1;
        let mut revoked = nobody();
        assert!(revoked.merge(&bent, 0).is_err(), "byte {at}");
        assert_eq!(revoked, nobody());
    }
}

#[test]
fn there_is_a_limit() {
    let long = vec![0; Revocations::MAX_BYTES + 1];
    assert!(matches!(
        nobody().merge(&long, 0),
        Err(MembershipError::TooLong { .. })
    ));
}

#[test]
fn of_two_statements_all_nodes_keep_the_same() {
    let kept = |one: &Revocation, two: &Revocation| {
        let (forth, back) = (set([one.clone(), two.clone()]), set([two.clone(), one.clone()]));
        assert_eq!((&forth, forth.digest()), (&back, back.digest()));
        assert_eq!(forth.number(), 1);
        forth.iter().next().unwrap().clone()
    };
    assert_eq!(kept(&by_issuer(3, 0), &by_root(3, 5)), by_root(3, 5));
    assert_eq!(
        kept(&by_root(3, 9), &by_root(3, 5)).at(),
        now().after(Duration::from_secs(5))
    );
}

#[test]
fn a_list_from_before_what_its_sender_knew_is_an_old_one() {
    let (old, all) = (set(vec![by_root(3, 0)]), set(vec![by_root(3, 0), by_root(4, 1)]));
    let mut known = all.clone();
    assert_eq!(
        known.merge(&old.encode(), all.number()),
        Err(MembershipError::Old {
            field: "revocations",
            shown: 1,
            had: 2
        })
    );
    assert_eq!(known, all);
    assert_eq!(
        known.merge(&all.encode(), all.number()),
        Ok(Merged { shown: 2, new: 0 })
    );
}

fn any_revocations() -> impl Strategy<Value = Vec<Revocation>> {
    let one = (any::<bool>(), 3u8..8, 0u64..3).prop_map(|(root, node, at)| match root {
        true => by_root(node, at),
        false => by_issuer(node, at),
    });
    prop::collection::vec(one, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn merging_knows_no_order_and_no_repetition(ones in any_revocations(), twos in any_revocations()) {
        let (one, two) = (set(ones), set(twos));
        let (mut forth, mut back) = (one.clone(), two.clone());
        forth.merge(&two.encode(), two.number()).unwrap();
        back.merge(&one.encode(), 0).unwrap();
        prop_assert_eq!(&forth, &back);
        prop_assert_eq!(forth.digest(), back.digest());
        prop_assert_eq!(forth.digest(), karman_types::Digest::of(&forth.encode()));
        let again = forth.merge(&two.encode(), 0).unwrap();
        prop_assert_eq!((again.shown, again.new), (two.number(), 0));
        prop_assert_eq!(Revocations::decode(mesh(), &forth.encode()).unwrap(), forth.clone());
        for revocation in one.iter().chain(two.iter()) {
            prop_assert!(forth.contains(revocation.node()));
        }
    }
}
