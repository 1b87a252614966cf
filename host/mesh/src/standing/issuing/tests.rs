use super::*;
use crate::membership::{Kind, Member, Right, Signed};
use crate::wall_clock;
use bytes::Bytes;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_deputy_renews_what_it_could_have_given() {
    let root = RootKey::generate().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let signer = Issuer::root(&root);
    let now = clock();
    let key = store.node_key().public();
    let own = terms(&["issue", "call:*"], now.after(10 * HOUR));
    let word = signer.invite(&own, now.after(HOUR), Some(&key), Vec::new(), now);
    let deputy = Standing::open(store, Tier::Fog, Some(word.unwrap()), None).unwrap();
    assert!(deputy.is_issuer() && !deputy.holds_root());

    let member = *RootKey::from_seed(&[3; 32]).public().as_bytes();
    let renewed = |rights: &[&str], from: UnixTime, to| {
        let before = signer.issue(&member, &terms(rights, to), from).unwrap();
        deputy.renew(&before, &member).unwrap()
    };
    let earlier = UnixTime::from_seconds(now.seconds() - 3600);
    let next = renewed(&["call:*"], earlier, now.after(HOUR / 4)).unwrap();
    let next = deputy.verify(&next, &member).unwrap();
    assert_eq!(next.issuer, Some(key));
    assert!(next.not_after >= now.after(HOUR));
    // The holder of the root key may yet.
    assert!(renewed(&["call:*"], earlier, now.after(HOUR / 2)).is_none());
    // It is early; it has not the right, or not the time: the holder of the root key may.
    assert!(renewed(&["call:*"], now, now.after(HOUR)).is_none());
    assert!(renewed(&["call:*", "deploy:*"], earlier, now.after(HOUR / 4)).is_none());
    let long_ago = UnixTime::from_seconds(now.seconds() - 20 * 3600);
    assert!(renewed(&["call:*"], long_ago, now.after(HOUR)).is_none());
}

/// The keys of this many nodes.
fn nodes<const N: usize>() -> [[u8; 32]; N] {
    std::array::from_fn(|_| *RootKey::generate().unwrap().public().as_bytes())
}

fn terms(rights: &[&str], not_after: UnixTime) -> Terms {
    Terms {
        rights: rights
            .iter()
            .map(|right| right.parse::<Right>().unwrap())
            .collect(),
        ..Terms::usual(Tier::Fog, not_after)
    }
}

/// An issuer by the word of this one, for ten hours from then.
fn deputy_of(signer: &Issuer, from: UnixTime) -> ([u8; 32], Issuer) {
    let seed = *RootKey::generate().unwrap().seed();
    let key = *RootKey::from_seed(&seed).public().as_bytes();
    let own = signer.issue(
        &key,
        &terms(&["issue", "revoke", "call:*"], from.after(10 * HOUR)),
        from,
    );
    let nobody = Revocations::new(signer.mesh());
    (
        key,
        Issuer::node(&signer.mesh(), &seed, &own.unwrap(), from, &nobody).unwrap(),
    )
}

/// The standing of the node that holds this root key.
fn holder(folder: &std::path::Path, root: &RootKey) -> Standing {
    let keys = karman_store::NodeKeys::open(folder).unwrap();
    keys.keep_mesh_root(root.seed()).unwrap();
    let store = Store::open(folder).unwrap();
    Standing::open(store, Tier::Cloud, None, Some(Issuer::root(root))).unwrap()
}

