//! What has been done for members by bundle is done once.

use super::*;

/// What was done, by the kind of error that says so.
fn new(store: &Store, order: &BundleOrder) -> Result<(), &'static str> {
    match store.bundles().must_be_new(order) {
        Ok(()) => Ok(()),
        Err(StoreError::Done { order: digest }) if digest == order.digest => Err("done"),
        Err(StoreError::Limit { field, .. }) => Err(field),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn an_order_that_is_done_is_not_done_again_in_another_bundle() {
    let dir = tempfile::tempdir().unwrap();
    let limits = StoreLimits {
        ended_bundles: 1,
        ..StoreLimits::default()
    };
    let store = Store::open_with(dir.path(), limits).unwrap();
    let order = order(b"deploy");
    let ends = |text: &'static str| {
        let bytes = Bytes::from_static(text.as_bytes());
        let kept = bundle(&bytes, 1, 1_000);
        assert!(store.bundles().keep(&kept, &bytes).unwrap(), "{text} is known");
        kept.digest
    };
    let first = ends("sealed");
    assert_eq!(new(&store, &order), Ok(()));
    let why = "no right".to_owned();
    store
        .bundles()
        .done(&first, &order, BundleState::Refused { why })
        .unwrap();
    // Its carrier brings so much that the bundle is forgotten, and then the same again.
    let other = ends("other");
    store.bundles().set(&other, BundleState::Delivered).unwrap();
    assert_eq!(store.bundles().get(&first).unwrap(), None);
    assert_eq!(ends("sealed"), first);
    assert_eq!(new(&store, &order), Err("done"));
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(new(&store, &order), Err("done"));
    let later = BundleOrder {
        good_until_ms: 2_000,
        ..order
    };
    assert_eq!(new(&store, &later), Ok(()));
}

#[test]
fn who_has_given_too_many_orders_gives_no_more_until_some_are_over() {
    let dir = tempfile::tempdir().unwrap();
    let limits = StoreLimits {
        orders_per_member: 2,
        ..StoreLimits::default()
    };
    let store = Store::open_with(dir.path(), limits).unwrap();
    let done = |text: &'static str, order: &BundleOrder| {
        let bytes = Bytes::from_static(text.as_bytes());
        let kept = bundle(&bytes, 1, order.good_until_ms);
        store.bundles().keep(&kept, &bytes).unwrap();
        store
            .bundles()
            .done(&kept.digest, order, BundleState::Delivered)
            .unwrap();
    };
    let later = |order: BundleOrder, by_ms| BundleOrder {
        good_until_ms: order.good_until_ms + by_ms,
        ..order
    };
    let [first, second, third] = [b"1", b"2", b"3"].map(|says| order(says));
    let second = later(second, 5_000);
    done("first", &first);
    // The same twice counts once.
    done("again", &first);
    assert_eq!(new(&store, &third), Ok(()));
    done("second", &second);
    assert_eq!(new(&store, &third), Err("orders-per-member"));
    let of_other = BundleOrder {
        by: NodeId::of_key(b"b"),
        ..third
    };
    assert_eq!(new(&store, &of_other), Ok(()));
    // For a day longer than they are good.
    let forgotten = first.good_until_ms + REMEMBERED_MS;
    store.bundles().expire(forgotten).unwrap();
    assert_eq!(new(&store, &first), Err("done"));
    store.bundles().expire(forgotten + 1).unwrap();
    assert_eq!(
        [first, second, third].map(|order| new(&store, &order)),
        [Ok(()), Err("done"), Ok(())]
    );
}
