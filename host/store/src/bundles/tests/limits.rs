//! What bundles may take, and which make room.

use super::*;

#[test]
fn what_goes_over_the_quota_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let limits = StoreLimits {
        bundles: ByteSize(10),
        ..StoreLimits::default()
    };
    let store = Store::open_with(dir.path(), limits).unwrap();
    let [first, second] = ["1234567", "89abcdef"].map(Bytes::from);
    store.bundles().keep(&bundle(&first, 1, 1_000), &first).unwrap();
    let refused = store
        .bundles()
        .keep(&bundle(&second, 2, 1_000), &second)
        .unwrap_err();
    assert!(
        matches!(refused, StoreError::Limit { field: "bundles", .. }),
        "{refused}"
    );
    assert_eq!(files(&store), 1);
    // Nothing has changed; what takes its place fits.
    let state = || store.bundles().get(&Digest::of(&first)).unwrap().unwrap().state;
    let long = Bytes::from_static(b"0123456789a");
    let order = order(b"asked");
    let answered = |bytes| {
        store
            .bundles()
            .answer((&Digest::of(&first), &order), &bundle(bytes, 1, 1_000), bytes)
    };
    assert!(answered(&long).is_err());
    assert_eq!((state(), files(&store)), (BundleState::Waiting, 1));
    assert!(store.bundles().must_be_new(&order).is_ok());
    assert!(answered(&second).unwrap());
    assert_eq!((state(), files(&store)), (BundleState::Delivered, 1));
    assert!(store.bundles().must_be_new(&order).is_err());
    let (first, second) = (second, first);
    let room = |bytes| store.bundles().has_room(bytes).unwrap();
    assert_eq!((room(2), room(3)), (true, false));
    assert!(store.bundles().withdraw(&Digest::of(&first)).unwrap());
    assert!(!store.bundles().withdraw(&Digest::of(&first)).unwrap());
    assert!(!store.bundles().withdraw(&Digest::of(&second)).unwrap());
    assert_eq!((files(&store), room(10), room(11)), (0, true, false));
}

#[test]
fn those_that_have_ended_take_no_room_and_those_of_others_are_forgotten_first() {
    let dir = tempfile::tempdir().unwrap();
    let limits = StoreLimits {
        ended_bundles: 2,
        ..StoreLimits::default()
    };
    let store = Store::open_with(dir.path(), limits).unwrap();
    let all = ["ours", "soon", "later", "last"].map(Bytes::from);
    let (to, at_ms) = (NodeId::of_key(b"c"), 7);
    let known = |bytes: &Bytes| store.bundles().get(&Digest::of(bytes)).unwrap().is_some();
    for (bytes, expires_ms) in all.iter().zip([1_000, 2_000, 3_000, 4_000]) {
        let mut kept = bundle(bytes, 1, expires_ms);
        if bytes == "ours" {
            kept.source = store.node_key().id();
        }
        assert!(store.bundles().keep(&kept, bytes).unwrap());
        let passed = BundleState::Passed { to, at_ms };
        assert!(store.bundles().leave(&kept.digest, passed).unwrap());
    }
    assert_eq!(all.each_ref().map(known), [true, false, false, true]);
    assert_eq!((store.bundles().list().unwrap().len(), files(&store)), (2, 0));
    // An outcome is noted, and what was forgotten would be taken again.
    store
        .bundles()
        .set(&Digest::of(&all[0]), BundleState::Delivered)
        .unwrap();
    assert!(store.bundles().keep(&bundle(&all[1], 1, 2_000), &all[1]).unwrap());
    assert_eq!(store.bundles().waiting().unwrap().len(), 1);
    assert_eq!(all.each_ref().map(known), [true, true, false, true]);
}

#[test]
fn what_may_still_be_answered_is_remembered_before_what_has_been() {
    let dir = tempfile::tempdir().unwrap();
    let limits = StoreLimits {
        ended_bundles: 1,
        ..StoreLimits::default()
    };
    let store = Store::open_with(dir.path(), limits).unwrap();
    let all = ["asks", "answered", "later"].map(Bytes::from);
    let to = NodeId::of_key(b"b");
    let known = |bytes: &Bytes| store.bundles().get(&Digest::of(bytes)).unwrap().is_some();
    let delivered = BundleState::Delivered;
    let passed = BundleState::Passed { to, at_ms: 7 };
    let states = [passed.clone(), delivered.clone(), passed];
    for ((bytes, expires_ms), state) in all.iter().zip([1_000, 2_000, 3_000]).zip(states) {
        let kept = Bundle {
            source: store.node_key().id(),
            ..bundle(bytes, 1, expires_ms)
        };
        assert!(store.bundles().keep(&kept, bytes).unwrap());
        if bytes == "later" {
            // The answer to the first has come meanwhile.
            assert_eq!(all.each_ref().map(known), [true, false, true]);
            store
                .bundles()
                .set(&Digest::of(&all[0]), delivered.clone())
                .unwrap();
        }
        store.bundles().set(&kept.digest, state).unwrap();
    }
    assert_eq!(all.each_ref().map(known), [false, false, true]);
}

