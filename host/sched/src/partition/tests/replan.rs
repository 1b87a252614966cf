//! A re-planner among tiers and links that change.

use super::problems::Shape;
use crate::partition::*;
use proptest::prelude::*;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Edge, fog and cloud, the links 20 Mbit/s: the heavy second half runs on the cloud.
fn problem(weights: Weights) -> Problem {
    let layer =
        |name: &str, edge_ms: f64| Layer::measured(name, &[edge_ms, edge_ms / 4.0, edge_ms / 20.0], 1000, 0);
    let layers = vec![
        layer("a", 10.0),
        layer("b", 10.0),
        layer("c", 200.0),
        layer("d", 200.0),
    ];
    let graph = LayerGraph::chain(layers, 1_000_000, &[500_000, 50_000, 50_000, 1000]).unwrap();
    let tier = |name: &str| Tier {
        name: name.into(),
        slowdown: 1.0,
        memory_bytes: None,
        power: Power::default(),
        available: true,
    };
    let link = |from, to| Link {
        from,
        to,
        rate_mbit_s: 20.0,
        latency_ms: 2.0,
        message_ms: 0.0,
    };
    let tiers = vec![tier("edge"), tier("fog"), tier("cloud")];
    let links = vec![link(0, 1), link(1, 0), link(1, 2), link(2, 1)];
    Problem::new(graph, tiers, links, Objective::LATENCY, weights).unwrap()
}

fn replanner(weights: Weights) -> Replanner<Tiers> {
    Replanner::new(Tiers, problem(weights), Tuning::default(), Duration::ZERO).unwrap()
}

fn used(actions: &[Action]) -> Option<&Plan> {
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
    let slow = Event::Sent {
        from: 0,
        to: 1,
        bytes: 50_000,
        ms: 10_000.0,
    };
    let actions = replanner.handle(SECOND / 4, slow).unwrap();
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
        let computed = Event::Computed {
            tier: 2,
            layers: vec![2, 3],
            ms: 20.0 * wobble,
        };
        let sent = Event::Sent {
            from: 0,
            to: 1,
            bytes: 50_000,
            ms: 22.0 * wobble,
        };
        assert_eq!(used(&replanner.handle(now, computed).unwrap()), None);
        assert_eq!(used(&replanner.handle(now, sent).unwrap()), None);
    }
}

