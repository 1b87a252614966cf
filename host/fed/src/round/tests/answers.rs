//! What becomes of answers: bad ones, late ones, stale ones, and those that nobody waits for.

use super::*;
use std::collections::BTreeMap;

#[test]
fn each_bad_update_is_named_and_the_round_goes_on() {
    let bad = |update: &dyn Fn(Update) -> Update, expected: &str| {
        let run = run("rounds = 1\n[pace]\nmode = 'synchronous'\nclients = 4\n[evaluation]\nevery = 0\n");
        let mut world = World::new(coordinator(Run { start_with: 4, ..run }), 4, 1);
        while world.orders.is_empty() {
            world.step();
        }
        let place = world.orders.iter().position(|(client, _)| client.0 == 2).unwrap();
        let (client, order) = world.orders.remove(place);
        let update = Box::new(update(train(client, &order)));
        world.feed(Event::Updated {
            client,
            assignment: order.assignment,
            update,
        });
        let world = world.finish();
        let refusals = world.refusals();
        assert_eq!(refusals.len(), 1, "{refusals:?}");
        assert!(
            refusals[0].to_string().contains(expected),
            "{} does not say {expected}",
            refusals[0]
        );
        let closed = world.seen.iter().find_map(|action| match action {
            Action::Closed(report) => Some(report),
            _ => None,
        });
        let closed = closed.expect("the round goes on without it");
        assert_eq!(closed.clients, [ClientId(0), ClientId(1), ClientId(3)]);
        assert_eq!(closed.lost, 1);
    };
    let nan = Encoded::encode([2, 3].into(), &[1.0; 6], Encoding::F32)
        .unwrap()
        .to_bytes();
    let mut nan = nan.to_vec();
    nan[12..16].copy_from_slice(&f32::NAN.to_le_bytes());
    let nan = Bytes::from(nan);
    let with_first = |frame: Bytes| {
        move |update: Update| {
            let mut frames = update.frames;
            frames[0] = frame.clone();
            Update { frames, ..update }
        }
    };
    bad(&with_first(nan), "not finite");
    let other = Encoded::encode([3, 2].into(), &[1.0; 6], Encoding::F32)
        .unwrap()
        .to_bytes();
    bad(&with_first(other), "has the shape [3, 2] instead of [2, 3]");
    let large = Encoded::encode([2, 3].into(), &[2000.0; 6], Encoding::F32)
        .unwrap()
        .to_bytes();
    bad(&with_first(large), "the limit `magnitude` is 1000");
    bad(&with_first(Bytes::from_static(&[9, 9, 9, 9])), "array 0");
    bad(
        &|update| Update {
            samples: u64::MAX,
            ..update
        },
        "the limit `samples` of 100000",
    );
    bad(&|update| Update { samples: 0, ..update }, "0 samples");
    bad(&|update| Update { steps: 0, ..update }, "not taken a step");
    bad(
        &|update| Update {
            loss: f32::INFINITY,
            ..update
        },
        "its `loss` is inf",
    );
    bad(
        &|update| Update {
            frames: update.frames[..1].to_vec(),
            ..update
        },
        "1 arrays instead of 2",
    );
}

#[test]
fn answers_that_nobody_waits_for_change_nothing() {
    let run = run(
        "rounds = 2\nstart-with = 3\n[pace]\nmode = 'synchronous'\nclients = 3\n[evaluation]\nevery = 0\n",
    );
    let mut world = World::new(coordinator(run), 3, 1);
    while world.orders.is_empty() {
        world.step();
    }
    let (client, order) = world.orders[0].clone();
    let answer_of = |client| Event::Updated {
        client,
        assignment: order.assignment,
        update: Box::new(train(client, &order)),
    };
    let other = ClientId((client.0 + 1) % 3);
    world.feed(answer_of(other));
    world.feed(answer_of(client));
    world.feed(answer_of(client));
    world.orders.remove(0);
    while world.coordinator.status().version == 0 || !world.events.is_empty() {
        world.step();
    }
    // A round later it is late, though it was answered before the last order.
    let late = world.orders.iter().position(|(it, _)| *it == client).unwrap();
    let (_, second) = world.orders.remove(late);
    world.feed(answer(client, &second));
    world.feed(answer_of(client));
    world.feed(Event::Updated {
        client,
        assignment: AssignmentId(99),
        update: Box::default(),
    });
    let expected = [
        Refusal::NotAsked,
        Refusal::Duplicate,
        Refusal::Late,
        Refusal::NotAsked,
    ];
    assert_eq!(world.refusals(), expected);
    assert_eq!(world.finish().coordinator.status().version, 2);
}

