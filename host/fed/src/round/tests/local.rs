//! Runs with `[local-privacy]`.

use super::*;
use crate::LocalPrivacy;
use crate::privacy::Adjacency;
use crate::select::NotEligible;
use proptest::prelude::*;
use std::collections::BTreeMap;

const CLIENTS: u64 = 9;

fn local(pace: &str, more: &str) -> Run {
    run(&format!(
        "rounds = 6\nweights = 'uniform'\n[pace]\n{pace}\n[local-privacy]\nnoise-multiplier = 1.5\nnorm = 0.5\n{more}\n"
    ))
}

/// ε of so many updates.
fn epsilon(run: &Run, updates: u64) -> f64 {
    let mechanism = run.local_privacy.unwrap().mechanism().unwrap();
    mechanism
        .spent_after(updates, LocalPrivacy::USUAL_DELTA)
        .unwrap()
        .epsilon
}

/// How many updates each client has sent up to here.
fn sent(log: &[(Instant, Event)]) -> BTreeMap<ClientId, u64> {
    let mut sent = BTreeMap::new();
    for (_, event) in log {
        if let Event::Updated { client, .. } = event {
            *sent.entry(*client).or_default() += 1;
        }
    }
    sent
}

fn passed_over(world: &World) -> Vec<(u64, NotEligible)> {
    let passed = |action: &Action| match action {
        Action::PassedOver { client, why } => Some((client.0, *why)),
        _ => None,
    };
    world.seen.iter().filter_map(passed).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_run_knows_what_its_clients_have_given_away_and_still_does_after_a_restart(
        seed: u64, pace in prop::sample::select(vec![SYNCHRONOUS, SEMI, BUFFERED]),
    ) {
        let described = local(pace, "");
        let world = World::new(coordinator(described.clone()), CLIENTS, seed).finish();
        let most = sent(&world.log).into_values().max().unwrap();
        let spent = world.coordinator.status().spent.unwrap();
        prop_assert_eq!((spent.rounds, spent.adjacency), (most, Adjacency::AnyTwoUpdates));
        prop_assert_eq!(spent.epsilon, epsilon(&described, most));
        for (at, checkpoint) in &world.checkpoints {
            let before = sent(&world.log[..*at]).into_values().max().unwrap_or(0);
            let spent = resume(checkpoint.clone()).status().spent.unwrap();
            prop_assert_eq!((spent.rounds, spent.epsilon > 0.0), (before, before > 0));
        }
    }

    #[test]
    fn nobody_is_asked_for_more_than_it_may_give_away_and_then_the_run_ends(
        seed: u64, pace in prop::sample::select(vec![SYNCHRONOUS, SEMI, BUFFERED]),
    ) {
        let two = epsilon(&local(pace, ""), 2) + 1e-6;
        let described = local(pace, &format!("most-epsilon = {two}"));
        let world = World::new(coordinator(Run { rounds: 100, ..described }), CLIENTS, seed).finish();
        let sent = sent(&world.log);
        prop_assert!(sent.values().all(|updates| *updates <= 2), "{:?}", sent);
        let status = world.coordinator.status();
        prop_assert!(status.ended && status.version >= 2, "{:?}", status);
        let given_away = matches!(status.failure, Some(Failure::GivenAway { .. }));
        prop_assert!(given_away, "{:?}", status);
        let told = passed_over(&world);
        let by_the_run = |(_, why): &(u64, NotEligible)| matches!(why, NotEligible::Epsilon { most, .. } if *most == two);
        prop_assert!(told.iter().all(by_the_run), "{:?}", told);
    }
}

#[test]
fn an_operator_may_let_its_client_give_away_less() {
    let described = local(SYNCHRONOUS, "");
    let mut world = World::new(coordinator(described.clone()), CLIENTS, 1);
    let profile = Profile {
        samples: 10,
        most_epsilon: Some(epsilon(&described, 3) + 1e-6),
        ..Profile::default()
    };
    let client = ClientId(4);
    world.events[4] = Event::Here { client, profile };
    let world = world.finish();
    assert_eq!(world.coordinator.status().version, 6);
    let sent = sent(&world.log);
    assert_eq!((sent[&client], sent[&ClientId(0)]), (3, 6));
    let told = passed_over(&world);
    assert!(
        matches!(told[..], [(4, NotEligible::EpsilonOfNode { .. })]),
        "{told:?}"
    );
}

#[test]
fn an_update_that_is_refused_has_been_given_away_all_the_same() {
    let mut world = World::new(coordinator(local(SYNCHRONOUS, "")), CLIENTS, 1);
    world.feed_all();
    let (client, order) = world.orders[0].clone();
    let Event::Updated { mut update, .. } = answer(client, &order) else {
        panic!("it trains")
    };
    update.frames.pop();
    let assignment = order.assignment;
    let refused = Event::Updated {
        client,
        assignment,
        update,
    };
    world.feed(refused.clone());
    // Sent once more it is the same update.
    world.feed(refused);
    assert_eq!(world.refusals().len(), 2);
    assert_eq!(world.coordinator.status().spent.unwrap().rounds, 1);
}

#[test]
fn who_gives_up_because_it_has_nothing_left_to_give_is_not_asked_for_ever() {
    let bounded = format!("most-epsilon = {}", epsilon(&local(BUFFERED, ""), 2) + 1e-6);
    let mut world = World::new(coordinator(local(BUFFERED, &bounded)), CLIENTS, 1);
    world.feed_all();
    let mut asked = 0;
    while let Some((client, order)) = world.orders.pop() {
        asked += 1;
        let (assignment, reason) = (order.assignment, "no more".into());
        let gave_up = Event::GaveUp {
            client,
            assignment,
            reason,
        };
        world.feed(gave_up);
        world.feed_all();
    }
    assert_eq!(asked, 2 * CLIENTS);
    let failure = world.coordinator.status().failure;
    assert_eq!(failure, Some(Failure::GivenAway { left: 0, least: 1 }));
}
