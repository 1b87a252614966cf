use super::*;
use proptest::prelude::*;
use std::sync::Arc;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn model(slo: u64, exits: &[(f64, u64)]) -> ServedModel {
    let exit = |(depth, &(accuracy, time)): (u32, &(f64, u64))| Exit {
        depth,
        accuracy,
        times: (1..=4)
            .map(|batch| (batch as usize, ms(time) * (3 + batch) / 4))
            .collect(),
    };
    ServedModel::new(ms(slo), 4, (1..).zip(exits).map(exit).collect()).unwrap()
}

fn models() -> Arc<[ServedModel]> {
    [
        model(50, &[(0.6, 2), (0.75, 4), (0.8, 8)]),
        model(50, &[(0.6, 2), (0.78, 8), (0.81, 16)]),
    ]
    .into()
}

/// A device after these arrivals, each a time in ms and a model.
fn device<P: Serve>(policy: P, arrivals: &[(u64, usize)]) -> Device<usize, P> {
    let mut device = Device::new(models(), policy, 1);
    for (number, &(at, model)) in arrivals.iter().enumerate() {
        device.arrived(ms(at), model, number);
    }
    device
}

fn choice<P: Serve>(policy: P, arrivals: &[(u64, usize)], now: u64) -> Option<Choice> {
    let mut device = device(policy, arrivals);
    let Device { policy, backlog, .. } = &mut device;
    policy.choose(ms(now), backlog)
}

fn run(model: usize, exit: usize, batch: usize) -> Option<Choice> {
    Some(Choice::Run { model, exit, batch })
}

#[test]
fn earliest_deadline_first() {
    let arrivals = [(1, 0), (0, 1), (2, 0), (3, 0)];
    assert_eq!(choice(Edf, &arrivals, 3), run(1, 2, 1));
    assert_eq!(choice(Edf, &arrivals, 40), run(1, 1, 1));
    assert_eq!(choice(Edf, &arrivals, 90), run(1, 0, 1));
    assert_eq!(choice(EdfFinal, &arrivals, 90), run(1, 2, 1));
    assert_eq!(choice(LongestQueue, &arrivals, 3), run(0, 2, 3));
    assert_eq!(choice(Edf, &[], 3), None);
}

#[test]
fn deferred_batches_wait_for_more() {
    let policy = Deferred::default();
    // Two requests would take 16 ms * 5 / 4; the second is due at 50 ms.
    assert_eq!(choice(policy, &[(0, 1)], 1), Some(Choice::Wait { until: ms(30) }));
    assert_eq!(choice(policy, &[(0, 1)], 30), run(1, 2, 1));
    let full = [(0, 0), (0, 0), (1, 0), (1, 0), (1, 0)];
    assert_eq!(choice(policy, &full, 1), run(0, 2, 4));
    assert_eq!(
        choice(policy, &[(0, 1)], 40),
        Some(Choice::Refuse { model: 1, count: 1 })
    );
    let exits = Deferred {
        exits: true,
        margin: 0.2,
    };
    assert_eq!(choice(exits, &[(0, 1)], 1), Some(Choice::Wait { until: ms(20) }));
    assert_eq!(choice(exits, &[(0, 1)], 40), run(1, 1, 1));
}

/// The models, whose requests wait so long for others.
fn gathering(wait: u64) -> Arc<[ServedModel]> {
    let models = models();
    models
        .iter()
        .map(|model| model.clone().with_wait(ms(wait)))
        .collect()
}

#[test]
fn requests_wait_for_others_no_longer_than_they_may() {
    for (wait, until) in [(10, 10), (40, 22)] {
        // The largest batch takes 28 ms, and the answer is due after 50.
        let mut device = Device::new(gathering(wait), Gather::new(Edf), 1);
        device.arrived(ms(0), 1, 0);
        let waits = Action::Wait { until: ms(until) };
        assert_eq!(device.poll(ms(1)), Ok(Some(waits.clone())));
        device.arrived(ms(5), 1, 1);
        assert_eq!(device.poll(ms(5)), Ok(Some(waits)));
        let action = device.poll(ms(until)).unwrap();
        assert!(
            matches!(&action, Some(Action::Run { model: 1, requests, .. }) if requests == &[0, 1]),
            "{action:?}"
        );
    }
}

#[test]
fn a_batch_that_is_full_waits_for_nobody_and_nor_do_others_because_of_one_that_does() {
    let mut device = Device::new(gathering(10), Gather::new(Edf), 1);
    device.arrived(ms(0), 0, 0);
    (1..=4).for_each(|number| device.arrived(ms(1), 1, number));
    let action = device.poll(ms(1)).unwrap();
    assert!(
        matches!(&action, Some(Action::Run { model: 1, requests, .. }) if requests == &[1, 2, 3, 4]),
        "{action:?}"
    );
    // The device is busy until the other one has waited longer than it had to; one more joins it.
    device.arrived(ms(20), 0, 5);
    device.finished(ms(28), ms(28));
    let action = device.poll(ms(29)).unwrap();
    assert!(
        matches!(&action, Some(Action::Run { model: 0, requests, .. }) if requests == &[0, 5]),
        "{action:?}"
    );
}