#[test]
fn after_a_restart_answers_to_orders_of_before_are_taken() {
    let run = run(
        "rounds = 1\nstart-with = 2\n[pace]\nmode = 'synchronous'\nclients = 2\n[evaluation]\nevery = 0\n",
    );
    let mut world = World::new(coordinator(run), 2, 1);
    while world.orders.is_empty() {
        world.step();
    }
    let (_, durable) = world.checkpoints.pop().unwrap();
    let mut resumed = resume(durable);
    for (client, order) in &world.orders {
        resumed.handle(world.now, answer(*client, order));
    }
    assert_eq!(resumed.status().version, 1);
    assert_eq!(resumed.model(), world.finish().coordinator.model());
}

#[test]
fn who_sends_too_much_nonsense_is_not_asked_again() {
    let run = run("rounds = 9\n[pace]\nmode = 'synchronous'\nclients = 4\n[evaluation]\nevery = 0\n");
    let mut world = World::new(coordinator(run), 4, 1);
    let mut asked = 0;
    loop {
        if let Some(place) = world.orders.iter().position(|(client, _)| client.0 == 3) {
            asked += 1;
            let (client, order) = world.orders.remove(place);
            let update = Box::new(Update {
                samples: 0,
                ..train(client, &order)
            });
            world.feed(Event::Updated {
                client,
                assignment: order.assignment,
                update,
            });
        } else if !world.step() {
            break;
        }
    }
    assert_eq!(asked, 3);
    assert!(world.seen.contains(&Action::Excluded { client: ClientId(3) }));
    assert_eq!(world.coordinator.status().version, 9);
}

#[test]
fn half_of_a_round_is_enough_and_who_is_late_counts_later() {
    let run = described("name = 'fed-avg'", "random", SEMI);
    let mut world = World::new(coordinator(Run { start_with: 9, ..run }), 9, 3);
    let mut reports = Vec::new();
    while world.step() {
        for action in world.seen.drain(..) {
            if let Action::Closed(report) = action {
                reports.push(report);
            }
        }
    }
    assert_eq!(reports.len(), 5);
    assert!(reports.iter().all(|report| report.clients.len() == 5));
    assert_eq!(reports[0].staleness, 0.0);
    assert!(reports.iter().any(|report| report.staleness > 0.0));
}

#[test]
fn a_stale_update_counts_by_the_root_of_its_age() {
    let text = "rounds = 2\nweights = 'uniform'\n[pace]\nmode = 'buffered'\nat-once = 2\nbuffer = 1\n[evaluation]\nevery = 0\n";
    let mut coordinator = coordinator(run(text));
    let mut orders = Vec::new();
    let mut feed = |coordinator: &mut Coordinator, event| {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in coordinator.handle(Instant(1), event) {
                match action {
                    Action::Save { ticket, .. } => events.push_back(Event::Saved { ticket }),
                    Action::Send { client, order } => orders.push((client, order.assignment)),
                    _ => {}
                }
            }
        }
        orders.clone()
    };
    feed(&mut coordinator, here(0));
    let orders = feed(&mut coordinator, here(1));
    let update = |amount: f32| {
        Box::new(Update {
            frames: frames(&[amount; LENGTH]),
            samples: 1,
            steps: 1,
            loss: 0.0,
        })
    };
    for (client, assignment) in &orders[..2] {
        let event = Event::Updated {
            client: *client,
            assignment: *assignment,
            update: update(1.0),
        };
        feed(&mut coordinator, event);
    }
    let expected = 1.0 + 1.0 / 2f32.sqrt();
    assert!(
        (coordinator.model()[0] - expected).abs() < 1e-6,
        "{}",
        coordinator.model()[0]
    );
}

