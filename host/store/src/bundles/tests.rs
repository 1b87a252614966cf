mod limits;
mod mended;
mod orders;

use super::*;
use crate::StoreLimits;
use karman_types::ByteSize;

pub(crate) fn bundle(bytes: &Bytes, priority: u8, expires_ms: u64) -> Bundle {
    Bundle {
        digest: Digest::of(bytes),
        label: String::new(),
        source: NodeId::of_key(b"a"),
        destination: NodeId::of_key(b"b"),
        brought_by: None,
        size: bytes.len() as u64,
        priority,
        created_ms: 0,
        expires_ms,
        state: BundleState::Waiting,
        refused_by: Vec::new(),
    }
}

fn order(says: &[u8]) -> BundleOrder {
    BundleOrder {
        digest: Digest::of(says),
        by: NodeId::of_key(b"a"),
        good_until_ms: 1_000,
    }
}

fn files(store: &Store) -> usize {
    std::fs::read_dir(store.dir().join("blobs")).unwrap().count()
}

#[test]
fn a_bundle_stays_until_it_has_left_and_is_not_taken_twice() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let bytes = Bytes::from_static(b"sealed");
    let kept = bundle(&bytes, 1, 1_000);
    assert!(store.bundles().keep(&kept, &bytes).unwrap());
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.bundles().list().unwrap(), std::slice::from_ref(&kept));
    assert_eq!(store.blobs().read(&kept.digest).unwrap(), bytes);
    let to = NodeId::of_key(b"c");
    store.bundles().refused(&kept.digest, to).unwrap();
    assert_eq!(files(&store), 1);
    let passed = BundleState::Passed { to, at_ms: 7 };
    store.bundles().set(&kept.digest, passed.clone()).unwrap();
    assert_eq!(files(&store), 0);
    assert!(!store.bundles().keep(&kept, &bytes).unwrap());
    assert_eq!(store.bundles().get(&kept.digest).unwrap().unwrap().state, passed);
    assert_eq!(files(&store), 0);
}

#[test]
fn the_urgent_comes_first_and_the_late_goes() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let [late, urgent, soon] = ["late", "urgent", "soon"].map(Bytes::from);
    store.bundles().keep(&bundle(&late, 1, 9_000), &late).unwrap();
    store.bundles().keep(&bundle(&soon, 1, 1_000), &soon).unwrap();
    store.bundles().keep(&bundle(&urgent, 2, 9_000), &urgent).unwrap();
    let order: Vec<Digest> = store
        .bundles()
        .list()
        .unwrap()
        .iter()
        .map(|bundle| bundle.digest)
        .collect();
    assert_eq!(order, [&urgent, &soon, &late].map(|bytes| Digest::of(bytes)));
    assert_eq!(store.bundles().expire(1_000).unwrap(), []);
    assert_eq!(store.bundles().expire(1_001).unwrap(), [Digest::of(&soon)]);
    assert_eq!(files(&store), 2);
    // Known for another day, so that it is not taken again.
    assert!(!store.bundles().keep(&bundle(&soon, 1, 1_000), &soon).unwrap());
    store.bundles().expire(90_000_000).unwrap();
    assert_eq!(files(&store), 0);
    store.bundles().expire(900_000_000).unwrap();
    assert_eq!(store.bundles().list().unwrap(), []);
}

#[test]
fn what_was_called_back_has_not_left() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let [one, two] = ["one", "two"].map(Bytes::from);
    let to = NodeId::of_key(b"c");
    let passed = BundleState::Passed { to, at_ms: 7 };
    let state = |bytes: &Bytes| store.bundles().get(&Digest::of(bytes)).unwrap().unwrap().state;
    for bytes in [&one, &two] {
        store.bundles().keep(&bundle(bytes, 1, 1_000), bytes).unwrap();
    }
    assert!(store.bundles().withdraw(&Digest::of(&one)).unwrap());
    assert!(!store.bundles().leave(&Digest::of(&one), passed.clone()).unwrap());
    assert!(store.bundles().leave(&Digest::of(&two), passed.clone()).unwrap());
    assert!(!store.bundles().withdraw(&Digest::of(&two)).unwrap());
    assert_eq!((state(&one), state(&two)), (BundleState::Expired, passed));
    assert_eq!(files(&store), 0);
}