#[test]
fn a_deputy_renews_its_own_members_for_as_long_as_it_is_one_itself() {
    let (root, folder) = (RootKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(folder.path()).unwrap();
    let (signer, key, now) = (Issuer::root(&root), store.node_key().public(), clock());
    let ago = |hours: u64| UnixTime::from_seconds(now.seconds() - hours * 3600);
    let own = terms(&["issue", "call:*"], now.after(10 * HOUR));
    let word = signer.invite(&own, now.after(HOUR), Some(&key), Vec::new(), ago(20));
    let deputy = Standing::open(store, Tier::Fog, Some(word.unwrap()), None).unwrap();
    let [member] = nodes();
    let lasts = |from: u64, hours: u32| {
        let given = terms(&["call:*"], now.after(hours * HOUR));
        let before = deputy
            .issuer()
            .unwrap()
            .issue(&member, &given, ago(from))
            .unwrap();
        let next = deputy.renew(&before, &member).unwrap()?;
        let next = deputy.verify(&next, &member).unwrap();
        Some((next.not_after.seconds() - now.seconds()) / 3600)
    };
    assert_eq!(lasts(6, 2), Some(8));
    assert_eq!(lasts(10, 5), Some(10));
    // It would end no later, or be much shorter while there is time.
    assert_eq!(lasts(10, 10), None);
    assert_eq!(lasts(14, 8), None);
    assert_eq!(lasts(19, 4), Some(10));
}

#[test]
fn a_revocation_that_is_not_kept_does_not_count() {
    let (root, folder) = (RootKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let (standing, [node]) = (holder(folder.path(), &root), nodes());
    let revocation = Issuer::root(&root).revoke(&node, clock()).unwrap();
    let mut roots = standing.roots.write();
    let refuses = |_: &Roots| Err(GateError::Store("the disk is full".into()));
    roots.exclude(revocation.clone(), refuses).unwrap_err();
    assert!(!roots.revoked.contains(&node));
    roots.exclude(revocation, |_: &Roots| Ok(())).unwrap();
    assert!(roots.revoked.contains(&node));
}

#[test]
fn the_holder_of_the_root_key_leaves_a_deputy_its_members() {
    let (root, folder) = (RootKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let (signer, standing) = (Issuer::root(&root), holder(folder.path(), &root));
    let now = clock();
    let earlier = UnixTime::from_seconds(now.seconds() - 3600);
    let [member, own] = nodes();
    let (key, deputy) = deputy_of(&signer, earlier);
    let is_renewed = |by: &Issuer, node: &[u8; 32]| {
        let given = by.issue(node, &terms(&["call:*"], now.after(HOUR / 2)), earlier);
        standing.renew(&given.unwrap(), node).unwrap().is_some()
    };
    assert!(is_renewed(&signer, &own));
    assert!(!is_renewed(&deputy, &member));
    // So that it goes with the deputy.
    let given = deputy
        .issue(&member, &terms(&["call:*"], now.after(HOUR)), now)
        .unwrap();
    standing.verify(&given, &member).unwrap();
    standing.revoke(&key).unwrap();
    assert!(standing.verify(&given, &member).is_err());
}

#[test]
fn with_an_issuer_those_are_out_whom_it_let_in_under_the_root_key_before() {
    let (root, folder) = (RootKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let standing = holder(folder.path(), &root);
    let now = clock();
    let (key, deputy) = deputy_of(&Issuer::root(&root), now);
    let seed = *RootKey::generate().unwrap().seed();
    let node = *RootKey::from_seed(&seed).public().as_bytes();
    let given = deputy
        .issue(&node, &terms(&["call:*"], now.after(HOUR)), now)
        .unwrap();
    let ticket = Signed::sign(Kind::Ticket, &seed, &given, Bytes::from_static(b"says"));

    let next = RootKey::generate().unwrap();
    let keys = karman_store::NodeKeys::open(folder.path()).unwrap();
    keys.keep_next_mesh_root(next.seed()).unwrap();
    standing.rotate(HOUR).unwrap();
    standing.verify(&given, &node).unwrap();
    standing.judge(Kind::Ticket, &ticket).unwrap();
    standing.revoke(&key).unwrap();
    let is_out = |error: MembershipError| matches!(error, MembershipError::Revoked { .. });
    assert!(is_out(standing.verify(&given, &node).unwrap_err()));
    assert!(is_out(standing.judge(Kind::Ticket, &ticket).unwrap_err()));
}

#[test]
fn what_a_deputy_signs_of_the_holder_of_the_root_key_does_not_count_and_is_not_carried_on() {
    let (root, folder) = (RootKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let (standing, now) = (holder(folder.path(), &root), clock());
    let (_, deputy) = deputy_of(&Issuer::root(&root), now);
    let [other] = nodes();
    for node in [&standing.key, &other] {
        let revocation = deputy.revoke(node, now).unwrap();
        standing.roots.write().revoked.add(revocation).unwrap();
    }
    assert!(standing.own().is_some());
    let next = RootKey::generate().unwrap();
    let keys = karman_store::NodeKeys::open(folder.path()).unwrap();
    keys.keep_next_mesh_root(next.seed()).unwrap();
    standing.rotate(HOUR).unwrap();
    assert!(standing.own().is_some());
    let roots = standing.roots.read();
    assert!(roots.revoked.contains(&other) && !roots.revoked.contains(&standing.key));
}

#[test]
fn a_member_takes_no_deputys_word_for_that_of_the_root_key_before_it_must() {
    let (root, folder) = (RootKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(folder.path()).unwrap();
    let (signer, key, now) = (Issuer::root(&root), store.node_key().public(), clock());
    let lasts = |hours: u32| terms(&["call:*"], now.after(hours * HOUR));
    let word = signer.invite(&lasts(2), now.after(HOUR), Some(&key), Vec::new(), now);
    let standing = Standing::open(store, Tier::Fog, Some(word.unwrap()), None).unwrap();
    let (by, deputy) = deputy_of(&signer, now);
    let by_deputy = || deputy.issue(&key, &lasts(3), now).unwrap();
    standing.granted(by_deputy()).unwrap();
    assert_eq!(standing.own().unwrap().issuer, None);
    let long_ago = UnixTime::from_seconds(now.seconds() - 10 * 3600);
    standing
        .keep(signer.issue(&key, &lasts(1), long_ago).unwrap())
        .unwrap();
    standing.granted(by_deputy()).unwrap();
    assert_eq!(standing.own().unwrap().issuer, Some(by));
    // From then on only that one is asked to renew it.
    let asks = |key| {
        let own = standing.own().unwrap();
        let rights = terms(&["issue"], now).rights;
        standing.may_be_renewed_by(&Member { key, rights, ..own })
    };
    assert!(asks(by) && !asks(nodes::<1>()[0]));
}

#[test]
fn a_charter_of_a_revoked_issuer_is_refused_and_none_has_the_last_word_but_the_present_root_keys() {
    let (root, folder) = (RootKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let standing = holder(folder.path(), &root);
    let (signer, now, keepers) = (Issuer::root(&root), clock(), nodes::<3>());
    let (key, deputy) = deputy_of(&signer, now);
    let by = |issuer: &Issuer, number: Option<u64>| {
        let before = number.map(|number| {
            let first = signer.charter(&keepers, None, now).unwrap();
            first.numbered(number)
        });
        issuer.charter(&keepers, before.as_ref(), now)
    };
    let read = |charter: &Charter| standing.charter_of(&charter.encode());
    let named = by(&deputy, None).unwrap();
    assert_eq!(read(&named).unwrap().issuer(), Some(&key));
    assert!(by(&deputy, Some(1 << 32)).is_err());
    let last = by(&signer, Some(1 << 32)).unwrap();
    assert_eq!(read(&last).unwrap().number(), (1 << 32) + 1);

    let next = RootKey::generate().unwrap();
    let keys = karman_store::NodeKeys::open(folder.path()).unwrap();
    keys.keep_next_mesh_root(next.seed()).unwrap();
    standing.rotate(HOUR).unwrap();
    read(&named).unwrap();
    read(&last).unwrap_err();
    standing.known_charter(&last.encode()).unwrap_err();
    standing.revoke(&key).unwrap();
    let refused = read(&named).unwrap_err();
    assert!(matches!(refused, MembershipError::Revoked { .. }), "{refused}");
}

#[test]
fn the_holder_of_the_root_key_renews_itself_when_that_is_due() {
    let (root, folder) = (RootKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let (signer, standing) = (Issuer::root(&root), holder(folder.path(), &root));
    let now = clock().seconds();
    let renewed = |days_ago: u64, days: u64| {
        let [from, to] = [now - days_ago * 86_400, now - days_ago * 86_400 + days * 86_400];
        let given = terms(&["call:*"], UnixTime::from_seconds(to));
        let own = signer.issue(&standing.key, &given, UnixTime::from_seconds(from));
        standing.keep(own.unwrap()).unwrap();
        standing.renew_itself().unwrap();
        standing.own().is_some_and(|own| own.rights == Rights::all())
    };
    assert!(!renewed(100, 365));
    assert!(renewed(200, 365));
    // Its clock has leapt.
    assert!(renewed(400, 365));
}

fn clock() -> UnixTime {
    UnixTime::from_seconds(wall_clock().as_secs())
}
