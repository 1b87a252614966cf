//! What has ended in a store that says of some no longer when it is forgotten.

use super::*;
use crate::tables::BROUGHT;

/// Seven of which a member has brought some, all of them delivered.
fn ended(store: &Store) -> Vec<Digest> {
    let by = NodeId::of_key(b"member");
    let ends = |number: u64| {
        let bytes = Bytes::from(format!("bundle {number}"));
        let kept = Bundle {
            brought_by: number.is_multiple_of(2).then_some(by),
            ..bundle(&bytes, 1, 1_000 + number)
        };
        assert!(store.bundles().keep(&kept, &bytes).unwrap());
        store.bundles().set(&kept.digest, BundleState::Delivered).unwrap();
        kept.digest
    };
    (0..7).map(ends).collect()
}

/// How many have ended, of how many it is known when they are forgotten, and how many of these a member has brought.
fn rows(store: &Store) -> (u64, u64, u64) {
    let txn = store.tables().read().unwrap();
    let brought = txn.open_multimap_table(BROUGHT).unwrap();
    (
        txn.open_table(ENDED).unwrap().len().unwrap(),
        txn.open_table(FORGET).unwrap().len().unwrap(),
        brought.len().unwrap(),
    )
}

/// Loses when those are forgotten that go first, `lost` of them.
fn lose(store: &Store, lost: usize) {
    let lose = store.tables().write(|txn| {
        let mut forget = txn.open_table(FORGET)?;
        for _ in 0..lost {
            forget.pop_first()?;
        }
        Ok(())
    });
    lose.unwrap();
}

#[test]
fn what_nothing_says_the_end_of_is_forgotten_after_a_restart_as_ever() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let all = ended(&store);
    let whole = rows(&store);
    assert_eq!(whole, (7, 7, 4));
    lose(&store, 3);
    store.bundles().expire(1_000_000_000).unwrap();
    assert_eq!(rows(&store).0, 3, "nothing says when these are forgotten");
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!((rows(&store).0, rows(&store).1), (3, 3));
    store.bundles().expire(1_000_000_000).unwrap();
    assert_eq!(rows(&store), (0, 0, 0));
    for digest in &all {
        assert!(store.bundles().get(digest).unwrap().is_none());
    }
}

#[test]
fn what_nothing_says_the_end_of_counts_again_where_too_many_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    ended(&store);
    lose(&store, 5);
    drop(store);
    let few = StoreLimits {
        ended_bundles: 4,
        ..StoreLimits::default()
    };
    let store = Store::open_with(dir.path(), few).unwrap();
    let (ended, noted, _) = rows(&store);
    assert_eq!((ended, noted), (4, 4));
}
