use super::*;
use karman_types::NodeId;
use proptest::prelude::*;
use std::time::Duration;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn node(name: &str) -> NodeId {
    NodeId::of_key(name.as_bytes())
}

fn taker(name: &str, way: Option<u64>, cores: u32, busy: u32) -> Taker {
    Taker {
        round_trip: way.map(millis),
        busy,
        ..Taker::new(node(name), cores)
    }
}

fn measured(name: &str, way: u64, takes: u64) -> Taker {
    Taker {
        takes: Some(millis(takes)),
        ..taker(name, Some(way), 4, 0)
    }
}

#[test]
fn the_nearest_with_a_core_free_comes_first_while_nothing_was_measured() {
    let takers = [
        taker("far, idle", Some(90), 4, 0),
        taker("near, full", Some(1), 2, 2),
        taker("nearer, one core free", Some(10), 4, 3),
        taker("never measured, idle", None, 8, 0),
        taker("near, twice full", Some(1), 1, 2),
        taker("far, full", Some(50), 2, 2),
    ];
    for route in [Route::Soonest, Route::NearestFree] {
        assert_eq!(route.order(&takers), [2, 0, 3, 1, 5, 4]);
        assert!(route.order(&[]).is_empty());
    }
}

#[test]
fn a_node_that_is_slow_is_passed_over_however_near_it_is() {
    let takers = [measured("near, slow", 1, 400), measured("far, fast", 40, 20)];
    assert_eq!(Route::Soonest.order(&takers), [1, 0]);
    assert_eq!(Route::LaImr.order(&takers), [1, 0]);
    assert_eq!(Route::NearestFree.order(&takers), [0, 1]);
    // As long as it has a core free: what others have it do may take long.
    let mut takers = takers;
    takers[1].busy = 4;
    assert_eq!(Route::Soonest.order(&takers), [0, 1]);
    // Four of the same kind on four cores take another quarter of their time.
    assert_eq!(Route::LaImr.order(&takers), [1, 0]);
}

#[test]
fn who_was_not_measured_is_tried_where_that_would_pay() {
    let order = |near_takes, far_way| {
        let near = measured("near", 1, near_takes);
        Route::Soonest.order(&[near, taker("far", Some(far_way), 4, 0)])
    };
    assert_eq!(order(100, 40), [1, 0]);
    assert_eq!(order(100, 60), [0, 1]);
    assert_eq!(order(1, 40), [0, 1]);
}

#[test]
fn a_call_that_was_given_up_says_nothing_of_how_fast_others_are() {
    let given_up = Taker {
        outlasted: Some(millis(20)),
        ..taker("near", Some(1), 4, 0)
    };
    // Half of 80 ms is hoped for of who was not measured. Of 20 it would be so little that the farther one was tried.
    let takers = [
        given_up,
        measured("far", 30, 80),
        taker("farther", Some(75), 4, 0),
    ];
    assert_eq!(Route::Soonest.order(&takers), [0, 1, 2]);
    let why = Picked::by(Route::Soonest, "echo", takers.to_vec()).why();
    assert!(why.to_string().contains("may answer within 41 ms"), "{why}");
    // It takes no less, whatever it took before.
    let slow = Taker {
        outlasted: Some(millis(100)),
        ..measured("near", 1, 10)
    };
    let takers = [slow, measured("far", 30, 60)];
    assert_eq!(Route::Soonest.order(&takers), [1, 0]);
    let why = Picked::by(Route::Soonest, "echo", takers.to_vec()).why();
    let (near, far) = (node("near").short(), node("far").short());
    assert_eq!(
        why.to_string(),
        format!(
            "who runs `echo`: {far}, rather than {near}, because its answer is expected within 90 ms and that of {near} not before 101 ms"
        )
    );
}

#[test]
fn who_did_not_answer_lately_comes_last() {
    let mut takers = [
        taker("near", Some(1), 4, 0),
        taker("full", Some(1), 2, 9),
        taker("far", None, 1, 0),
    ];
    takers[0].failed = Some(millis(1200));
    for route in Route::ALL {
        assert_eq!(route.order(&takers)[2], 0, "{}", route.name());
    }
}