#[test]
fn a_tensor_that_packs_well_goes_earlier() {
    let mut replanner = replanner(Weights::Everywhere);
    let sized = |bytes| Event::Sized { tensor: 0, bytes };
    let hardly = replanner.handle(SECOND / 8, sized(960_000)).unwrap();
    assert_eq!(used(&hardly), None);
    let input = |replanner: &Replanner<Tiers>| replanner.problem().unwrap().graph().tensors()[0].bytes;
    assert_eq!(input(&replanner), 1_000_000, "one picture is not like the other");
    let actions = replanner.handle(SECOND / 4, sized(5000)).unwrap();
    assert_eq!(used(&actions).unwrap().assignment, [2; 4]);
    assert_eq!(input(&replanner), 5000);
    let unknown = Event::Sized { tensor: 5, bytes: 1 };
    let error = replanner.handle(SECOND / 2, unknown).unwrap_err();
    assert_eq!(error, EventError::NoSuchTensor(5));
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
fn a_hiccup_moves_nothing_and_a_tier_that_is_late_twice_is_slow() {
    let mut replanner = replanner(Weights::Everywhere);
    let ran = |ms| Event::Computed {
        tier: 2,
        layers: vec![2, 3],
        ms,
    };
    let at = |n: u32| SECOND / 10 * n;
    for (n, ms) in [(1, 29.0), (2, 20.0), (3, 29.0)] {
        assert_eq!(replanner.handle(at(n), ran(ms)).unwrap(), [], "{n}");
        assert!((19.0..23.0).contains(&takes(&replanner, 2, &[2, 3])), "{n}");
    }
    replanner.handle(at(4), ran(29.5)).unwrap();
    assert!((takes(&replanner, 2, &[2, 3]) - 29.5).abs() < 0.01);
    // What is faster than it was believed is so at once.
    replanner.handle(at(4), ran(20.0)).unwrap();
    assert!((takes(&replanner, 2, &[2, 3]) - 20.0).abs() < 0.01);
}

/// The same problem with a link from the edge to the cloud, which saves the way over the fog.
fn with_direct_link() -> Replanner<MinCut> {
    let problem = problem(Weights::Everywhere);
    let direct = |from, to| Link {
        from,
        to,
        latency_ms: 3.0,
        ..problem.links()[0]
    };
    let mut links = problem.links().to_vec();
    links.extend([direct(0, 2), direct(2, 0)]);
    let problem = problem
        .under(problem.tiers().to_vec(), links, Weights::Everywhere)
        .unwrap();
    Replanner::new(MinCut, problem, Tuning::default(), Duration::ZERO).unwrap()
}

#[test]
fn requests_take_the_direct_way_again_once_it_is_heard_of() {
    let mut replanner = with_direct_link();
    let is_direct = |plan: &Plan| {
        plan.prediction
            .links
            .iter()
            .any(|used| (used.from, used.to) == (0, 2))
    };
    assert_eq!(replanner.plan().assignment, [0, 0, 2, 2]);
    assert!(is_direct(replanner.plan()));
    let late = Event::Overdue {
        from: 0,
        to: 2,
        arrived: 0,
        ms: 2_000.0,
    };
    replanner.handle(SECOND / 8, late).unwrap();
    assert_eq!(replanner.plan().assignment, [0, 0, 2, 2]);
    assert!(!is_direct(replanner.plan()), "over the fog");
    // One message tells all of it, though the link seemed to be ten thousand times slower.
    let sent = Event::Sent {
        from: 0,
        to: 2,
        bytes: 50_000,
        ms: 23.0,
    };
    let actions = replanner.handle(SECOND / 4, sent).unwrap();
    assert!((replanner.expected_ms(0, 2, 50_000).unwrap() - 23.0).abs() < 0.01);
    assert!(used(&actions).is_some_and(is_direct));
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

#[test]
fn a_tier_that_looked_slow_gets_another_chance() {
    let mut replanner = replanner(Weights::Everywhere);
    assert_eq!(replanner.plan().assignment, [0, 0, 2, 2]);
    let crawls = Event::Computed {
        tier: 2,
        layers: vec![2, 3],
        ms: 800.0,
    };
    replanner.handle(SECOND / 4, crawls).unwrap();
    assert_eq!(replanner.plan().assignment, [0, 0, 1, 1]);
    // Nobody runs anything there, so nobody hears that it is over.
    for tick in 1..=10 {
        replanner.handle(SECOND / 2 * tick, Event::Tick).unwrap();
    }
    assert_eq!(replanner.plan().assignment, [0, 0, 1, 1]);
    for tick in 11..=240 {
        replanner.handle(SECOND / 2 * tick, Event::Tick).unwrap();
    }
    assert_eq!(replanner.plan().assignment, [0, 0, 2, 2]);
}

/// What a tier takes for these layers, by what is known.
fn takes(replanner: &Replanner<Tiers>, tier: usize, layers: &[usize]) -> f64 {
    let problem = replanner.problem().unwrap();
    let ms = |layer: &usize| match &problem.graph().layers()[*layer].time {
        LayerTime::Measured(times) => times[tier].unwrap(),
        LayerTime::Reference(ms) => *ms,
    };
    problem.tiers()[tier].slowdown * layers.iter().map(ms).sum::<f64>()
}

#[test]
fn a_layer_that_looked_slow_gets_another_chance_while_its_tier_runs_others() {
    let mut replanner = replanner(Weights::Everywhere);
    let ran = |layer, ms| Event::Computed {
        tier: 2,
        layers: vec![layer],
        ms,
    };
    replanner.handle(SECOND / 4, ran(2, 400.0)).unwrap();
    assert_eq!(takes(&replanner, 2, &[2]), 400.0);
    for tick in 1..=400 {
        replanner.handle(SECOND / 2 * tick, ran(3, 10.0)).unwrap();
    }
    assert!(takes(&replanner, 2, &[2]) < 10.1);
    assert_eq!(takes(&replanner, 2, &[3]), 10.0);
}

#[test]
fn who_was_slow_shows_when_the_link_is_heard_of() {
    // 50 kB take 22 ms, the two layers on the fog 100; after a second nothing has come.
    let unanswered = || Event::Unanswered {
        from: 0,
        to: 1,
        bytes: 50_000,
        layers: vec![2, 3],
        ms: 1000.0,
    };
    let sent = |ms| Event::Sent {
        from: 0,
        to: 1,
        bytes: 50_000,
        ms,
    };
    let answered = Event::Computed {
        tier: 1,
        layers: vec![2, 3],
        ms: 100.0,
    };
    let late = Event::Overdue {
        from: 0,
        to: 1,
        arrived: 0,
        ms: 200.0,
    };
    for (heard, expected_ms) in [
        // The link is as it was: it was the tier.
        (vec![sent(22.0)], 978.0),
        // The link takes as long as nothing came.
        (vec![sent(990.0)], 100.0),
        // The tier has answered by then.
        (vec![answered, sent(22.0)], 100.0),
        // Nothing else has come over the link by then, which is up again.
        (vec![late, sent(22.0)], 100.0),
    ] {
        let mut replanner = replanner(Weights::Everywhere);
        let actions = replanner.handle(SECOND / 8, unanswered()).unwrap();
        assert_eq!(used(&actions).unwrap().assignment, [0; 4]);
        assert_eq!(takes(&replanner, 1, &[2, 3]), 100.0, "nobody knows yet");
        for event in heard {
            replanner.handle(SECOND / 4, event).unwrap();
        }
        let takes = takes(&replanner, 1, &[2, 3]);
        assert!((takes / expected_ms - 1.0).abs() < 0.01, "{takes}");
    }
}
