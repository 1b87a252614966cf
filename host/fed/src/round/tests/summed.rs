//! Runs with `[secure-sum]`.

use super::joint::{begun, described, drive_rounds, numbers, part};
use super::*;
use karman_tensor::arithmetic::{FixedSum, Term};

/// The sum of what these come to, as secret sums have it.
fn sum(run: &Run, orders: &[(ClientId, Order)]) -> Summed {
    let mut sum = FixedSum::new(LENGTH, run.grid());
    let mut summed = Summed {
        parts: Vec::new(),
        elements: Vec::new(),
        weight: 0,
        bytes: 100,
    };
    for (client, order) in orders {
        let update = train(*client, order);
        let values = &numbers(&update);
        let factor = run.weights.weight(update.samples);
        sum.add(&[Term {
            values,
            factor: factor as f64,
        }])
        .unwrap();
        summed.weight += factor;
        summed.parts.push(part(*client, order, &update));
    }
    summed.elements = sum.parts().to_vec();
    summed
}

/// Drives a run to its end; a client is lost in the second round. `change` is what happens to the sum of the third.
fn drive(run: Run, change: impl Fn(&mut Summed)) -> World {
    drive_rounds(run.clone(), |world, round, mut training| {
        if round == 2 {
            let client = ClientId(3);
            training.retain(|(trains, _)| *trains != client);
            world.feed(Event::Gone { client });
        }
        if run.secure_sum.is_none() {
            training
                .iter()
                .for_each(|(client, order)| world.feed(answer(*client, order)));
            return;
        }
        for (_, order) in &training {
            let bounded = matches!(&order.work, Work::Train(train) if train.most_steps.is_some());
            assert!(!bounded, "clients of one sum all do the same");
        }
        let mut sum = sum(&run, &training);
        if round == 3 {
            change(&mut sum);
        }
        let sum = Box::new(sum);
        world.feed(Event::Summed { sum });
    })
}

#[test]
fn a_run_whose_updates_nobody_sees_comes_to_the_same_bits() {
    let plain = drive(described(""), |_| {});
    let secret = drive(described("[secure-sum]\n"), |_| {});
    assert_eq!(secret.bits(), plain.bits());
    assert_eq!(secret.failures(), [""; 0]);
    assert_eq!(secret.coordinator.status().version, 4);
}

#[test]
fn a_sum_that_cannot_be_one_fails_its_round_and_only_that() {
    type Change = fn(&mut Summed);
    let cases: [(Change, &str); 4] = [
        (|sum| sum.weight += 1, "the weights in it come to"),
        (|sum| sum.elements[0] = i64::MIN, "number 0 of the sum"),
        (|sum| sum.elements.truncate(3), "3 numbers instead of 11"),
        (|sum| sum.parts[0].loss = f32::NAN, "declare what cannot be"),
    ];
    for (change, says) in cases {
        let world = drive(described("[secure-sum]\n"), change);
        let failures = world.failures();
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(failures[0].contains(says), "{failures:?}");
        assert_eq!(world.coordinator.status().version, 4);
    }
}

#[test]
fn sums_of_other_orders_and_single_updates_are_not_taken() {
    let run = described("[secure-sum]\n");
    let (mut world, orders) = begun(&run);
    let mut of_others = sum(&run, &orders);
    of_others
        .parts
        .iter_mut()
        .for_each(|part| part.assignment.0 += 100);
    let of_others = Box::new(of_others);
    world.feed(Event::Summed { sum: of_others });
    world.feed(answer(orders[0].0, &orders[0].1));
    assert_eq!(world.refusals(), [Refusal::NotAsked]);
    assert_eq!(world.coordinator.status().gathered, 0);
    assert_eq!(world.failures(), [""; 0]);
    let reason = "only 2 are left".to_owned();
    let assignments = orders.iter().map(|(_, order)| order.assignment).collect();
    world.feed(Event::Unsummed {
        assignments,
        liar: None,
        reason,
    });
    assert_eq!(
        world.failures(),
        ["there is no sum of its updates: only 2 are left"]
    );
}