#[test]
fn what_waits_for_others_is_there_when_everything_is_taken_away() {
    let mut device = Device::new(gathering(10), Gather::new(EdgeServing::default()), 1);
    device.arrived(ms(0), 0, 0);
    assert!(device.poll(ms(0)).unwrap().is_some());
    device.arrived(ms(1), 1, 1);
    assert_eq!(device.clear(1), [0, 1]);
    assert_eq!(device.poll(ms(20)), Ok(None));
}

#[test]
fn models_join_a_device_that_runs_and_take_the_place_of_idle_ones() {
    let mut device = Device::new([].into(), Gather::new(EdgeServing::published()), 1);
    assert_eq!(device.poll(ms(0)), Ok(None));
    let quick = model(50, &[(0.8, 2)]);
    assert_eq!(device.add(quick), 0);
    device.arrived(ms(0), 0, "quick");
    let slow = || model(100, &[(0.9, 20)]);
    assert!(!device.replace(0, slow()), "a request waits");
    assert_eq!(device.add(slow()), 1);
    device.arrived(ms(1), 1, "slow");
    for (now, expected) in [(2, "quick"), (4, "slow")] {
        match device.poll(ms(now)).unwrap() {
            Some(Action::Run {
                requests, planned, ..
            }) => {
                assert_eq!(requests, [expected]);
                device.finished(planned, planned);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(device.replace(0, slow()));
    device.arrived(ms(30), 0, "other");
    let action = device.poll(ms(30)).unwrap();
    assert!(
        matches!(&action, Some(Action::Run { model: 0, planned, .. }) if *planned == ms(20)),
        "{action:?}"
    );
}

#[test]
fn what_is_too_late_may_be_refused() {
    let policy = RefuseLate(Edf);
    assert_eq!(
        choice(policy, &[(0, 0), (40, 1)], 49),
        Some(Choice::Refuse { model: 0, count: 1 })
    );
    assert_eq!(choice(policy, &[(0, 0), (40, 1)], 48), run(0, 0, 1));
}

/// Requests come one by one to a device that was so slow for a while that by its pace all are late, and that is not slow any more: the pace
/// in the end.
fn pace_after_a_slow_while<P: Serve>(policy: P, exit: usize) -> f64 {
    let mut device = Device::new(models(), policy, 1);
    let is_hopeless = |backlog: &Backlog| backlog.time(0, exit, 1) > ms(50);
    while !is_hopeless(device.backlog()) {
        device.finished(ms(1), ms(1000));
    }
    let mut now = ms(0);
    while is_hopeless(device.backlog()) && now < ms(100_000) {
        // Of two that wait, one is enough.
        device.arrived(now, 0, 1);
        device.arrived(now, 0, 2);
        while let Some(action) = device.poll(now).unwrap() {
            match action {
                Action::Run {
                    planned, requests, ..
                } => {
                    assert_eq!(requests, [2]);
                    now += planned;
                    device.finished(planned, planned);
                }
                Action::Refuse { requests, .. } => assert_eq!(requests, [1]),
                Action::Wait { .. } => panic!("for nothing"),
            }
        }
        now += ms(100);
    }
    device.backlog().pace()
}

#[test]
fn a_device_that_was_slow_for_a_while_refuses_not_all_for_ever() {
    let pace = pace_after_a_slow_while(RefuseLate(Edf), 0);
    assert!((24.0..=25.0).contains(&pace), "{pace}");
    let pace = pace_after_a_slow_while(Deferred::default(), 2);
    assert!((6.0..=6.25).contains(&pace), "{pace}");
    // What is late by its profile is refused all the same.
    let mut device = device(RefuseLate(Edf), &[(0, 0)]);
    while device.backlog().time(0, 0, 1) <= ms(50) {
        device.finished(ms(1), ms(1000));
    }
    assert!(matches!(device.poll(ms(49)), Ok(Some(Action::Refuse { .. }))));
}

#[test]
fn edgeserving_takes_back_the_exits_that_lose_the_least() {
    // In no danger: as the deadlines say, as deep as can be.
    assert_eq!(choice(EdgeServing::default(), &[(0, 0), (1, 1)], 2), run(0, 2, 1));
    // Four and four, due in 30 ms, take 14 + 28 ms. The second model gains 14 ms for 0.03 with its second exit.
    let arrivals: Vec<_> = (0..8).map(|n| (0, usize::from(n >= 4))).collect();
    let mut device = device(EdgeServing::default(), &arrivals);
    for (now, expected) in [(20, (0, 2)), (34, (1, 1))] {
        let action = device.poll(ms(now)).unwrap();
        let Some(Action::Run { model, exit, .. }) = action else {
            panic!("{action:?}")
        };
        assert_eq!((model, exit), expected);
        device.finished(ms(1), ms(1));
    }
}

#[test]
fn what_waits_behind_a_batch_that_cannot_be_in_time_is_planned_for() {
    // Four are past their time, whatever is done. The other four, due in 15 ms, come after these: their first exit takes 3.5 ms, their
    // second 14, so that only with the first one they are in time after the 3.5 ms that the late ones take at least.
    let arrivals: Vec<_> = [(0, 0); 4].into_iter().chain([(25, 1); 4]).collect();
    let device = device(EdgeServing::default(), &arrivals);
    let mut plan = plan::Plan::default();
    assert!(plan.make(ms(60), &device.backlog));
    assert_eq!(plan.exits, [0, 0]);
}

#[test]
fn as_published_each_batch_goes_as_deep_as_it_may() {
    let arrivals: Vec<_> = (0..8).map(|n| (0, usize::from(n >= 4))).collect();
    let Some(Choice::Run { exit, .. }) = choice(EdgeServing::published(), &arrivals, 20) else {
        panic!()
    };
    assert_eq!(exit, 2);
}

#[test]
fn the_pace_follows_what_batches_take() {
    let mut backlog = Backlog::new(models());
    let mut random = fastrand::Rng::with_seed(1);
    // From 1.5 to 2 times as long as planned: 95 of 100 are below 1.975.
    let mut batch = |backlog: &mut Backlog| {
        let took = ms(100).mul_f64(1.5 + random.f64() / 2.0);
        let slow = took > ms(100).mul_f64(backlog.pace());
        backlog.took(ms(100), took);
        slow
    };
    for _ in 0..100 {
        batch(&mut backlog);
    }
    let slow = (0..10_000).filter(|_| batch(&mut backlog)).count();
    assert!(slow.abs_diff(500) < 60, "{slow}");
    assert_eq!(backlog.seconds(0, 2, 1), 0.008 * backlog.pace());
}

#[test]
fn a_policy_that_wants_what_is_not_there_is_told() {
    struct Greedy(Choice);
    impl Serve for Greedy {
        fn choose(&mut self, _: Duration, _: &Backlog) -> Option<Choice> {
            Some(self.0)
        }
    }
    for choice in [
        Choice::Run {
            model: 2,
            exit: 0,
            batch: 1,
        },
        Choice::Run {
            model: 0,
            exit: 3,
            batch: 1,
        },
        Choice::Run {
            model: 0,
            exit: 0,
            batch: 2,
        },
        Choice::Run {
            model: 0,
            exit: 0,
            batch: 0,
        },
        Choice::Refuse { model: 1, count: 1 },
        Choice::Refuse { model: 0, count: 0 },
    ] {
        let mut device = device(Greedy(choice), &[(0, 0)]);
        let refused = device.poll(ms(1)).unwrap_err();
        assert!(refused.choice == choice && refused.to_string().contains("the policy chose"));
        assert_eq!(device.backlog().len(0), 1);
    }
}

proptest! {
    /// With every policy: what comes is run or refused once, oldest first; batches hold together; no policy waits for ever.
    #[test]
    fn nothing_is_lost_or_overtaken(
        policy in 0..8usize,
        wait in 0..30u64,
        arrivals in proptest::collection::vec((0..20u64, 0..2usize), 1..80),
        servers in 1..3usize,
    ) {
        let policy: Box<dyn Serve> = match policy {
            0 => Box::new(Edf),
            1 => Box::new(EdfFinal),
            2 => Box::new(LongestQueue),
            3 => Box::new(Deferred { exits: false, margin: 0.1 }),
            4 => Box::new(Deferred { exits: true, margin: 0.0 }),
            5 => Box::new(RefuseLate(EdgeServing::default())),
            6 => Box::new(Gather::new(EdgeServing::default())),
            _ => Box::new(EdgeServing::published()),
        };
        let mut device = Device::new(gathering(wait), policy, servers);
        let mut seen = [Vec::new(), Vec::new()];
        let (mut now, mut running) = (Duration::ZERO, Vec::new());
        let mut pending = arrivals.iter().enumerate().peekable();
        let mut due = Duration::ZERO;
        for _ in 0..10_000 {
            let mut wake = None;
            while let Some(action) = device.poll(now).unwrap() {
                match action {
                    Action::Run { model, planned, requests, .. } => {
                        running.push((now + planned, planned));
                        seen[model].extend(requests);
                    }
                    Action::Refuse { model, requests } => seen[model].extend(requests),
                    Action::Wait { until } => {
                        prop_assert!(until > now);
                        wake = Some(until);
                        break;
                    }
                }
            }
            prop_assert!(running.len() <= servers);
            let next = pending.peek().map(|(_, (gap, _))| due + ms(*gap));
            let ends = running.iter().map(|(end, _)| *end);
            let Some(then) = [next, wake].into_iter().flatten().chain(ends).min() else { break };
            now = then;
            if let Some(index) = running.iter().position(|(end, _)| *end == now) {
                let (_, planned) = running.swap_remove(index);
                device.finished(planned, planned);
            } else if next == Some(now) {
                let (number, (_, model)) = pending.next().unwrap();
                due = now;
                device.arrived(now, *model, number);
            }
        }
        for (model, seen) in seen.iter().enumerate() {
            let sent: Vec<usize> = arrivals.iter().enumerate().filter(|(_, a)| a.1 == model).map(|(n, _)| n).collect();
            prop_assert_eq!(seen, &sent);
        }
    }
}
