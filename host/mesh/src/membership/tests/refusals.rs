use super::super::token::Claims;
use super::*;
use biscuit_auth::{Algorithm, BiscuitBuilder, BlockBuilder, KeyPair, PrivateKey};

fn refused(membership: &Membership, key: [u8; 32], now: UnixTime) -> MembershipError {
    membership.verify(&mesh(), &key, now, &nobody()).unwrap_err()
}

fn claims(terms: Terms) -> Claims {
    Claims {
        mesh: mesh(),
        key: key(3),
        terms,
        issued: now(),
    }
}

fn pair(seed: u8) -> KeyPair {
    KeyPair::from(&PrivateKey::from_bytes(&[seed; 32], Algorithm::Ed25519).unwrap())
}

/// A membership whose token the key of this seed signed, whatever the issuer's code would say to it.
fn forged(claims: &Claims, seed: u8, issuer: Option<&Membership>) -> Membership {
    Membership {
        issuer: issuer.map(|issuer| issuer.token.clone()),
        token: claims.sign(&[seed; 32]).unwrap(),
    }
}

fn of_root(seed: u8, texts: &[&str]) -> Membership {
    let terms = terms(texts, now().after(30 * DAY));
    Issuer::root(&root()).issue(&key(seed), &terms, now()).unwrap()
}

#[test]
fn shown_by_another_node() {
    let error = refused(&membership(), key(4), now());
    assert!(matches!(error, MembershipError::WrongKey { .. }), "{error}");
}

#[test]
fn expired_also_by_the_floor_of_a_clock_that_starts_in_1970() {
    let end = now().after(7 * DAY);
    assert!(membership().verify(&mesh(), &key(3), end, &nobody()).is_ok());
    let late = end.after(Duration::from_secs(1));
    let error = MembershipError::Expired {
        not_after: end,
        now: late,
    };
    assert_eq!(refused(&membership(), key(3), late), error);
    assert!(error.to_string().contains("2027-01-22 08:00:00 UTC"), "{error}");

    // The clock alone would let it in, and says nothing against a membership from its future.
    let clock = UnixTime::from_seconds(30);
    assert!(membership().verify(&mesh(), &key(3), clock, &nobody()).is_ok());
    assert_eq!(refused(&membership(), key(3), clock.max(late)), error);
}

#[test]
fn the_token_itself_holds_the_checks() {
    // Any Biscuit verifier refuses, without our own comparisons.
    let foreign = || MembershipError::Used;
    let token = token::Token::read(&membership().token, &key(2), foreign()).unwrap();
    assert!(token.authorize(&key(3), now()).is_ok());
    assert!(token.authorize(&key(4), now()).is_err());
    assert!(token.authorize(&key(3), now().after(8 * DAY)).is_err());
}

#[test]
fn signed_for_another_mesh() {
    let other = RootKey::from_seed(&[9; 32]);
    let foreign = |membership: &Membership| {
        matches!(
            membership.verify(&other.public(), &key(3), now(), &Revocations::new(other.public())),
            Err(MembershipError::Foreign { .. })
        )
    };
    assert!(foreign(&membership()));
    assert!(foreign(&of_root(3, &["bucket-read:*"])));

    // The same node issues in both meshes; what it signed in one is shown with its token of the other.
    let there = Issuer::root(&other).issue(
        &key(2),
        &terms(&["issue", "call:*"], now().after(30 * DAY)),
        now(),
    );
    let mixed = Membership {
        issuer: Some(there.unwrap().token),
        token: membership().token,
    };
    assert!(foreign(&mixed));

    let invitation = Issuer::root(&other).invite(
        &Terms::usual(Tier::Edge, now().after(DAY)),
        now().after(DAY),
        None,
        Vec::new(),
        now(),
    );
    assert!(matches!(
        issuer().redeem(&invitation.unwrap(), &key(3), now(), &nobody()),
        Err(MembershipError::Foreign { .. })
    ));
}

