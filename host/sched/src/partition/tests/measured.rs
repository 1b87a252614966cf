//! What a re-planner takes from measurements: of whom they tell, and for how long.

use super::replan::{SECOND, problem, replanner, sent, used};
use crate::partition::*;
use std::time::Duration;

/// What a tier takes for these layers, by what is known.
fn takes(replanner: &Replanner<Tiers>, tier: usize, layers: &[usize]) -> f64 {
    let problem = replanner.problem().unwrap();
    let ms = |layer: &usize| match &problem.graph().layers()[*layer].time {
        LayerTime::Measured(times) => times[tier].unwrap(),
        LayerTime::Reference(ms) => *ms,
    };
    problem.tiers()[tier].slowdown * layers.iter().map(ms).sum::<f64>()
}

/// The same problem with a link from the edge to the cloud, which saves the way over the fog.
fn with_direct_link(rate_mbit_s: f64) -> Replanner<MinCut> {
    let problem = problem(Weights::Everywhere);
    let direct = |from, to| Link {
        from,
        to,
        latency_ms: 3.0,
        rate_mbit_s,
        ..problem.links()[0]
    };
    let mut links = problem.links().to_vec();
    links.extend([direct(0, 2), direct(2, 0)]);
    let problem = problem
        .under(problem.tiers().to_vec(), links, Weights::Everywhere)
        .unwrap();
    Replanner::new(MinCut, problem, Tuning::default(), Duration::ZERO).unwrap()
}

/// Whether requests take that link.
fn is_direct(plan: &Plan) -> bool {
    let mut used = plan.prediction.links.iter();
    used.any(|used| (used.from, used.to) == (0, 2))
}

#[test]
fn a_hiccup_moves_nothing_and_a_tier_that_is_off_twice_is_slow_or_fast() {
    let mut replanner = replanner(Weights::Everywhere);
    let ran = |ms| Event::Computed {
        tier: 2,
        layers: vec![2, 3],
        ms,
    };
    let at = |n: u32| SECOND / 20 * n;
    for (n, ms) in [(1, 29.0), (2, 20.0), (3, 55.0), (4, 15.0), (5, 28.0)] {
        assert_eq!(replanner.handle(at(n), ran(ms)).unwrap(), [], "{n}");
        assert!((18.0..27.0).contains(&takes(&replanner, 2, &[2, 3])), "{n}");
    }
    let takes_then = |replanner: &mut Replanner<Tiers>, n, ms| {
        replanner.handle(at(n), ran(ms)).unwrap();
        takes(replanner, 2, &[2, 3])
    };
    takes_then(&mut replanner, 6, 40.0);
    assert!((takes_then(&mut replanner, 7, 41.0) - 41.0).abs() < 0.01);
    // It has passed, or it was another hiccup.
    assert!(takes_then(&mut replanner, 8, 20.0) > 30.0);
    assert!((takes_then(&mut replanner, 9, 20.5) - 20.5).abs() < 0.01);
    // By so much nobody is off by chance.
    assert!((takes_then(&mut replanner, 9, 90.0) - 90.0).abs() < 0.01);
}

#[test]
fn what_meets_others_on_a_link_moves_nothing_and_a_link_that_is_slow_twice_is_slow() {
    let mut replanner = replanner(Weights::Everywhere);
    let takes = |replanner: &Replanner<Tiers>| replanner.expected_ms(0, 1, 50_000).unwrap();
    let probes = |actions: &[Action]| {
        let to_fog = |action: &&Action| matches!(action, Action::Probe { from: 0, to: 1, .. });
        actions.iter().filter(to_fog).count()
    };
    let at = |n: u32| SECOND + SECOND / 20 * n;
    // 22 ms are expected.
    for (n, ms) in [(1, 45.0), (2, 22.0), (3, 40.0), (4, 22.0)] {
        assert_eq!(replanner.handle(at(n), sent(ms)).unwrap(), [], "{n}");
        assert!((takes(&replanner) - 22.0).abs() < 0.1, "{n}");
    }
    replanner.handle(at(5), sent(45.0)).unwrap();
    let tick = replanner.handle(at(6), Event::Tick).unwrap();
    assert_eq!(probes(&tick), 1, "it is looked at soon");
    // That one is too small to say that nothing was the matter.
    let small = Event::Sent {
        from: 0,
        to: 1,
        bytes: 5_000,
        ms: 4.0,
    };
    replanner.handle(at(6), small).unwrap();
    replanner.handle(at(7), sent(46.0)).unwrap();
    assert!((takes(&replanner) - 46.0).abs() < 0.1);
    // What is early is so because of the link.
    replanner.handle(at(8), sent(22.0)).unwrap();
    assert!((takes(&replanner) - 22.0).abs() < 0.1);
    // Others take no longer than that.
    replanner.handle(at(9), sent(50.0)).unwrap();
    assert!((takes(&replanner) - 50.0).abs() < 0.1);
}