/// One failed round ends this run, but none that fails by somebody's lie.
#[test]
fn who_lies_in_a_sum_is_asked_nothing_more_and_the_run_goes_on() {
    let run = described("[secure-sum]\n[limits]\nfailed-rounds = 1\n[evaluation]\nevery = 0\n");
    let (mut world, orders) = begun(&run);
    let liar = orders[1].0;
    let assignments = orders.iter().map(|(_, order)| order.assignment).collect();
    world.feed(Event::Unsummed {
        assignments,
        liar: Some(liar),
        reason: "somebody lies".into(),
    });
    assert_eq!(world.refusals(), [Refusal::FalseSecret]);
    assert_eq!(
        world.failures(),
        ["there is no sum of its updates: somebody lies"]
    );
    assert!(world.seen.contains(&Action::Excluded { client: liar }));
    assert!(!world.coordinator.status().ended);
    world.feed_all();
    let orders = std::mem::take(&mut world.orders);
    let asked: Vec<ClientId> = orders.iter().map(|(client, _)| *client).collect();
    assert_eq!(asked.len(), 4, "{asked:?}");
    assert!(!asked.contains(&liar), "{asked:?}");
    let sum = Box::new(sum(&run, &orders));
    world.feed(Event::Summed { sum });
    assert_eq!(world.coordinator.status().version, 1);
    // A round that fails for another reason counts.
    world.feed_all();
    let orders = std::mem::take(&mut world.orders);
    let assignments = orders.iter().map(|(_, order)| order.assignment).collect();
    world.feed(Event::Unsummed {
        assignments,
        liar: None,
        reason: "too few".into(),
    });
    world.feed_all();
    assert!(world.coordinator.status().ended);
}

#[test]
fn a_client_that_sends_an_update_in_place_of_a_judgement_is_not_waited_for() {
    let run = described("[secure-sum]\n[evaluation]\nclients = 1\n");
    let (mut world, orders) = begun(&run);
    let sum = Box::new(sum(&run, &orders));
    world.feed(Event::Summed { sum });
    world.feed_all();
    let judges = |(_, order): &&(ClientId, Order)| order.work == Work::Evaluate;
    let (client, assignment) = world
        .orders
        .iter()
        .find(judges)
        .map(|(client, order)| (*client, order.assignment))
        .unwrap();
    assert!(world.coordinator.judges(client, assignment));
    let update = Box::new(train(orders[0].0, &orders[0].1));
    world.feed(Event::Updated {
        client,
        assignment,
        update,
    });
    assert_eq!(world.refusals(), [Refusal::NotAsked]);
    assert!(!world.coordinator.judges(client, assignment));
}

#[test]
fn a_sum_with_somebody_who_was_given_up_fails_its_round_at_once() {
    let run = described("[secure-sum]\n");
    let (mut world, orders) = begun(&run);
    let everybody = Box::new(sum(&run, &orders));
    let client = orders[3].0;
    world.feed(Event::Gone { client });
    assert_eq!(world.failures(), [""; 0]);
    world.feed(Event::Summed { sum: everybody });
    let failures = world.failures();
    let expected = format!("{client} is in it, and was given up meanwhile");
    assert!(
        failures.len() == 1 && failures[0].contains(&expected),
        "{failures:?}"
    );
}

#[test]
fn whoever_declares_what_cannot_be_is_refused_and_the_others_are_summed() {
    let run = described("[secure-sum]\n");
    let (mut world, orders) = begun(&run);
    let Summed { parts, .. } = sum(&run, &orders);
    let part = Part {
        samples: 0,
        ..parts[2]
    };
    assert!(part.check(&run.limits).is_err());
    assert_eq!(parts[2].check(&run.limits), Ok(()));
    world.feed(Event::Misdeclared { part });
    let most = run.limits.samples;
    assert_eq!(world.refusals(), [Refusal::Samples { samples: 0, most }]);
    let others: Vec<_> = orders
        .iter()
        .filter(|(client, _)| *client != part.client)
        .cloned()
        .collect();
    let sum = Box::new(sum(&run, &others));
    world.feed(Event::Summed { sum });
    assert_eq!(world.failures(), [""; 0]);
    assert_eq!(world.coordinator.status().version, 1);
}

#[test]
fn a_round_waits_for_as_many_as_a_sum_is_made_of() {
    for (least, needed) in [(2, 3), (4, 4)] {
        let run = run(&format!(
            "rounds = 1\nstart-with = 1\n[pace]\nmode = 'synchronous'\nclients = 5\n[secure-sum]\nleast = {least}\n"
        ));
        let mut world = World::new(coordinator(run), needed - 1, 1);
        world.feed_all();
        assert!(world.orders.is_empty(), "{least}");
        world.feed(here(needed - 1));
        world.feed_all();
        assert_eq!(world.orders.len() as u64, needed, "{least}");
    }
}

#[test]
fn clients_of_a_sum_are_measured_by_their_own_time() {
    let run = described("[secure-sum]\n");
    let (mut world, orders) = begun(&run);
    let sum = Box::new(sum(&run, &orders));
    world.feed(Event::Summed { sum });
    for (client, _) in &orders {
        let member = &world.coordinator.core.roster[client];
        assert_eq!(member.seconds, Some(client.0 as f64), "{client}");
    }
}