#[test]
fn signed_by_nobody_who_may() {
    let wide = claims(terms(&["call:*"], now().after(DAY)));
    // By the node itself, by an issuer's neighbour, by a member that is no issuer.
    assert!(matches!(
        refused(&forged(&wide, 3, None), key(3), now()),
        MembershipError::Foreign { .. }
    ));
    let token_of_issuer = of_root(2, &["issue", "call:*"]);
    assert!(matches!(
        refused(&forged(&wide, 4, Some(&token_of_issuer)), key(3), now()),
        MembershipError::Malformed { .. }
    ));
    let plain = of_root(4, &["call:*", "revoke"]);
    assert!(matches!(
        refused(&forged(&wide, 4, Some(&plain)), key(3), now()),
        MembershipError::NotAnIssuer { .. }
    ));
    assert!(matches!(
        Issuer::node(&mesh(), &[3; 32], &membership(), now(), &nobody()),
        Err(MembershipError::NotAnIssuer { .. })
    ));
    // By one whom only an issuer made an issuer.
    let second = Membership {
        issuer: None,
        token: forged(&claims(terms(&["issue"], now().after(DAY))), 2, None).token,
    };
    assert!(matches!(
        refused(&forged(&wide, 3, Some(&second)), key(3), now()),
        MembershipError::Foreign { .. }
    ));
}

#[test]
fn an_issuer_goes_beyond_what_it_has() {
    let own = of_root(2, &["issue", "call:*", "bucket-read:*"]);
    for (rights, days) in [
        (&["deploy:*"][..], 1),
        (&["issue"], 1),
        (&["revoke"], 1),
        (&["call:*"], 31),
    ] {
        let terms = terms(rights, now().after(days * DAY));
        for error in [
            issuer().issue(&key(3), &terms, now()).unwrap_err(),
            issuer()
                .invite(&terms, now().after(DAY), None, Vec::new(), now())
                .unwrap_err(),
            refused(&forged(&claims(terms.clone()), 2, Some(&own)), key(3), now()),
        ] {
            assert!(
                matches!(error, MembershipError::BeyondIssuer { .. }),
                "{rights:?}: {error}"
            );
        }
    }
    // Nor what another could give.
    let wide = terms(&["deploy:*"], now().after(DAY));
    let by_root = Issuer::root(&root()).invite(&wide, now().after(DAY), None, Vec::new(), now());
    assert!(matches!(
        issuer().redeem(&by_root.unwrap(), &key(3), now(), &nobody()),
        Err(MembershipError::BeyondIssuer { .. })
    ));
}

#[test]
fn an_issuer_signs_as_if_it_had_been_one_before() {
    let own = of_root(2, &["issue", "call:*"]);
    let end = now().after(20 * DAY);
    let issued = |issued| {
        let claims = Claims {
            issued,
            ..claims(terms(&["call:*"], end))
        };
        let member = forged(&claims, 2, Some(&own)).verify(&mesh(), &key(3), now(), &nobody());
        let member = member.unwrap();
        (member.issued, member.life())
    };
    assert_eq!(issued(UnixTime::from_seconds(0)), (now(), 20 * DAY));
    assert_eq!(issued(now().after(DAY)), (now().after(DAY), 19 * DAY));
    assert_eq!(issued(UnixTime::MAX), (end, Duration::ZERO));
}

#[test]
fn an_issuer_whose_clock_is_behind_signs_from_when_it_was_let_in() {
    let end = now().after(20 * DAY);
    let behind = UnixTime::from_seconds(now().seconds() - 3600);
    let given = issuer().issue(&key(3), &terms(&["call:*"], end), behind).unwrap();
    let token = token::Token::read(&given.token, &key(2), MembershipError::Used).unwrap();
    assert_eq!(token.claims.issued, now());
}

