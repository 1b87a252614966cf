//! A re-planner among tiers and links that change.

use super::problems::Shape;
use crate::partition::*;
use proptest::prelude::*;
use std::time::Duration;

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Edge, fog and cloud, the links 20 Mbit/s: the heavy second half runs on the cloud.
pub(super) fn problem(weights: Weights) -> Problem {
    let layer =
        |name: &str, edge_ms: f64| Layer::measured(name, &[edge_ms, edge_ms / 4.0, edge_ms / 20.0], 1000, 0);
    let layers = vec![
        layer("a", 10.0),
        layer("b", 10.0),
        layer("c", 200.0),
        layer("d", 200.0),
    ];
    let graph = LayerGraph::chain(layers, 1_000_000, &[500_000, 50_000, 50_000, 1000]).unwrap();
    let link = |from, to| Link {
        from,
        to,
        rate_mbit_s: 20.0,
        latency_ms: 2.0,
        message_ms: 0.0,
    };
    let tiers = ["edge", "fog", "cloud"].map(Tier::new).to_vec();
    let links = vec![link(0, 1), link(1, 0), link(1, 2), link(2, 1)];
    Problem::new(graph, tiers, links, Objective::LATENCY, weights).unwrap()
}

pub(super) fn replanner(weights: Weights) -> Replanner<Tiers> {
    Replanner::new(Tiers, problem(weights), Tuning::default(), Duration::ZERO).unwrap()
}

/// 50 kB went from the edge to the fog, which should take 22 ms.
pub(super) fn sent(ms: f64) -> Event {
    Event::Sent {
        from: 0,
        to: 1,
        bytes: 50_000,
        ms,
    }
}

/// The cloud has done its layers, which should take 20 ms.
pub(super) fn computed(ms: f64) -> Event {
    Event::Computed {
        tier: 2,
        layers: vec![2, 3],
        ms,
    }
}

pub(super) fn used(actions: &[Action]) -> Option<&Plan> {
    actions.iter().find_map(|action| match action {
        Action::Use { plan, .. } => Some(&**plan),
        _ => None,
    })
}

#[test]
fn a_slow_link_brings_the_layers_home_and_requests_keep_their_plan() {
    let mut replanner = replanner(Weights::Everywhere);
    let before = replanner.start();
    assert_eq!(before.assignment, [0, 0, 2, 2]);

    // A message of 50 kB that should take 22 ms takes ten seconds.
    let actions = replanner.handle(SECOND / 4, sent(10_000.0)).unwrap();
    assert_eq!(used(&actions).unwrap().assignment, [0; 4]);
    assert!(matches!(actions[0], Action::Use { cause: Cause::Deviation(ratio), .. } if ratio > 100.0));
    assert_eq!(before.assignment, [0, 0, 2, 2]);
    assert_eq!(replanner.start().assignment, [0; 4]);

    // Nobody sends any more, so it has to ask whether the link has recovered; and it has.
    let actions = replanner.handle(SECOND, Event::Tick).unwrap();
    let probe = actions
        .iter()
        .find(|action| matches!(action, Action::Probe { from: 0, to: 1, .. }));
    let Some(Action::Probe { bytes, .. }) = probe else {
        panic!("{actions:?}")
    };
    let fast = Event::Sent {
        from: 0,
        to: 1,
        bytes: *bytes,
        ms: 2.0 + *bytes as f64 / 2500.0,
    };
    let actions = replanner.handle(SECOND * 2, fast).unwrap();
    assert_eq!(used(&actions).unwrap().assignment, [0, 0, 2, 2]);
}

#[test]
fn what_is_as_expected_moves_nothing() {
    let mut replanner = replanner(Weights::Everywhere);
    for step in 1..100 {
        let now = SECOND / 10 * step;
        let wobble = if step % 2 == 0 { 1.05 } else { 0.95 };
        assert_eq!(
            used(&replanner.handle(now, computed(20.0 * wobble)).unwrap()),
            None
        );
        assert_eq!(used(&replanner.handle(now, sent(22.0 * wobble)).unwrap()), None);
    }
}