#[test]
fn a_decision_says_why() {
    let near = node("near").short();
    let far = node("far").short();
    let why = |takers: &[Taker]| {
        Picked::by(Route::Soonest, "echo", takers.to_vec())
            .why()
            .to_string()
    };
    let mut takers = [measured("near", 1, 400), measured("far", 40, 20)];
    assert_eq!(
        why(&takers),
        format!(
            "who runs `echo`: {far}, rather than {near}, because its answer is expected within 60 ms and that of {near} within 401 ms"
        )
    );
    takers[1].takes = None;
    assert_eq!(
        why(&takers),
        format!(
            "who runs `echo`: {far}, rather than {near}, because it was not measured lately and may answer within 240 ms, \
             {near} within 401 ms"
        )
    );
    takers[1].busy = 7;
    assert!(why(&takers).ends_with(&format!(
        "because it has 0 calls on 4 cores and {far} has 7 calls on 4 cores"
    )));
    takers[0].failed = Some(millis(500));
    assert!(why(&takers).ends_with(&format!("because {near} did not answer 500 ms before")));
    assert!(why(&takers[..1]).ends_with("because no other offers it"));
    assert!(why(&[]).ends_with("nobody because nobody offers it"));
    let picked = Picked::by(Route::NearestFree, "echo", takers.to_vec());
    assert_eq!(picked.told(node("far")), picked.why().to_string());
    assert!(
        picked
            .told(node("near"))
            .ends_with(&format!("; {near} answered instead"))
    );
}

#[test]
fn nodes_name_them_as_they_call_themselves() {
    for route in Route::ALL {
        let named = serde_json::to_value(route).unwrap();
        assert_eq!(named, route.name());
        assert_eq!(serde_json::from_value::<Route>(named).unwrap(), route);
    }
    assert_eq!(Route::default(), Route::ALL[0]);
}

/// What may be known of a node.
fn any_taker() -> impl Strategy<Value = Taker> {
    let time = || prop::option::of((0u64..200).prop_map(millis));
    let failed = prop::option::weighted(0.2, Just(millis(300)));
    let any = (time(), 0u32..5, 0u32..12, time(), time(), failed);
    any.prop_map(|(round_trip, cores, busy, takes, outlasted, failed)| Taker {
        round_trip,
        busy,
        takes,
        outlasted,
        failed,
        ..Taker::new(node(""), cores)
    })
}

/// Some of them, each with an id of its own.
fn some_takers() -> impl Strategy<Value = Vec<Taker>> {
    let named = |(n, taker): (usize, Taker)| Taker {
        node: node(&n.to_string()),
        ..taker
    };
    prop::collection::vec(any_taker(), 0..12)
        .prop_map(move |takers| takers.into_iter().enumerate().map(named).collect::<Vec<Taker>>())
}

fn any_route() -> impl Strategy<Value = Route> {
    prop::sample::select(Route::ALL.to_vec())
}

proptest! {
    #[test]
    fn nobody_is_dropped_and_whoever_did_not_answer_is_last(route in any_route(), takers in some_takers()) {
        let order = route.order(&takers);
        let mut all = order.clone();
        all.sort_unstable();
        prop_assert!(all.into_iter().eq(0..takers.len()));
        prop_assert!(order.is_sorted_by_key(|at| takers[*at].failed.is_some()));
    }

    #[test]
    fn the_order_does_not_depend_on_how_they_come(
        (takers, shuffled) in some_takers().prop_flat_map(|takers| (Just(takers.clone()), Just(takers).prop_shuffle())),
        route in any_route(),
    ) {
        let nodes = |takers: &[Taker]| -> Vec<NodeId> {
            let order = route.order(takers);
            order.into_iter().map(|at| takers[at].node).collect()
        };
        prop_assert_eq!(nodes(&takers), nodes(&shuffled));
    }

    #[test]
    fn under_equal_conditions_the_idle_and_the_near_come_first(route in any_route(), taker in any_taker(), more in 1u32..9) {
        let other = |changed: Taker| {
            let takers = [Taker { node: node("changed"), ..changed }, Taker { node: node("as it was"), ..taker.clone() }];
            route.order(&takers)[0]
        };
        let free = Taker { busy: 0, ..taker.clone() };
        let full = Taker { busy: taker.cores.max(1) + more, ..taker.clone() };
        let takers = [Taker { node: node("full"), ..full }, Taker { node: node("free"), ..free }];
        prop_assert_eq!(route.order(&takers)[0], 1);
        let farther = Taker { round_trip: taker.round_trip.map(|way| way + millis(more.into())), ..taker.clone() };
        prop_assert!(taker.round_trip.is_none() || other(farther) == 1);
        let nearer = Taker { round_trip: Some(millis(0)), ..taker.clone() };
        prop_assert!(taker.round_trip.is_some_and(|way| way.is_zero()) || other(nearer) == 0);
    }

    #[test]
    fn nobody_waits_while_a_core_is_free(takers in some_takers()) {
        for route in [Route::Soonest, Route::NearestFree] {
            let order = route.order(&takers);
            for pair in order.windows(2) {
                let (first, next) = (&takers[pair[0]], &takers[pair[1]]);
                let free = |taker: &Taker| taker.busy < taker.cores.max(1);
                prop_assert!(first.failed.is_some() != next.failed.is_some() || free(first) || !free(next));
            }
        }
    }
}