#[test]
fn who_cannot_do_its_work_in_a_buffered_run_gets_more_with_the_next_version() {
    let text = "rounds = 2\nweights = 'uniform'\n[pace]\nmode = 'buffered'\nat-once = 2\nbuffer = 1\n[evaluation]\nevery = 0\n";
    let mut world = World::new(coordinator(run(text)), 2, 1);
    let gives_up = |world: &mut World, (client, order): (ClientId, Order)| {
        world.feed(Event::GaveUp {
            client,
            assignment: order.assignment,
            reason: "it traps".into(),
        });
        world.feed_all();
    };
    world.feed_all();
    let first = world.orders.remove(0);
    gives_up(&mut world, first);
    assert_eq!(world.orders.len(), 1, "it is not asked again at once");
    let (client, order) = world.orders.remove(0);
    world.feed(answer(client, &order));
    world.feed_all();
    assert_eq!(world.orders.len(), 2);
    // Where it is all of them, the round has failed, and they try again, but not for ever.
    for _ in 0..20 {
        if let Some(order) = world.orders.pop() {
            gives_up(&mut world, order);
        }
    }
    assert!(world.orders.is_empty());
    let ended = |action: &Action| {
        matches!(
            action,
            Action::Finished {
                failure: Some(Failure::Rounds { .. }),
                ..
            }
        )
    };
    assert!(world.seen.iter().any(ended), "{:?}", world.seen.last());
}

#[test]
fn what_a_buffered_run_has_gathered_outlasts_that_nobody_can_train_the_version() {
    let text = "rounds = 1\n[pace]\nmode = 'buffered'\nat-once = 2\nbuffer = 2\n[evaluation]\nevery = 0\n";
    let mut world = World::new(coordinator(run(text)), 2, 1);
    world.feed_all();
    let (client, order) = world.orders.remove(0);
    world.feed(answer(client, &order));
    world.feed_all();
    for (client, order) in std::mem::take(&mut world.orders) {
        let assignment = order.assignment;
        let reason = "it traps".into();
        world.feed(Event::GaveUp {
            client,
            assignment,
            reason,
        });
        world.feed_all();
    }
    assert_eq!(world.failures().len(), 1, "{:?}", world.failures());
    assert_eq!(world.coordinator.status().gathered, 1);
    let (client, order) = world.orders.remove(0);
    world.feed(answer(client, &order));
    assert_eq!(world.coordinator.status().version, 1, "it takes one more");
}

#[test]
fn a_run_that_was_about_to_end_ends_at_the_next_start() {
    let world = World::new(coordinator(run("rounds = 1\n")), 12, 1).finish();
    assert!(world.coordinator.status().ended);
    let (_, checkpoint) = world.checkpoints.last().unwrap();
    let mut again = World::new(resume(checkpoint.clone()), 0, 1);
    assert!(!again.coordinator.status().ended);
    let windows = Windows::new();
    again.feed(Event::Severed { windows });
    let again = again.finish();
    assert!(again.coordinator.status().ended);
    assert_eq!(again.bits(), world.bits());
}

#[test]
fn who_is_asked_again_hears_which_of_its_answers_counted() {
    let run = run("rounds = 4\n[pace]\nmode = 'synchronous'\nclients = 4\n[evaluation]\nevery = 0\n");
    let world = World::new(coordinator(Run { start_with: 4, ..run }), 4, 1).finish();
    let mut last = BTreeMap::new();
    for action in &world.seen {
        if let Action::Send { client, order } = action
            && let Work::Train(train) = &order.work
        {
            assert_eq!(train.counted, last.insert(*client, order.assignment));
        }
    }
    assert_eq!(last.len(), 4);
}
