//! Which links a re-planner looks at, and when.

use super::replan::{SECOND, computed, problem, replanner, sent, used};
use crate::partition::*;
use std::time::Duration;

/// To whom probes go from the edge, and how large they are.
fn probes(actions: &[Action]) -> Vec<(usize, u64)> {
    let probe = |action: &Action| match action {
        Action::Probe {
            from: 0, to, bytes, ..
        } => Some((*to, *bytes)),
        _ => None,
    };
    actions.iter().filter_map(probe).collect()
}

#[test]
fn a_link_that_requests_take_is_looked_at_between_them() {
    let mut replanner = replanner(Weights::Everywhere);
    let asked = |replanner: &mut Replanner<Tiers>, now| {
        replanner.handle(now, computed(20.0)).unwrap();
        replanner.handle(now, sent(22.0)).unwrap();
    };
    let look = |replanner: &mut Replanner<Tiers>, now| probes(&replanner.handle(now, Event::Tick).unwrap());
    asked(&mut replanner, SECOND);
    assert_eq!(look(&mut replanner, SECOND * 5 / 4), []);
    // As many bytes as take 5 ms; ten times after a request, and not until there is another one.
    let watched = (1, 12_500);
    for half in 3..13 {
        let looked_at = look(&mut replanner, SECOND * half / 2);
        assert!(looked_at.contains(&watched), "{half}: {looked_at:?}");
    }
    assert!(!look(&mut replanner, SECOND * 13 / 2).contains(&watched));
    asked(&mut replanner, SECOND * 7);
    assert_eq!(look(&mut replanner, SECOND * 15 / 2), [watched]);

    // One of the probes is late: the next request stays at home, which nobody had to wait for.
    let late = Event::Overdue {
        from: 0,
        to: 1,
        arrived: 12_500,
        ms: 1000.0,
    };
    let actions = replanner.handle(SECOND * 38 / 5, late).unwrap();
    assert_eq!(used(&actions).unwrap().assignment, [0; 4]);
}

#[test]
fn without_requests_no_link_is_looked_at() {
    let mut replanner = replanner(Weights::Everywhere);
    let mut look = |now| probes(&replanner.handle(now, Event::Tick).unwrap());
    assert_ne!(look(SECOND), []);
    assert_ne!(look(SECOND * 59), []);
    assert_eq!(look(SECOND * 61), []);
    assert_eq!(replanner.due(), SECOND * 63);
    // The next request changes that.
    replanner.handle(SECOND * 62, computed(20.0)).unwrap();
    assert_eq!(replanner.due(), SECOND * 249 / 4);
    assert_ne!(probes(&replanner.handle(SECOND * 63, Event::Tick).unwrap()), []);
}

#[test]
fn a_cut_that_stays_has_no_link_looked_at() {
    let pinned = Pinned { ends: vec![2, 2] };
    let problem = problem(Weights::Everywhere);
    let mut replanner = Replanner::new(pinned, problem, Tuning::default(), Duration::ZERO).unwrap();
    for second in 1..10 {
        let actions = replanner.handle(SECOND * second, Event::Tick).unwrap();
        assert_eq!(probes(&actions), []);
    }
}

#[test]
fn a_probe_takes_no_longer_than_it_has_to() {
    let link = |rate_mbit_s, latency_ms| Link {
        from: 0,
        to: 1,
        rate_mbit_s,
        latency_ms,
        message_ms: 0.0,
    };
    let size = |link: Link| Tuning::default().probe_size(&link);
    // 20 ms; half as long again as the way; never longer than 32 KiB, nor shorter than two packets.
    assert_eq!(size(link(2.0, 10.0)), 5_000);
    assert_eq!(size(link(2.0, 40.0)), 15_000);
    assert_eq!(size(link(1000.0, 1.0)), 32 << 10);
    assert_eq!(size(link(0.01, 1.0)), 2 << 10);
}

#[test]
fn a_link_is_looked_at_as_soon_as_what_it_held_up_has_come() {
    let mut replanner = replanner(Weights::Everywhere);
    let (from, to) = (0, 1);
    let overdue = Event::Overdue {
        from,
        to,
        arrived: 12_500,
        ms: 1000.0,
    };
    let overdue = |replanner: &mut Replanner<Tiers>, now| replanner.handle(now, overdue.clone()).unwrap();
    let back = |replanner: &mut Replanner<Tiers>, now| {
        let actions = replanner.handle(now, Event::Back { from, to }).unwrap();
        probes(&actions)
    };
    overdue(&mut replanner, SECOND * 3);
    assert_eq!(replanner.plan().assignment, [0; 4]);
    let small = (1, 2 << 10);
    assert_eq!(back(&mut replanner, SECOND * 13 / 4), [small]);
    // A link that is slow, not gone, is not looked at without end.
    overdue(&mut replanner, SECOND * 7 / 2);
    assert_eq!(back(&mut replanner, SECOND * 15 / 4), []);
    assert_eq!(back(&mut replanner, SECOND * 21 / 4), [small]);
    let took = Event::Sent {
        from,
        to,
        bytes: small.1,
        ms: 2.8,
    };
    let actions = replanner.handle(SECOND * 11 / 2, took).unwrap();
    assert_eq!(used(&actions).unwrap().assignment, [0, 0, 2, 2]);
    // The small one may have met others that were held up: a larger one follows at the next tick.
    let actions = replanner.handle(SECOND * 23 / 4, Event::Tick).unwrap();
    let is_larger = |probe: &(usize, u64)| probe.0 == 1 && probe.1 > 5 * small.1;
    assert!(probes(&actions).iter().any(is_larger), "{actions:?}");
}

#[test]
fn a_look_at_a_link_is_one_at_its_way_back_as_well() {
    let mut replanner = replanner(Weights::Everywhere);
    for half in 1..20 {
        let actions = replanner.handle(SECOND * half / 2, Event::Tick).unwrap();
        let ways = |action: &Action| match action {
            Action::Probe { from, to, .. } => Some((*from.min(to), *from.max(to))),
            _ => None,
        };
        let mut looked_at: Vec<(usize, usize)> = actions.iter().filter_map(ways).collect();
        let all = looked_at.len();
        looked_at.sort_unstable();
        looked_at.dedup();
        assert_eq!(looked_at.len(), all, "{actions:?}");
        assert!(
            !actions
                .iter()
                .any(|action| matches!(action, Action::Probe { from: 1, to: 0, .. }))
        );
    }
}