#[test]
fn what_slows_a_message_down_slows_down_its_answer() {
    let mut replanner = replanner(Weights::Everywhere);
    let takes = |replanner: &Replanner<Tiers>, from, to| replanner.expected_ms(from, to, 25_000).unwrap();
    let answered = |ms| Event::Answered {
        from: 0,
        to: 1,
        bytes: 50_000,
        answer: 25_000,
        ms,
    };
    // 22 ms there and 12 back are expected.
    replanner.handle(SECOND / 20, answered(34.0)).unwrap();
    assert!((takes(&replanner, 0, 1) - 12.0).abs() < 1e-6);
    replanner.handle(SECOND / 10, answered(4.0 + 90.0)).unwrap();
    assert!((takes(&replanner, 0, 1) - 32.0).abs() < 1e-6);
    assert!((takes(&replanner, 1, 0) - 32.0).abs() < 1e-6);
    assert!((takes(&replanner, 1, 2) - 12.0).abs() < 1e-6, "another link");
    // A probe of which nothing comes back tells of the way back as well.
    let probed = Event::Answered {
        from: 0,
        to: 1,
        bytes: 25_000,
        answer: 0,
        ms: 14.0,
    };
    replanner.handle(SECOND / 5, probed).unwrap();
    assert!((takes(&replanner, 0, 1) - 12.0).abs() < 1e-6);
    assert!((takes(&replanner, 1, 0) - 12.0).abs() < 1e-6);
    // One without bytes tells nothing of a rate.
    let empty = Event::Answered {
        from: 0,
        to: 1,
        bytes: 0,
        answer: 0,
        ms: 50.0,
    };
    replanner.handle(SECOND / 4, empty).unwrap();
    assert!((takes(&replanner, 0, 1) - 12.0).abs() < 1e-6);
}

#[test]
fn of_fast_links_the_one_that_became_slow_says_how_fast_the_others_are() {
    let problem = problem(Weights::Everywhere);
    // As three processes on one machine measure it.
    let link = |from, to, rate_mbit_s| Link {
        from,
        to,
        rate_mbit_s,
        ..problem.links()[0]
    };
    let links = vec![
        link(0, 1, 1800.0),
        link(1, 0, 5500.0),
        link(0, 2, 2900.0),
        link(2, 0, 1400.0),
        link(1, 2, 1000.0),
        link(2, 1, 900.0),
    ];
    let problem = problem.under(problem.tiers().to_vec(), links, Weights::Everywhere);
    let mut replanner = Replanner::new(MinCut, problem.unwrap(), Tuning::default(), Duration::ZERO).unwrap();
    let pace = |replanner: &Replanner<MinCut>, from, to| {
        let ms = |bytes| replanner.expected_ms(from, to, bytes).unwrap();
        ms(1_000_000) - ms(0)
    };
    let answered = Event::Answered {
        from: 0,
        to: 1,
        bytes: 50_000,
        answer: 0,
        ms: 104.0,
    };
    replanner.handle(SECOND / 20, answered).unwrap();
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0)] {
        assert!(
            (pace(&replanner, from, to) - 2000.0).abs() < 0.1,
            "{from} to {to}"
        );
    }
    assert!(pace(&replanner, 1, 2) < 10.0, "between others");
}

#[test]
fn requests_take_the_direct_way_again_once_it_is_heard_of() {
    let mut replanner = with_direct_link(40.0);
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
        ms: 13.0,
    };
    let actions = replanner.handle(SECOND / 4, sent).unwrap();
    assert!((replanner.expected_ms(0, 2, 50_000).unwrap() - 13.0).abs() < 0.01);
    assert!(used(&actions).is_some_and(is_direct));
}

/// 50 kB have arrived there from the edge.
const fn from_edge(to: usize, ms: f64) -> Event {
    Event::Sent {
        from: 0,
        to,
        bytes: 50_000,
        ms,
    }
}

#[test]
fn what_slows_one_link_of_a_node_down_slows_down_those_like_it() {
    // 20 Mbit/s to the fog, too.
    let mut replanner = with_direct_link(20.0);
    assert!(is_direct(replanner.plan()));
    let actions = replanner.handle(SECOND / 8, from_edge(2, 2003.0)).unwrap();
    assert_eq!(
        used(&actions).unwrap().assignment,
        [0; 4],
        "no request tries the way over the fog"
    );
    assert!((replanner.expected_ms(0, 1, 50_000).unwrap() - 2002.0).abs() < 0.01);
    assert!(
        (replanner.expected_ms(1, 2, 50_000).unwrap() - 22.0).abs() < 0.01,
        "another node's"
    );
    // It has passed for both.
    let actions = replanner.handle(SECOND / 4, from_edge(2, 23.0)).unwrap();
    assert!(used(&actions).is_some_and(is_direct));
    assert!((replanner.expected_ms(0, 1, 50_000).unwrap() - 22.0).abs() < 0.01);
    // What was only guessed of the way over the fog is corrected there, and leaves the other one as it was measured.
    replanner.handle(SECOND / 2, from_edge(2, 2003.0)).unwrap();
    let actions = replanner.handle(SECOND, from_edge(1, 22.0)).unwrap();
    assert!(!is_direct(used(&actions).unwrap()));
    assert!((replanner.expected_ms(0, 2, 50_000).unwrap() - 2003.0).abs() < 0.01);
    // They are not alike any more.
    replanner.handle(SECOND, from_edge(2, 4003.0)).unwrap();
    assert!((replanner.expected_ms(0, 1, 50_000).unwrap() - 22.0).abs() < 0.01);
}

