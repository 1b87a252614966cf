//! Runs with `[swarm]`.

use super::joint::{begun, described, drive_rounds, numbers, part};
use super::*;
use crate::strategy::WeightPolicy;
use crate::swarm::{Mean, MeanRule};
use karman_types::Digest;
use std::collections::BTreeMap;
use std::time::Duration;

/// What clients come to that have all updates of these orders.
fn swarmed(run: &Run, orders: &[(ClientId, Order)]) -> Swarmed {
    let rule = MeanRule {
        grid: run.grid(),
        magnitude: run.limits.magnitude,
    };
    let mut mean = Mean::by_rule(LENGTH, rule);
    let mut parts = Vec::new();
    // In whatever order they have them.
    for (client, order) in orders.iter().rev() {
        let update = train(*client, order);
        let weight = run.weights.weight(update.samples);
        mean.add(&numbers(&update), weight as u32).unwrap();
        parts.push((part(*client, order, &update), weight));
    }
    Swarmed {
        parts,
        absent: Vec::new(),
        mean: mean.finish().unwrap(),
        bytes: 44,
        report: SwarmReport {
            complete: orders.iter().map(|(client, _)| *client).collect(),
            apart: Vec::new(),
            false_pieces: Vec::new(),
            covered: true,
            unprotected: 2,
            warm_up_ms: 12,
            ms: 100,
        },
    }
}

/// Drives a run to its end; a client is lost in the second round before its update got round, and another one in the third, afterwards.
/// `change` is what happens to the mean of the fourth.
fn drive(run: Run, change: impl Fn(&mut Swarmed)) -> World {
    drive_rounds(run.clone(), |world, round, mut training| {
        let (early, late) = (ClientId(3), ClientId(1));
        if round == 2 {
            training.retain(|(client, _)| *client != early);
            world.feed(Event::Gone { client: early });
        }
        if run.swarm.is_none() {
            // It has sent its update before it leaves.
            training.sort_by_key(|(client, _)| *client != late);
            for (client, order) in &training {
                world.feed(answer(*client, order));
                if round == 3 && *client == late {
                    world.feed(Event::Gone { client: late });
                }
            }
            return;
        }
        let mut swarmed = swarmed(&run, &training);
        if round == 3 {
            world.feed(Event::Gone { client: late });
        }
        if round == 4 {
            change(&mut swarmed);
        }
        let swarmed = Box::new(swarmed);
        world.feed(Event::Swarmed { swarmed });
    })
}

#[test]
fn a_run_without_a_server_in_the_middle_comes_to_the_same_bits() {
    let plain = drive(described(""), |_| {});
    let spread = drive(described("[swarm]\n"), |_| {});
    assert_eq!(spread.failures(), [""; 0]);
    assert_eq!(spread.coordinator.status().version, 4);
    assert_eq!(spread.bits(), plain.bits());
    let (plain, spread) = (plain.reports(), spread.reports());
    let clients = |reports: &[RoundReport]| -> Vec<Vec<ClientId>> {
        reports.iter().map(|report| report.clients.clone()).collect()
    };
    assert_eq!(clients(&spread), clients(&plain));
    // Who left when its update had got round is in the mean, and not lost.
    assert_eq!((spread[1].lost, spread[2].lost), (1, 0));
    assert!(plain.iter().all(|report| report.swarm.is_none()));
    let how = spread[0].swarm.as_ref().unwrap();
    assert_eq!((how.complete.len(), how.covered, how.unprotected), (5, true, 2));
    assert!((how.warm_up_share() - 0.12).abs() < 1e-9);
    assert_eq!(spread[0].bytes_up, 44);
}

#[test]
fn a_mean_that_cannot_be_one_fails_its_round_and_only_that() {
    type Change = fn(&mut Swarmed);
    let cases: [(Change, &str); 5] = [
        (|it| it.mean.truncate(3), "3 numbers instead of 11"),
        (|it| it.mean[2] = f32::NAN, "number 2 of it is NaN"),
        (|it| it.mean[0] = -1e4, "the limit `magnitude` is 1000"),
        (|it| it.parts[0].0.loss = f32::NAN, "`loss` is NaN"),
        (|it| it.parts[0].1 += 1, "its update weighs"),
    ];
    for (change, says) in cases {
        let world = drive(described("[swarm]\n"), change);
        let failures = world.failures();
        assert!(
            failures.len() == 1 && failures[0].starts_with("there is no mean of its updates"),
            "{failures:?}"
        );
        assert!(failures[0].contains(says), "{failures:?}");
        assert_eq!(world.coordinator.status().version, 4);
    }
}

#[test]
fn an_update_weighs_what_its_samples_do() {
    let part = Part {
        client: ClientId(1),
        assignment: AssignmentId(7),
        samples: 30,
        steps: 1,
        loss: 0.5,
        took: Duration::ZERO,
    };
    for (weights, due) in [
        (WeightPolicy::Samples, 30),
        (WeightPolicy::Capped(20), 20),
        (WeightPolicy::Uniform, 1),
    ] {
        assert_eq!(part.check_weight(weights, due), Ok(()));
        let refused = Refusal::Weight {
            weight: due + 1,
            samples: 30,
            due,
        };
        assert_eq!(part.check_weight(weights, due + 1), Err(refused));
    }
    // A weight has 32 bits there.
    let many = Part {
        samples: 1 << 40,
        ..part
    };
    assert_eq!(many.check_weight(WeightPolicy::Samples, u32::MAX.into()), Ok(()));
}

