use super::*;
use crate::config::MeshConfig;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn waiting(here: NodeId, count: u8) -> Vec<Waiting<Digest>> {
    let bundle = |number| Waiting {
        key: Digest::of(&[number]),
        destination: here,
        bytes: 1,
        priority: Priority::Normal,
        expires: Time::from_unix_ms(0),
        refused_by: Vec::new(),
    };
    (0..count).map(bundle).collect()
}

#[test]
fn attempts_wait_for_a_place_and_nothing_else_waits_for_them() {
    let bundles = Arc::new(Bundles::new(Contacts::new(MeshConfig::default())));
    let here = NodeId::of_key(b"here");
    let all = waiting(here, 3);
    let places: Vec<_> = (0..MOST_AT_ONCE).map(|_| bundles.place().unwrap()).collect();
    assert!(bundles.place().is_none());
    // Two turn out to be attempts; the third is opened all the same.
    for attempt in &all[..2] {
        let opening = bundles.open_next(here, &all).unwrap();
        assert_eq!(opening.bundle(), attempt.key);
        bundles.put_off(opening.bundle());
    }
    let answer = bundles.open_next(here, &all).unwrap();
    assert_eq!(answer.bundle(), all[2].key);
    assert!(bundles.open_next(here, &all).is_none());
    drop(places);
    assert_eq!(bundles.next(here, &all), Some(all[0].key));
    // What is not there any more is not remembered.
    assert!(bundles.open_next(here, &[]).is_none());
    assert!(bundles.put_off.lock().is_empty());
}

#[test]
fn a_bundle_is_opened_again_when_what_it_asked_for_has_panicked() {
    let bundles = Arc::new(Bundles::new(Contacts::new(MeshConfig::default())));
    let here = NodeId::of_key(b"here");
    let all = waiting(here, 1);
    let opening = bundles.open_next(here, &all).unwrap();
    assert_eq!(bundles.next(here, &all), None);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _opening = opening;
        panic!("a defect");
    }));
    assert!(panicked.is_err());
    assert_eq!(bundles.next(here, &all), Some(all[0].key));
}

#[test]
fn one_thing_at_a_time_goes_on_with_a_node() {
    let bundles = Arc::new(Bundles::new(Contacts::new(MeshConfig::default())));
    let [here, there] = ["here", "there"].map(|name| NodeId::of_key(name.as_bytes()));
    let busy = bundles.begin(there).unwrap();
    bundles
        .offered
        .lock()
        .insert((Digest::of(b"bundle"), there), true);
    assert!(bundles.begin(there).is_none());
    assert!(bundles.begin(there).is_none());
    drop(bundles.begin(here).unwrap());
    // Nobody else may read what was offered to a node whose turn is over.
    assert_eq!(bundles.offered.lock().len(), 1);
    drop(busy);
    assert!(bundles.offered.lock().is_empty());
    assert!(bundles.begin(there).is_some());
}