#[test]
fn other_blocks_and_rules_cannot_widen() {
    let own = of_root(2, &["issue", "call:*", "bucket-read:*"]);
    let narrow = claims(terms(&["call:vision/*"], now().after(DAY)));
    let show = |token: Result<biscuit_auth::Biscuit, biscuit_auth::error::Token>| {
        let shown = Membership {
            issuer: Some(own.token.clone()),
            token: token.unwrap().to_vec().unwrap().into(),
        };
        shown.verify(&mesh(), &key(3), now(), &nobody())
    };
    let block = |code: &str| BlockBuilder::new().code(code).unwrap();
    let signed = |builder: BiscuitBuilder| builder.build(&pair(2));

    // An open token says what a sealed one says; ours are sealed, so that nobody can append.
    assert!(show(signed(narrow.block().unwrap())).is_ok());
    let sealed = biscuit_auth::Biscuit::from(&membership().token[..], pair(2).public()).unwrap();
    assert!(sealed.append(block("right(\"bucket-read:*\")")).is_err());

    let member = hex::encode(key(4));
    for code in [
        "right(\"bucket-read:*\")".to_owned(),
        format!("member(hex:{member})"),
        "not_after(2999-01-01T00:00:00Z)".to_owned(),
        "right($a) <- tier($a)".to_owned(),
        "check if false".to_owned(),
    ] {
        let appended = signed(narrow.block().unwrap()).and_then(|token| token.append(block(&code)));
        assert!(
            matches!(show(appended), Err(MembershipError::Malformed { .. })),
            "{code}"
        );
        // The same from an issuer that writes blocks of its own.
        let inside = signed(narrow.block().unwrap().merge(block(&code)));
        match show(inside) {
            Err(MembershipError::Malformed { .. }) => {}
            Ok(member) if code.starts_with("right(\"") => assert_eq!(member.rights.number(), 2),
            other => panic!("{code}: {other:?}"),
        }
    }
    // Without our checks it is no membership either.
    let bare = signed(BiscuitBuilder::new().code("tier(\"edge\")").unwrap());
    assert!(matches!(show(bare), Err(MembershipError::Malformed { .. })));
}

#[test]
fn invitations_that_are_over_or_for_another() {
    let given = terms(&["call:*"], now().after(2 * DAY));
    let invite = |node: Option<[u8; 32]>, expires| {
        let invitation = issuer().invite(&given, expires, node.as_ref(), Vec::new(), now());
        invitation.unwrap()
    };
    let redeem = |invitation: &Invitation, key, now, revoked: &Revocations| {
        let root = Issuer::root(&root());
        root.redeem(invitation, &key, now, revoked).unwrap_err()
    };
    let tomorrow = invite(None, now().after(DAY));
    let error = redeem(&tomorrow, key(3), now().after(2 * DAY), &nobody());
    assert!(matches!(error, MembershipError::Expired { .. }), "{error}");
    let endless = invite(None, UnixTime::MAX);
    let error = redeem(&endless, key(3), now().after(3 * DAY), &nobody());
    assert!(matches!(error, MembershipError::Expired { .. }), "{error}");
    let error = redeem(&invite(Some(key(3)), UnixTime::MAX), key(4), now(), &nobody());
    assert!(matches!(error, MembershipError::WrongKey { .. }), "{error}");
    // The node, or who invited it, is revoked.
    for node in [3, 2] {
        let mut revoked = nobody();
        revoked
            .add(Issuer::root(&root()).revoke(&key(node), now()).unwrap())
            .unwrap();
        let error = redeem(&tomorrow, key(3), now(), &revoked);
        assert!(matches!(error, MembershipError::Revoked { .. }), "{error}");
    }
}

#[test]
fn what_is_too_long() {
    let root = Issuer::root(&root());
    let too_long = |error: MembershipError| matches!(error, MembershipError::TooLong { .. });
    let many: Vec<_> = (0..=Rights::MAX).map(|n| format!("call:{n}")).collect();
    let many = terms(
        &many.iter().map(String::as_str).collect::<Vec<_>>(),
        now().after(DAY),
    );
    assert!(too_long(root.issue(&key(3), &many, now()).unwrap_err()));

    let long: Vec<_> = (0..Rights::MAX).map(|n| format!("call:{n:0>128}")).collect();
    let long = terms(
        &long.iter().map(String::as_str).collect::<Vec<_>>(),
        now().after(DAY),
    );
    assert!(too_long(root.issue(&key(3), &long, now()).unwrap_err()));
    assert!(too_long(
        root.invite(&long, now().after(DAY), None, Vec::new(), now())
            .unwrap_err()
    ));

    let given = terms(&[], now().after(DAY));
    for addresses in [vec![String::new(); 9], vec!["a".repeat(257)]] {
        let invitation = root.invite(&given, now().after(DAY), None, addresses, now());
        assert!(too_long(invitation.unwrap_err()));
    }
    assert!(too_long(
        Membership::decode(&vec![0; Membership::MAX_BYTES + 1]).unwrap_err()
    ));
    assert!(too_long("k".repeat(10_000).parse::<Invitation>().unwrap_err()));
    assert!(matches!(
        root.issue(&key(3), &given, now().after(2 * DAY)),
        Err(MembershipError::Expired { .. })
    ));
}