#[test]
fn what_has_never_left_is_forgotten_before_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let [back, left] = ["back", "left"].map(Bytes::from);
    let (to, at_ms) = (NodeId::of_key(b"c"), 7);
    for bytes in [&back, &left] {
        store
            .bundles()
            .keep(&bundle(bytes, 1, 90_000_000), bytes)
            .unwrap();
    }
    assert!(store.bundles().withdraw(&Digest::of(&back)).unwrap());
    let passed = BundleState::Passed { to, at_ms };
    assert!(store.bundles().leave(&Digest::of(&left), passed).unwrap());
    let known = |now_ms| {
        assert_eq!(store.bundles().expire(now_ms).unwrap(), []);
        let known = store.bundles().list().unwrap();
        known.iter().map(|bundle| bundle.digest).collect::<Vec<_>>()
    };
    assert_eq!(known(3_600_000).len(), 2);
    assert_eq!(known(3_600_001), [Digest::of(&left)]);
}

/// What a damaged store remembers of bundles that it does not know.
#[test]
fn a_row_about_no_bundle_is_come_upon_once() {
    let dir = tempfile::tempdir().unwrap();
    let limits = StoreLimits {
        ended_bundles: 2,
        ..StoreLimits::default()
    };
    let store = Store::open_with(dir.path(), limits).unwrap();
    let by = NodeId::of_key(b"member");
    let ends = |text: &str, expires_ms| {
        let bytes = Bytes::from(text.to_owned());
        let kept = Bundle {
            brought_by: Some(by),
            ..bundle(&bytes, 1, expires_ms)
        };
        assert!(store.bundles().keep(&kept, &bytes).unwrap());
        store.bundles().set(&kept.digest, BundleState::Delivered).unwrap();
        kept.digest
    };
    let rows = || {
        let txn = store.tables().read().unwrap();
        let forget = txn.open_table(FORGET).unwrap().len().unwrap();
        let brought = txn.open_multimap_table(crate::tables::BROUGHT).unwrap();
        (forget, brought.len().unwrap())
    };
    let loses = |digest: &Digest| {
        let lost = store.tables().write(|txn| {
            txn.open_table(ENDED)?.remove(digest.to_string().as_str())?;
            Ok(())
        });
        lost.unwrap();
    };
    let lost = ends("lost", 1_000);
    loses(&lost);
    assert_eq!(rows(), (1, 1));
    assert_eq!(store.bundles().expire(100_000_000).unwrap(), []);
    assert_eq!(rows().0, 0, "it is not looked at again");
    // Where too many have ended such rows make room, and take none from the others.
    loses(&ends("lost too", 2_000));
    let known = |digest: &Digest| store.bundles().get(digest).unwrap().is_some();
    let all = ["one", "two", "three"].map(|text| ends(text, 5_000));
    assert_eq!(all.iter().filter(|&digest| known(digest)).count(), 2);
    assert_eq!(rows().0, 2);
    // One that waits anew is not touched by what is left of it.
    let bytes = Bytes::from_static(b"again");
    let again = ends("again", 6_000);
    loses(&again);
    assert!(
        store
            .bundles()
            .keep(&bundle(&bytes, 1, 900_000_000), &bytes)
            .unwrap()
    );
    store.bundles().expire(200_000_000).unwrap();
    assert_eq!((rows().0, store.bundles().waiting().unwrap().len()), (0, 1));
    assert_eq!(store.blobs().read(&again).unwrap(), bytes);
}

#[test]
fn a_clock_that_is_years_ahead_throws_nothing_away() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let bytes = Bytes::from_static(b"sealed");
    let seen = store.mesh().time_floor(0).unwrap();
    let kept = bundle(&bytes, 1, (seen + 60) * 1000);
    store.bundles().keep(&kept, &bytes).unwrap();
    let most = seen * 1000 + MOST_AHEAD.as_millis() as u64;
    assert_eq!(store.bundles().expire(most + 1).unwrap(), []);
    assert_eq!(store.bundles().waiting().unwrap(), [kept]);
    assert_eq!(store.bundles().expire(most).unwrap(), [Digest::of(&bytes)]);
}
