use super::*;
use crate::config::MeshConfig;
use crate::drive::parcels::must_have_room;
use futures::FutureExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;

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

#[tokio::test]
async fn an_attempt_that_waits_for_a_place_is_opened_as_soon_as_there_is_one() {
    const LONG: Duration = Duration::from_secs(3600);
    let bundles = Arc::new(Bundles::new(Contacts::new(MeshConfig::default())));
    let here = NodeId::of_key(b"here");
    let all = waiting(here, 1);
    let mut places: Vec<_> = (0..MOST_AT_ONCE).map(|_| bundles.place().unwrap()).collect();
    // Nothing is waited for where nothing waits.
    assert!(bundles.open_next_within(here, &[], LONG).await.is_none());
    let opening = bundles.open_next_within(here, &all, LONG).await.unwrap();
    bundles.put_off(opening.bundle());
    drop(opening);
    {
        let mut next = pin!(bundles.open_next_within(here, &all, LONG));
        assert!(next.as_mut().now_or_never().is_none());
        // What comes meanwhile does not wait for a place.
        bundles.changed();
        assert!(next.await.is_none());
    }
    let mut next = pin!(bundles.open_next_within(here, &all, LONG));
    assert!(next.as_mut().now_or_never().is_none());
    drop(places.pop());
    assert_eq!(next.await.unwrap().bundle(), all[0].key);
    assert!(bundles.place().is_some());
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

#[tokio::test]
async fn what_a_member_brings_slowly_takes_its_room_and_nobody_elses() {
    const MIB: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let bundles = Arc::new(Bundles::new(Contacts::new(MeshConfig::default())));
    let [slow, other] = ["slow", "other"].map(|name| NodeId::of_key(name.as_bytes()));
    let begin = async |by| {
        let coming = bundles.comes(by, 64 * MIB);
        let room = must_have_room(&store, by, coming.of_member()).await;
        room.map(|()| coming).map_err(|error| wants_room(&error))
    };
    let mut under_way = Vec::new();
    // 512 MiB are what one member may have here.
    for _ in 0..8 {
        under_way.push(begin(slow).await.ok().unwrap());
    }
    assert_eq!(begin(slow).await.err(), Some(true));
    let by_other = begin(other).await;
    assert!(by_other.is_ok());
    under_way.pop();
    drop(begin(slow).await.ok().unwrap());
    drop((under_way, by_other));
    assert!(bundles.coming.lock().is_empty());
}