#[test]
fn a_throttled_tier_is_relieved() {
    let mut replanner = replanner(Weights::Everywhere);
    let hot = Event::Computed {
        tier: 2,
        layers: vec![2, 3],
        ms: 2000.0,
    };
    let actions = replanner.handle(SECOND / 4, hot).unwrap();
    assert_eq!(used(&actions).unwrap().assignment, [0, 0, 1, 1]);
}

#[test]
fn weights_are_sent_when_requests_pay_for_them_and_used_when_they_are_there() {
    let mut held = vec![vec![true; 4]; 3];
    held[1] = vec![false; 4];
    held[2] = vec![false; 4];
    let mut replanner = replanner(Weights::Only { held });
    assert_eq!(replanner.plan().assignment, [0; 4]);
    // Without requests nothing pays.
    assert_eq!(used(&replanner.handle(SECOND, Event::Tick).unwrap()), None);

    for _ in 0..10 {
        replanner.start();
    }
    let actions = replanner.handle(SECOND * 2, Event::Tick).unwrap();
    let ships: Vec<&Action> = actions
        .iter()
        .filter(|action| matches!(action, Action::Ship { .. }))
        .collect();
    let [
        Action::Ship {
            from: 0,
            to: 2,
            layers,
            bytes: 2000,
        },
    ] = ships[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!(layers[..], [2, 3]);
    // They are under way: not sent again, not used yet.
    replanner.start();
    let actions = replanner.handle(SECOND * 3, Event::Tick).unwrap();
    assert!(
        !actions
            .iter()
            .any(|action| matches!(action, Action::Ship { .. } | Action::Use { .. }))
    );
    let arrived = Event::Weights {
        tier: 2,
        layers: layers.clone(),
        held: true,
    };
    let actions = replanner.handle(SECOND * 4, arrived).unwrap();
    assert_eq!(used(&actions).unwrap().assignment, [0, 0, 2, 2]);
}

#[test]
fn a_node_that_dies_under_a_request_costs_only_what_it_had() {
    let mut replanner = replanner(Weights::Everywhere);
    let dead = Event::Tier {
        tier: 2,
        available: false,
    };
    let actions = replanner.handle(SECOND / 4, dead).unwrap();
    assert_eq!(used(&actions).unwrap().assignment, [0, 0, 1, 1]);
    // The fog still holds what layer b made; what the cloud made of it is lost.
    let held = [Held { tensor: 2, tier: 1 }, Held { tensor: 3, tier: 2 }];
    let onward = replanner.resume(&held).unwrap();
    assert_eq!(onward.suffix.layers, [2, 3]);
    assert_eq!(onward.plan.assignment, [1, 1]);
    // With nothing left but the input, everything runs again.
    assert_eq!(replanner.resume(&[]).unwrap().suffix.layers, [0, 1, 2, 3]);
    let all_done = replanner.resume(&[Held { tensor: 4, tier: 0 }]);
    assert_eq!(
        all_done,
        Err(PlanError::Problem(ProblemError::Graph(GraphError::NothingLeft)))
    );
}

#[test]
fn a_message_that_crawls_is_left_for_something_better() {
    let mut replanner = replanner(Weights::Everywhere);
    let (here, there) = ([Held { tensor: 2, tier: 0 }], [Held { tensor: 2, tier: 1 }]);
    // It is nearly there: stay.
    assert_eq!(replanner.rescue((0, 1), 5.0, &there, &here), None);
    // Nothing came for a second: the edge does the rest, and new requests stay there.
    let stalled = Event::Overdue {
        from: 0,
        to: 1,
        arrived: 0,
        ms: 1000.0,
    };
    let actions = replanner.handle(SECOND / 4, stalled).unwrap();
    assert_eq!(used(&actions).unwrap().assignment, [0; 4]);
    let waiting = replanner.expected_ms(0, 1, 50_000).unwrap();
    let onward = replanner.rescue((0, 1), waiting, &there, &here).unwrap();
    assert_eq!(
        (&onward.suffix.layers[..], &onward.plan.assignment[..]),
        (&[2, 3][..], &[0, 0][..])
    );
}

#[test]
fn events_without_sense_are_refused_and_change_nothing() {
    let mut replanner = replanner(Weights::Everywhere);
    let before = replanner.problem().unwrap();
    let bad = [
        Event::Computed {
            tier: 3,
            layers: vec![0],
            ms: 1.0,
        },
        Event::Computed {
            tier: 0,
            layers: vec![4],
            ms: 1.0,
        },
        Event::Computed {
            tier: 0,
            layers: vec![],
            ms: 1.0,
        },
        Event::Computed {
            tier: 0,
            layers: vec![0],
            ms: f64::NAN,
        },
        Event::Sent {
            from: 0,
            to: 2,
            bytes: 1,
            ms: 1.0,
        },
        Event::Sent {
            from: 0,
            to: 1,
            bytes: 1,
            ms: -1.0,
        },
        Event::Overdue {
            from: 0,
            to: 1,
            arrived: 0,
            ms: f64::INFINITY,
        },
        Event::Unanswered {
            from: 0,
            to: 1,
            bytes: 1,
            layers: vec![4],
            ms: 1.0,
        },
        Event::Unanswered {
            from: 0,
            to: 2,
            bytes: 1,
            layers: vec![],
            ms: 1.0,
        },
        Event::Tier {
            tier: 9,
            available: false,
        },
        Event::Link {
            from: 0,
            to: 0,
            up: false,
        },
        Event::Weights {
            tier: 0,
            layers: vec![7],
            held: true,
        },
    ];
    for event in bad {
        assert!(replanner.handle(SECOND / 4, event.clone()).is_err(), "{event:?}");
    }
    assert_eq!(replanner.problem().unwrap(), before);
    let nowhere = replanner.resume(&[Held { tensor: 9, tier: 0 }]);
    assert!(matches!(
        nowhere,
        Err(PlanError::Problem(ProblemError::Graph(
            GraphError::NoSuchTensor { tensor: 9 }
        )))
    ));
    let tuning = Tuning {
        deviation: f64::NAN,
        ..Tuning::default()
    };
    assert!(Replanner::new(Tiers, before, tuning, Duration::ZERO).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// What is left runs every layer it needs and none whose outputs are all held; going on is never worse than starting again.
    #[test]
    fn a_suffix_is_what_is_missing(seed: u64, layers in 1..8_usize, held in proptest::collection::vec(any::<bool>(), 8)) {
        let shape = Shape {
            layers,
            tiers: 3,
            branches: true,
            objective: Objective::LATENCY,
            tight: false,
            uneven: false,
        };
        let problem = shape.draw(seed);
        let graph = problem.graph();
        let made = graph.tensors().iter().enumerate().filter(|(_, tensor)| matches!(tensor.from, Producer::Layer(_)));
        let held: Vec<Held> = made.filter(|(tensor, _)| held[tensor % 8]).map(|(tensor, _)| Held { tensor, tier: tensor % 3 }).collect();
        let Ok(suffix) = graph.remaining(&held) else { return Ok(()) };
        for (new, old) in suffix.layers.iter().enumerate() {
            let outputs = graph.tensors().iter().enumerate();
            let mut outputs = outputs.filter(|(_, tensor)| tensor.from == Producer::Layer(*old));
            prop_assert!(outputs.any(|(index, _)| held.iter().all(|held| held.tensor != index)), "{old} is not needed");
            prop_assert_eq!(&suffix.graph.layers()[new], &graph.layers()[*old]);
            // Each input it had is there, held or made.
            let inputs = |graph: &LayerGraph, layer: usize| graph.tensors().iter().filter(|tensor| tensor.to.contains(&layer)).count();
            prop_assert_eq!(inputs(&suffix.graph, new), inputs(graph, *old));
        }
        let replanner = Replanner::new(MinCut, problem, Tuning::default(), Duration::ZERO).unwrap();
        let again = replanner.resume(&[]).unwrap().plan.cost;
        prop_assert!(replanner.resume(&held).unwrap().plan.cost <= again * (1.0 + 1e-9) + 1e-9);
    }
}