#[test]
fn who_floods_a_node_with_bundles_pushes_out_nothing_that_others_brought() {
    let dir = tempfile::tempdir().unwrap();
    let limits = StoreLimits {
        ended_bundles: 6,
        ..StoreLimits::default()
    };
    let store = Store::open_with(dir.path(), limits).unwrap();
    let here = store.node_key().id();
    let [honest, floods] = [b"honest", b"floods"].map(|key| Some(NodeId::of_key(key)));
    let ends = |text: String, brought_by, source, expires_ms| {
        let bytes = Bytes::from(text);
        let kept = Bundle {
            brought_by,
            source,
            ..bundle(&bytes, 1, expires_ms)
        };
        assert!(store.bundles().keep(&kept, &bytes).unwrap());
        let (to, at_ms) = (NodeId::of_key(b"c"), 7);
        let passed = BundleState::Passed { to, at_ms };
        assert!(store.bundles().leave(&kept.digest, passed).unwrap());
        kept.digest
    };
    let other = NodeId::of_key(b"a");
    let stay = [
        ends("own".into(), None, here, 1_000),
        ends("first".into(), honest, other, 1_000),
        ends("second".into(), honest, other, 2_000),
    ];
    // Neither a later time nor the name of this node on them helps them.
    let flood: Vec<Digest> = (0..20u64)
        .map(|number| ends(format!("flood {number}"), floods, here, 9_000 + number))
        .collect();
    let known = |digest: &Digest| store.bundles().get(digest).unwrap().is_some();
    assert!(stay.iter().all(known));
    let (before, last) = flood.split_at(17);
    assert!(last.iter().all(known) && !before.iter().any(known));
    // What is forgotten in time takes no part in it any more.
    assert_eq!(store.bundles().expire(100_000_000).unwrap(), []);
    assert_eq!(store.bundles().list().unwrap(), []);
    let again: Vec<Digest> = (0..7u64)
        .map(|number| {
            let by = if number < 4 { honest } else { floods };
            ends(format!("again {number}"), by, other, number)
        })
        .collect();
    assert!(!known(&again[0]) && again[1..].iter().all(known));
}

#[test]
fn one_member_leaves_room_for_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let limits = || StoreLimits {
        bundles: ByteSize(100),
        bundles_per_member: ByteSize(10),
        waiting_per_member: 2,
        ..StoreLimits::default()
    };
    let store = Store::open_with(dir.path(), limits()).unwrap();
    let [one, other] = [b"one", b"two"].map(|key| NodeId::of_key(key));
    let brings = |store: &Store, by, text: &'static str| {
        let bytes = Bytes::from_static(text.as_bytes());
        let kept = Bundle {
            brought_by: by,
            ..bundle(&bytes, 1, 1_000)
        };
        match store.bundles().keep(&kept, &bytes) {
            Err(StoreError::Limit { field, .. }) => Err(field),
            kept => Ok(kept.unwrap()),
        }
    };
    assert_eq!(brings(&store, Some(one), "12345678"), Ok(true));
    assert_eq!(brings(&store, Some(one), "abc"), Err("bundles-per-member"));
    assert_eq!(brings(&store, Some(one), "1"), Ok(true));
    assert_eq!(brings(&store, Some(one), "2"), Err("waiting-per-member"));
    assert_eq!(brings(&store, Some(one), "1"), Ok(false), "it is known");
    // It is told before it sends the bytes, and others have their room.
    assert!(store.bundles().must_have_room(Some(one), 1).is_err());
    assert!(store.bundles().must_have_room(Some(other), 10).is_ok());
    assert!(store.bundles().must_have_room(Some(other), 11).is_err());
    assert_eq!(brings(&store, Some(other), "abcdefgh"), Ok(true));
    assert_eq!(brings(&store, None, "what this node makes itself"), Ok(true));
    // What has ended makes room, and what waits counts after a restart.
    store
        .bundles()
        .set(&Digest::of(b"12345678"), BundleState::Delivered)
        .unwrap();
    assert_eq!(brings(&store, Some(one), "3"), Ok(true));
    drop(store);
    let store = Store::open_with(dir.path(), limits()).unwrap();
    assert_eq!(brings(&store, Some(one), "4"), Err("waiting-per-member"));
    assert_eq!(store.bundles().expire(2_000).unwrap().len(), 4);
    assert_eq!(brings(&store, Some(one), "5"), Ok(true));
}
