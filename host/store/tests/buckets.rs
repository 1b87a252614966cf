//! Buckets against a plain map, and their bounds.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use karman_store::{Store, StoreError, StoreLimits};
use karman_types::ByteSize;
use proptest::prelude::*;
use std::collections::BTreeMap;

const QUOTA: u64 = 200;

fn small() -> StoreLimits {
    StoreLimits {
        key: ByteSize(8),
        value: ByteSize(64),
        bucket: ByteSize(QUOTA),
        quotas: [("wide".to_owned(), ByteSize(1000))].into(),
        buckets: 2,
        batch: 4,
        batch_bytes: ByteSize(128),
        ..StoreLimits::default()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Set(Vec<(String, Vec<u8>)>),
    Delete(Vec<String>),
    Increment(String, u64),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let key = || "[a-d]";
    let value = || {
        prop_oneof![
            "[0-9]{1,3}".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..60),
        ]
    };
    prop_oneof![
        4 => proptest::collection::vec((key(), value()), 0..4).prop_map(Op::Set),
        2 => proptest::collection::vec(key(), 0..4).prop_map(Op::Delete),
        2 => (key(), any::<u64>()).prop_map(|(key, delta)| Op::Increment(key, delta >> 40)),
        1 => Just(Op::Reopen),
    ]
}