#[test]
fn whoever_is_not_in_the_mean_is_named_and_single_updates_are_not_taken() {
    let run = described("[swarm]\n");
    let (mut world, orders) = begun(&run);
    world.feed(answer(orders[0].0, &orders[0].1));
    assert_eq!(world.refusals(), [Refusal::NotAsked]);
    let mut of_three = swarmed(&run, &orders[..3]);
    let why = "left out by all";
    of_three.absent.push(Absent {
        assignment: orders[3].1.assignment,
        why: why.into(),
    });
    let swarmed = Box::new(of_three);
    world.feed(Event::Swarmed { swarmed });
    let lost = |action: &Action| match action {
        Action::Lost { client, loss, .. } => Some((*client, loss.clone())),
        _ => None,
    };
    let lost: Vec<(ClientId, Loss)> = world.seen.iter().filter_map(lost).collect();
    let unheard = "nobody has heard of its update";
    let expected = [
        (orders[3].0, Loss::LeftOut(why.into())),
        (orders[4].0, Loss::LeftOut(unheard.into())),
    ];
    assert_eq!(lost, expected);
    let report = &world.reports()[0];
    assert_eq!((report.clients.len(), report.lost), (3, 2));
}

#[test]
fn means_of_other_rounds_are_not_taken_and_updates_that_stay_where_they_are_fail_theirs() {
    let run = described("[swarm]\n");
    let (mut world, orders) = begun(&run);
    let mut of_others = swarmed(&run, &orders);
    for (part, _) in &mut of_others.parts {
        part.assignment.0 += 100;
    }
    let swarmed = Box::new(of_others);
    world.feed(Event::Swarmed { swarmed });
    assert_eq!(world.coordinator.status().version, 0);
    assert_eq!(world.failures(), [""; 0]);
    let assignments = orders.iter().map(|(_, order)| order.assignment).collect();
    let reason = "only 1 waits for the round".to_owned();
    world.feed(Event::Unsummed {
        assignments,
        liar: None,
        reason,
    });
    assert_eq!(
        world.failures(),
        ["there is no mean of its updates: only 1 waits for the round"]
    );
}

/// Whether its round comes to a mean or not.
#[test]
fn who_gives_others_false_pieces_is_asked_nothing_more_and_the_run_goes_on() {
    for comes_to_a_mean in [true, false] {
        let run = described("[swarm]\n[limits]\nfailed-rounds = 1\n[evaluation]\nevery = 0\n");
        let (mut world, orders) = begun(&run);
        let liar = orders[1].0;
        let event = if comes_to_a_mean {
            let mut swarmed = Box::new(swarmed(&run, &orders));
            swarmed.report.false_pieces.push(liar);
            Event::Swarmed { swarmed }
        } else {
            Event::Unsummed {
                assignments: orders.iter().map(|(_, order)| order.assignment).collect(),
                liar: Some(liar),
                reason: "nobody has a mean".into(),
            }
        };
        world.feed(event);
        assert_eq!(world.refusals(), [Refusal::FalsePieces]);
        assert!(world.seen.contains(&Action::Excluded { client: liar }));
        assert!(!world.coordinator.status().ended);
        world.feed_all();
        let orders = std::mem::take(&mut world.orders);
        let asked: Vec<ClientId> = orders.iter().map(|(client, _)| *client).collect();
        assert!(asked.len() == 4 && !asked.contains(&liar), "{asked:?}");
        let swarmed = Box::new(swarmed(&run, &orders));
        world.feed(Event::Swarmed { swarmed });
        let versions = if comes_to_a_mean { 2 } else { 1 };
        assert_eq!(world.coordinator.status().version, versions);
    }
}

#[test]
fn a_checkpoint_of_a_run_goes_on_to_the_same_bits() {
    let run = described("[swarm]\n");
    let whole = drive(run.clone(), |_| {});
    // That of the first version, with the orders that follow it.
    let (at, checkpoint) = whole
        .checkpoints
        .iter()
        .find(|(_, checkpoint)| checkpoint.version() == 1)
        .cloned()
        .unwrap();
    let mut again = resume(checkpoint);
    for (now, event) in &whole.log[at..] {
        again.handle(*now, event.clone());
    }
    let bits: Vec<u32> = again.model().iter().map(|number| number.to_bits()).collect();
    assert_eq!(bits, whole.bits());
}

#[test]
fn what_more_than_half_have_come_to_counts() {
    let reached = |means: &[u8]| -> BTreeMap<ClientId, Reached> {
        let each = means.iter().enumerate().map(|(client, mean)| {
            let reached = Reached {
                mean: Digest::of(&[*mean]),
                updates: vec![Digest::of(b"one")],
            };
            (ClientId(client as u64), reached)
        });
        each.collect()
    };
    let (what, who) = Reached::agreed(&reached(&[1, 2, 1, 1]), 4).unwrap();
    assert_eq!(what.mean, Digest::of(&[1]));
    assert_eq!(who, [ClientId(0), ClientId(2), ClientId(3)]);
    for (means, most) in [
        (&[1, 2, 1, 2][..], 2),
        (&[1][..], 1),
        (&[][..], 0),
        (&[1, 2, 3, 1, 4][..], 2),
    ] {
        let clients = means.len();
        assert_eq!(
            Reached::agreed(&reached(means), clients),
            Err(Disagreement { clients, most })
        );
    }
    // The same numbers of other updates are another mean.
    let mut two = reached(&[1, 1]);
    two.values_mut().next().unwrap().updates.clear();
    assert!(Reached::agreed(&two, 2).is_err());
    // Two of five are no more than half, though the other three say nothing.
    let two = reached(&[1, 1]);
    assert!(Reached::agreed(&two, 3).is_ok());
    let (clients, most) = (5, 2);
    assert_eq!(Reached::agreed(&two, 5), Err(Disagreement { clients, most }));
}
