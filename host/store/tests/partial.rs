//! Blobs that come in slices, in any order, over crashes, from peers that lie.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use bytes::Bytes;
use karman_store::{Downgrade, GROUP, NewPlugin, PutError, Slices, Store, StoreError, StoreLimits};
use karman_types::{ByteSize, Digest, World};
use proptest::prelude::*;
use std::fs;
use std::sync::Barrier;

fn bytes(length: usize) -> Bytes {
    (0..length)
        .map(|at| (at * 31 % 251) as u8)
        .collect::<Vec<u8>>()
        .into()
}

fn files(store: &Store, folder: &str) -> usize {
    fs::read_dir(store.dir().join(folder)).unwrap().count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_slices_in_any_order_make_the_whole(
        length in 0usize..200_000,
        cuts in proptest::collection::vec((0u64..14, 1u64..6), 0..12),
        reopen in 0usize..12,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let whole = Slices::of(bytes(length));
        let groups = (length as u64).div_ceil(GROUP).max(1);
        let mut partial = store.blobs().receive(whole.digest(), whole.size()).unwrap();
        for (at, (start, count)) in cuts.into_iter().enumerate() {
            if at == reopen {
                let verified = partial.verified();
                drop(partial);
                partial = store.blobs().receive(whole.digest(), whole.size()).unwrap();
                prop_assert_eq!(partial.verified(), verified);
            }
            if start < groups {
                let run = start..(start + count).min(groups);
                partial.put(run.clone(), &whole.slice(run).unwrap()).unwrap();
            }
        }
        for run in partial.missing() {
            partial.put(run.clone(), &whole.slice(run).unwrap()).unwrap();
        }
        prop_assert_eq!(partial.verified(), length as u64);
        prop_assert_eq!(partial.read().unwrap(), bytes(length));
    }

    /// Whatever is changed in a slice, nothing that does not belong to the blob is taken.
    #[test]
    fn no_bit_of_a_slice_can_be_changed(at in 0usize..70_000, bit in 0u8..8) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let whole = Slices::of(bytes(70_000));
        let mut partial = store.blobs().receive(whole.digest(), whole.size()).unwrap();
        let mut slice = whole.slice(0..5).unwrap().to_vec();
        slice[at] ^= 1 << bit;
        let refused = matches!(partial.put(0..5, &slice), Err(PutError::Corrupt { .. }));
        prop_assert!(refused);
        for run in partial.missing() {
            partial.put(run.clone(), &whole.slice(run).unwrap()).unwrap();
        }
        prop_assert_eq!(partial.read().unwrap(), bytes(70_000));
    }

    #[test]
    fn any_bytes_are_no_slice(garbage in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let digest = Digest::of(b"something else");
        let mut partial = store.blobs().receive(digest, 100_000).unwrap();
        prop_assert!(partial.put(0..2, &garbage).is_err());
        prop_assert_eq!(partial.verified(), 0);
    }
}

#[test]
fn what_came_before_the_first_bad_group_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let whole = Slices::of(bytes(10 * GROUP as usize));
    let mut partial = store.blobs().receive(whole.digest(), whole.size()).unwrap();
    let mut slice = whole.slice(0..10).unwrap().to_vec();
    *slice.last_mut().unwrap() ^= 1;
    let refused = partial.put(0..10, &slice).unwrap_err();
    assert!(matches!(refused, PutError::Corrupt { group: 9, .. }), "{refused}");
    assert_eq!(partial.missing(), std::slice::from_ref(&(9..10)));
}

#[test]
fn what_the_disk_lost_is_missing_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let whole = Slices::of(bytes(10 * GROUP as usize));
    let mut partial = store.blobs().receive(whole.digest(), whole.size()).unwrap();
    partial.put(0..10, &whole.slice(0..10).unwrap()).unwrap();
    drop(partial);
    let path = dir.path().join("partial").join(whole.digest().to_string());
    let mut on_disk = fs::read(&path).unwrap();
    on_disk[3 * GROUP as usize..4 * GROUP as usize].fill(0);
    fs::write(&path, on_disk).unwrap();
    let partial = store.blobs().receive(whole.digest(), whole.size()).unwrap();
    assert_eq!(partial.missing(), std::slice::from_ref(&(3..4)));
}

#[test]
fn a_blob_is_received_once_at_a_time_and_within_a_quota() {
    let dir = tempfile::tempdir().unwrap();
    let limits = StoreLimits {
        partial: ByteSize(1_000_000),
        ..StoreLimits::default()
    };
    let store = Store::open_with(dir.path(), limits).unwrap();
    let [first, second, third] = [1, 2, 3].map(|n: u8| Digest::of(&[n]));
    let held = store.blobs().receive(first, 600_000).unwrap();
    let again = store.blobs().receive(first, 600_000).unwrap_err();
    assert!(matches!(again, StoreError::Receiving { .. }), "{again}");
    // What is being received is not given up for another, what nobody receives is.
    let full = store.blobs().receive(second, 600_000).unwrap_err();
    assert!(
        matches!(full, StoreError::Limit { field: "partial", .. }),
        "{full}"
    );
    drop(held);
    let second = store.blobs().receive(second, 600_000).unwrap();
    assert_eq!(files(&store, "partial"), 2);
    assert!(store.blobs().receive(third, 2_000_000).is_err());
    second.discard();
    assert_eq!(files(&store, "partial"), 0);
}

#[test]
fn those_that_begin_at_once_have_room_together() {
    let dir = tempfile::tempdir().unwrap();
    let limits = StoreLimits {
        partial: ByteSize(1_000_000),
        ..StoreLimits::default()
    };
    let store = Store::open_with(dir.path(), limits).unwrap();
    let begin = Barrier::new(16);
    let receive = &|n: u8| {
        begin.wait();
        store.blobs().receive(Digest::of(&[n]), 300_000)
    };
    let received: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|n| scope.spawn(move || receive(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(received.iter().filter(|begun| begun.is_ok()).count(), 3);
}

#[test]
fn a_plugin_that_was_received_is_not_written_twice() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let component = bytes(100_000);
    let whole = Slices::of(component.clone());
    let mut partial = store.blobs().receive(whole.digest(), whole.size()).unwrap();
    partial.put(0..7, &whole.slice(0..7).unwrap()).unwrap();
    let new = NewPlugin {
        identity: "ed25519:7Kq4/classify",
        name: "classify",
        version: "0.1.0".parse().unwrap(),
        world: World::Task,
        publisher: None,
        component: &component,
    };
    store.plugins().install(&new, Downgrade::Refuse).unwrap();
    assert_eq!((files(&store, "partial"), files(&store, "blobs")), (0, 1));
    assert_eq!(store.plugins().component(new.identity).unwrap(), component);
    // And goes out again in the same slices.
    let slices = store.blobs().slices(&whole.digest()).unwrap();
    assert_eq!(slices.slice(2..5).unwrap(), whole.slice(2..5).unwrap());
}

#[test]
fn a_file_that_the_disk_changed_is_not_given_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("blobs");
    let store = Store::open(dir.path()).unwrap();
    let digest = Digest::of(b"gone");
    assert!(matches!(
        store.blobs().slices(&digest),
        Err(StoreError::MissingBlob { .. })
    ));
    fs::write(path.join(digest.to_string()), b"changed").unwrap();
    assert!(matches!(
        store.blobs().slices(&digest),
        Err(StoreError::CorruptBlob { .. })
    ));
}
