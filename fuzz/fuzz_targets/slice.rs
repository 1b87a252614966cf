//! Any bytes as a slice of a blob, after a run of groups: nothing that does not belong to the blob is taken.
#![cfg_attr(fuzzing, no_main)]

use karman_store::{GROUP, Slices, Store};
use std::sync::LazyLock;

static STORE: LazyLock<Store> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder").keep();
    Store::open(folder).expect("a store")
});
static BLOB: LazyLock<Slices> = LazyLock::new(|| Slices::of(vec![7; 10 * GROUP as usize + 5].into()));

fn check(input: &[u8]) {
    let [first, count, bytes @ ..] = input else {
        return;
    };
    let (first, end) = (u64::from(*first), u64::from(*first) + u64::from(*count));
    let mut partial = STORE.blobs().receive(BLOB.digest(), BLOB.size()).expect("room");
    // The true slice with the input over it: so it gets past the first hash.
    let true_slice = BLOB.slice(first..end.max(first + 1)).unwrap_or_default();
    let mut slice = true_slice.to_vec();
    for (byte, other) in slice.iter_mut().zip(bytes) {
        *byte ^= other;
    }
    let _ = partial.put(first..end, &slice);
    for run in partial.missing() {
        let rest = BLOB.slice(run.clone()).expect("of memory");
        partial.put(run, &rest).expect("the true slice is taken");
    }
    assert!(partial.read().is_ok(), "what was taken is not the blob");
    partial.discard();
}

karman_fuzz::target!(check);