fn bytes(map: &BTreeMap<String, Vec<u8>>) -> u64 {
    map.iter()
        .map(|(key, value)| (key.len() + value.len()) as u64)
        .sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_bucket_is_a_map(ops in proptest::collection::vec(op(), 1..24)) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open_with(dir.path(), small()).unwrap();
        let mut bucket = store.bucket("b").unwrap();
        let other = store.bucket("b2").unwrap();
        other.set("a", b"beside").unwrap();
        drop(other);
        let mut map: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut versions = BTreeMap::new();
        let mut newest = 0;
        for op in ops {
            let before = map.clone();
            match op {
                Op::Set(entries) => {
                    map.extend(entries.iter().cloned());
                    match bucket.set_many(&entries) {
                        Ok(()) => prop_assert!(bytes(&map) <= QUOTA || bytes(&map) <= bytes(&before)),
                        Err(StoreError::Full { bytes: needed, quota, .. }) => {
                            prop_assert_eq!((needed, quota), (bytes(&map), QUOTA));
                            map = before;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                Op::Delete(keys) => {
                    bucket.delete_many(&keys).unwrap();
                    map.retain(|key, _| !keys.contains(key));
                }
                Op::Increment(key, delta) => {
                    let number = map.get(&key).map_or(Some(0), |value| {
                        std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok())
                    });
                    match bucket.increment(&key, delta) {
                        Ok(sum) => {
                            prop_assert_eq!(Some(sum), number.map(|number| number + delta));
                            map.insert(key, sum.to_string().into_bytes());
                        }
                        Err(StoreError::Full { .. }) => {}
                        Err(StoreError::Increment { .. }) => prop_assert_eq!(number, None),
                        Err(error) => panic!("{error}"),
                    }
                }
                Op::Reopen => {
                    drop((bucket, store));
                    store = Store::open_with(dir.path(), small()).unwrap();
                    bucket = store.bucket("b").unwrap();
                }
            }
            let mut latest = newest;
            for key in ["a", "b", "c", "d"] {
                let found = bucket.get(key).unwrap();
                prop_assert_eq!(found.as_ref().map(|found| found.value.as_ref()), map.get(key).map(Vec::as_slice));
                prop_assert_eq!(bucket.exists(key).unwrap(), map.contains_key(key));
                // Unchanged values keep their version; a changed one has a version that nothing had before.
                if let Some(found) = found {
                    let unchanged = versions.insert(key, found.version) == Some(found.version);
                    prop_assert!(unchanged || found.version > newest);
                    latest = latest.max(found.version);
                }
            }
            newest = latest;
            let usage = bucket.usage().unwrap();
            prop_assert_eq!((usage.bytes, usage.entries), (bytes(&map), map.len() as u64));
            let mut keys = Vec::new();
            let mut cursor = None;
            loop {
                let page = bucket.keys(cursor, 2).unwrap();
                keys.extend(page.keys);
                cursor = page.next;
                if cursor.is_none() { break }
            }
            keys.sort();
            prop_assert_eq!(keys, map.keys().cloned().collect::<Vec<_>>());
        }
        prop_assert_eq!(store.bucket("b2").unwrap().get("a").unwrap().unwrap().value, "beside");
    }
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_with(dir.path(), small()).unwrap();
    (dir, store)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, StoreError>, says: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
}

#[test]
fn every_bound_is_named_with_its_number() {
    let (_dir, store) = store();
    let bucket = store.bucket("b").unwrap();
    refused(bucket.get("123456789"), "`key` has 9; 8 is the most");
    refused(bucket.set("k", &[0; 65]), "`value` has 65; 64 is the most");
    refused(bucket.get_many(&["a"; 5]), "`batch` has 5; 4 is the most");
    refused(bucket.delete_many(&["a"; 5]), "`batch` has 5; 4 is the most");
    bucket.set("k", &[0; 64]).unwrap();
    assert_eq!(bucket.get_many(&["k", "k"]).unwrap().len(), 2);
    refused(
        bucket.get_many(&["k", "k", "k"]),
        "`batch-bytes` has 192; 128 is the most",
    );
    bucket.set_many(&[("l", [0; 64]), ("m", [0; 64])]).unwrap();
    refused(
        bucket.set("n", &[0; 64]),
        "bucket `b` would hold 260 bytes; 200 is its quota",
    );
    bucket.set("m", &[1; 64]).unwrap();
    let wide = store.bucket("wide").unwrap();
    for key in ["k", "l", "m", "n"] {
        wide.set(key, &[0; 64]).unwrap();
    }
    refused(
        store.bucket("third").unwrap().set("k", b"v"),
        "`buckets` has 3; 2 is the most",
    );
    refused(store.bucket(""), "is not a name for a bucket");
    refused(store.bucket("a*"), "`a*` is not a name");
    refused(store.bucket(&"x".repeat(129)), "1 to 128 bytes");
}

#[test]
fn an_emptied_bucket_makes_room_for_another_and_its_versions_do_not_return() {
    let (_dir, store) = store();
    let bucket = store.bucket("b").unwrap();
    let version = bucket.set("k", b"1").unwrap();
    bucket.delete("k").unwrap();
    assert!(store.buckets().unwrap().is_empty());
    assert!(bucket.set("k", b"1").unwrap() > version);
}

#[test]
fn a_listing_goes_on_where_it_was_while_keys_go() {
    let (_dir, store) = store();
    let bucket = store.bucket("b").unwrap();
    for key in ["d", "c", "b", "a"] {
        bucket.set(key, b"").unwrap();
    }
    let page = bucket.keys(None, 2).unwrap();
    assert_eq!(page.keys, ["d", "c"]);
    bucket.delete_many(&["d", "c", "b"]).unwrap();
    assert_eq!(bucket.keys(page.next, 2).unwrap().keys, ["a"]);
    assert_eq!(bucket.keys(Some(u64::MAX), 2).unwrap().keys, [""; 0]);
}

#[test]
fn an_increment_says_why_it_cannot() {
    let (_dir, store) = store();
    let bucket = store.bucket("b").unwrap();
    bucket.set("text", b"ten").unwrap();
    refused(bucket.increment("text", 1), "is not a number");
    assert_eq!(bucket.increment("n", u64::MAX).unwrap(), u64::MAX);
    refused(bucket.increment("n", 1), "would become too great");
    assert_eq!(bucket.get("n").unwrap().unwrap().value, "18446744073709551615");
}

#[test]
fn increments_at_once_are_all_counted() {
    let (_dir, store) = store();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let bucket = store.bucket("b").unwrap();
            scope.spawn(move || (0..25).all(|_| bucket.increment("n", 1).is_ok()));
        }
    });
    assert_eq!(store.bucket("b").unwrap().increment("n", 0).unwrap(), 100);
}
