//! Decisions that are told, made again, and left to others.

use super::super::Placement;
use super::super::known::tests::{ahead, known, millis};
use super::*;
use crate::log::{Entry, explain, replay, replay_with};
use crate::plugin::ByName;
use crate::plugin::testing::{Says, plugin};
use karman_types::TaskId;
use std::sync::Arc;

/// The node that places does not hold what the step takes; of two that do, the second is nearer.
fn situation() -> Situation {
    let mut nodes = [known("here", 0, 2), known("far", 80, 2), known("near", 20, 2)];
    nodes[0].holds[0] = false;
    (nodes[1].takes[0], nodes[2].takes[0]) = (Some(millis(40)), Some(millis(40)));
    Situation::of("one", &ahead(), (1000, Some(millis(9000))), &nodes)
}

fn short(place: usize) -> String {
    situation().fleet.nodes[place].id.short()
}

fn request() -> TaskId {
    TaskId::from_parts(4, 4)
}

fn place(policy: &mut ByName) -> Placed {
    policy.decide(millis(1), situation())
}

fn to(node: usize) -> Result<Vec<Placement>, Failure> {
    Ok(vec![Placement {
        job: 0,
        task: 0,
        node,
        because: "so it says".into(),
    }])
}

#[test]
fn a_decision_is_told_with_what_came_of_it_and_made_again() {
    for policy in BuiltIn::ALL {
        let placed = Placed::by(policy, situation());
        assert_eq!((placed.chosen(), placed.policy()), (Some(2), policy.name()));
        let log = [
            Entry::placed(1, request(), placed.clone()),
            Entry::answered(2, request(), (policy.name(), 2), millis(70)),
        ];
        let told = explain(&log, request())[0].to_string();
        let begins = format!(
            "where `one` runs: {}, rather than {}, because ",
            short(2),
            short(1)
        );
        assert!(told.starts_with(&begins), "{told}");
        assert!(
            told.ends_with("; it was last heard of 300 ms before; it took 70 ms"),
            "{told}"
        );
        let written = cbor4ii::serde::to_vec(Vec::new(), &log[0]).unwrap();
        let read: Entry = cbor4ii::serde::from_slice(&written).unwrap();
        let replayed = replay([&read]);
        assert_eq!((replayed.same, replayed.holds()), (1, true));
    }
    let why = Placed::by(BuiltIn::Heft, situation()).why().to_string();
    let ends = format!("it is done there within 60 ms, and within 120 ms at {}", short(1));
    assert!(why.ends_with(&ends), "{why}");
}

#[test]
fn who_ran_it_instead_is_told() {
    let placed = Placed::by(BuiltIn::Fate, situation());
    let log = [
        Entry::placed(1, request(), placed),
        Entry::answered(2, request(), ("fate", 1), millis(90)),
    ];
    let told = explain(&log, request())[0].to_string();
    let ends = format!("; {} answered instead, 90 ms after the call was made", short(1));
    assert!(told.ends_with(&ends), "{told}");
}

#[test]
fn where_nobody_can_take_it_it_goes_where_calls_go() {
    let mut known = situation();
    for node in &mut known.fleet.nodes {
        node.resident.clear();
    }
    let placed = Placed::by(BuiltIn::Heft, known);
    assert_eq!((placed.chosen(), placed.node()), (None, None));
    assert_eq!(
        placed.told(),
        "where `one` runs: where a call of it goes because no node that can be reached holds what it takes"
    );
    let told = place(&mut Says::place(Ok(Vec::new())).policy()).told();
    assert!(told.ends_with("the policy names no node for it now"), "{told}");
}

#[test]
fn where_every_core_is_busy_it_waits_for_the_best() {
    let mut known = situation();
    for (node, free_at) in known.fleet.nodes.iter_mut().zip([9.0, 2.0, 5.0]) {
        node.slots.iter_mut().for_each(|slot| slot.free_at = free_at);
    }
    for policy in BuiltIn::ALL {
        let placed = Placed::by(policy, known.clone());
        assert_eq!(placed.chosen(), Some(1), "{policy:?}");
    }
    let told = Placed::by(BuiltIn::Fate, known).told();
    let ends = format!("{}, which would be best, is busy for another 2 s", short(1));
    assert!(told.ends_with(&ends), "{told}");
}

#[test]
fn a_plugin_decides_and_where_it_cannot_the_default_does() {
    let guests = Says::place(to(1));
    let placed = place(&mut guests.policy());
    assert_eq!((placed.chosen(), placed.policy()), (Some(1), "says"));
    assert_eq!(
        placed.told(),
        format!("where `one` runs: {} because so it says", short(1))
    );
    assert_eq!(placed.again(Some(&*guests)), Ok(placed.clone()));
    assert_eq!(placed.again(None).ok(), None);
    for said in [to(0), to(7), Err(Failure::Nobody)] {
        let guests = Says::place(said);
        let placed = place(&mut guests.policy());
        assert_eq!(placed.chosen(), Some(2));
        let told = placed.told();
        assert!(
            told.contains("; policy says 1.0.0 did not decide, the default did: "),
            "{told}"
        );
        assert_eq!(placed.again(Some(&*guests)), Ok(placed.clone()));
    }
    let placed = place(&mut ByName::new("nobody"));
    assert_eq!(
        placed.failed().map(|failed| failed.failure),
        Some(Failure::NotHere)
    );
    assert_eq!(placed.again(None), Ok(placed.clone()));
}

#[test]
fn what_comes_out_different_is_found() {
    let guests = Says::place(to(1));
    let mut placed = place(&mut guests.policy());
    let guests: Arc<dyn Guests> = guests;
    let entry = |placed: &Placed| Entry::placed(1, request(), placed.clone());
    assert_eq!(entry(&placed).plugin(), Some(&plugin()));
    assert_eq!(replay([&entry(&placed)]).without_plugin[0].plugin, "says 1.0.0");
    assert!(replay_with([&entry(&placed)], &guests).holds());
    let other: Arc<dyn Guests> = Says::place(to(2));
    let replayed = replay_with([&entry(&placed)], &other);
    let moved = &replayed.replaced[0];
    assert!(!replayed.holds());
    assert_eq!((moved.logged, moved.now), (Some(1), Some(2)));
    // A log from elsewhere may be anything.
    placed.known.fleet.nodes.clear();
    assert!(!replay_with([&entry(&placed)], &guests).holds());
    placed.by_plugin = None;
    assert!(!replay([&entry(&placed)]).holds());
    let _ = explain(&[entry(&placed)], request());
}