#[test]
fn a_guess_that_was_too_low_has_the_others_looked_at() {
    let mut replanner = with_direct_link(20.0);
    // The direct way crawls, and so does the one over the fog, by a guess.
    replanner.handle(SECOND, from_edge(2, 2003.0)).unwrap();
    assert_eq!(replanner.plan().assignment, [0; 4]);
    // It does not: maybe whatever slowed both down is over. Nobody waits half a second to find out.
    let heard = SECOND * 5 / 4;
    replanner.handle(heard, from_edge(1, 22.0)).unwrap();
    let actions = replanner.handle(heard, Event::Tick).unwrap();
    let probed = |action: &Action| matches!(action, Action::Probe { from: 0, to: 2, .. });
    assert!(actions.iter().any(probed), "{actions:?}");
    // That a guess was too high says nothing of them.
    let mut replanner = with_direct_link(20.0);
    replanner.handle(SECOND, from_edge(2, 2003.0)).unwrap();
    replanner.handle(heard, from_edge(1, 8002.0)).unwrap();
    let actions = replanner.handle(heard, Event::Tick).unwrap();
    assert!(!actions.iter().any(probed), "{actions:?}");
}

#[test]
fn what_links_like_each_other_differ_by_is_learnt_but_not_for_ever() {
    let pace =
        |replanner: &Replanner<MinCut>, to, fixed| replanner.expected_ms(0, to, 50_000).unwrap() - fixed;
    // 25 Mbit/s, and 20 to the fog.
    let mut replanner = with_direct_link(25.0);
    replanner.handle(SECOND / 8, from_edge(2, 3.0 + 14.0)).unwrap();
    let direct = pace(&replanner, 2, 3.0);
    assert!((direct - 14.8).abs() < 0.01, "{direct}");
    // A small change is as likely one of this link alone.
    let fog = pace(&replanner, 1, 2.0);
    assert!((fog - 20.0 * f64::sqrt(14.8 / 16.0)).abs() < 0.01, "{fog}");
    // What slows one down a lot slows down both.
    replanner.handle(SECOND / 4, from_edge(2, 3.0 + 200.0)).unwrap();
    let fog = pace(&replanner, 1, 2.0);
    assert!((fog - 200.0).abs() < 0.01, "{fog}");
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
fn a_layer_that_seems_to_take_no_time_gets_its_profile_back() {
    let mut replanner = replanner(Weights::Everywhere);
    let ran = |ms| Event::Computed {
        tier: 2,
        layers: vec![2],
        ms,
    };
    for n in 1..=400 {
        replanner.handle(SECOND / 1000 * n, ran(0.0)).unwrap();
    }
    assert!((9e-6..1e-4).contains(&takes(&replanner, 2, &[2])));
    // Nobody hears of it any more.
    for tick in 1..=400 {
        replanner.handle(SECOND + SECOND / 2 * tick, Event::Tick).unwrap();
        assert!(takes(&replanner, 2, &[2]) < 10.1, "{tick}");
    }
    assert!(takes(&replanner, 2, &[2]) > 9.9);
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
fn of_links_that_are_stated_nothing_is_learnt_and_of_tiers_behind_them_all() {
    let mut replanner = replanner(Weights::Everywhere);
    let links = replanner.problem().unwrap().links().to_vec();
    assert_eq!(replanner.state_links(links).unwrap(), []);
    let (from, to, bytes, ms) = (0, 1, 50_000, 10_000.0);
    let arrived = 0;
    let slow = Event::Sent { from, to, bytes, ms };
    let late = Event::Overdue {
        from,
        to,
        arrived,
        ms,
    };
    let gone = Event::Link { from, to, up: false };
    for event in [slow, late, gone, Event::Tick] {
        assert_eq!(replanner.handle(SECOND, event).unwrap(), []);
    }
    assert_eq!(replanner.expected_ms(from, to, bytes), Some(22.0));
    // Nothing is measured that is known, however long ago that was.
    assert_eq!(replanner.handle(SECOND * 100, Event::Tick).unwrap(), []);
    let throttled = Event::Computed {
        tier: 2,
        layers: vec![2, 3],
        ms: 800.0,
    };
    let actions = replanner.handle(SECOND * 101, throttled).unwrap();
    assert_eq!(used(&actions).unwrap().assignment, [0, 0, 1, 1]);
    // The link takes 20 ms for these bytes: the rest was the tier's.
    let unanswered = Event::Unanswered {
        from,
        to,
        bytes,
        layers: vec![2, 3],
        ms: 1020.0,
    };
    let actions = replanner.handle(SECOND * 102, unanswered).unwrap();
    assert!((takes(&replanner, 1, &[2, 3]) - 1000.0).abs() < 0.01);
    assert_eq!(used(&actions).unwrap().assignment, [0; 4]);
}
