//! Runs with `[privacy]`.

use super::*;
use crate::privacy::{Accountant, Adjacency, Participants, Rate};
use std::collections::{BTreeMap, BTreeSet};

const CLIENTS: u64 = 12;

fn private(more: &str, privacy: &str) -> Run {
    run(&format!(
        "rounds = 6\nstart-with = {CLIENTS}\nweights = 'uniform'\n{more}\n[pace]\nmode = 'synchronous'\nclients = 8\n\
         [privacy]\nnoise-multiplier = 1.5\nclipping = {{ kind = 'fixed', norm = 0.5 }}\n{privacy}\n"
    ))
}

#[test]
fn each_version_says_what_was_spent_by_the_accountant() {
    let world = World::new(coordinator(private("", "")), CLIENTS, 1).finish();
    let mut accountant = Accountant::new(Adjacency::AddOrRemoveClient);
    for report in world.reports() {
        accountant.add(1.5, &Participants::chosen(Vec::new())).unwrap();
        let spent = accountant.spent(1e-5).unwrap();
        assert_eq!(report.epsilon, Some(spent.epsilon));
    }
    let status = world.coordinator.status();
    assert_eq!((status.version, status.spent.unwrap().rounds), (6, 6));
}

#[test]
fn drawn_clients_cost_less_and_are_not_always_the_same() {
    let chosen = World::new(coordinator(private("", "")), CLIENTS, 1).finish();
    let drawn = World::new(coordinator(private("", "rate = 0.4")), CLIENTS, 1).finish();
    let epsilon = |world: &World| world.coordinator.status().spent.unwrap().epsilon;
    assert!(
        epsilon(&drawn) < epsilon(&chosen),
        "{} {}",
        epsilon(&drawn),
        epsilon(&chosen)
    );
    let sizes: Vec<usize> = drawn
        .reports()
        .iter()
        .map(|report| report.clients.len())
        .collect();
    assert!(sizes.iter().any(|size| *size != sizes[0]), "{sizes:?}");
    let mut accountant = Accountant::new(Adjacency::AddOrRemoveClient);
    let rate = Rate::new(0.4).unwrap();
    for _ in 0..6 {
        accountant
            .add(1.5, &Participants::poisson(&[], rate, &[0; 32], 1))
            .unwrap();
    }
    assert_eq!(epsilon(&drawn), accountant.spent(1e-5).unwrap().epsilon);
}

/// Who trains each version, and by which seed.
fn trainings(world: &World) -> BTreeMap<u64, BTreeMap<ClientId, u64>> {
    let mut trainings: BTreeMap<u64, BTreeMap<ClientId, u64>> = BTreeMap::new();
    for action in &world.seen {
        if let Action::Send { client, order } = action
            && let Work::Train(train) = &order.work
        {
            let version = trainings.entry(order.version).or_default();
            version.insert(*client, train.seed);
        }
    }
    trainings
}

/// The account is of a sum that moves by two updates: that of the client, and that of another one in its place.
#[test]
fn a_client_that_is_there_or_not_displaces_one_other_at_most() {
    let with = trainings(&World::new(coordinator(private("", "")), CLIENTS, 1).finish());
    let mut displaced = 0;
    for client in (0..CLIENTS).map(ClientId) {
        let fewer = Run {
            start_with: CLIENTS as usize - 1,
            ..private("", "")
        };
        let mut world = World::new(coordinator(fewer), CLIENTS, 1);
        world
            .events
            .retain(|event| !matches!(event, Event::Here { client: one, .. } if *one == client));
        let without = trainings(&world.finish());
        for (version, with) in &with {
            let without = &without[version];
            let others = |(one, seed): &(&ClientId, &u64)| without.get(*one) != Some(*seed);
            let gone: Vec<_> = with.iter().filter(others).map(|(one, _)| *one).collect();
            let come = without.keys().filter(|one| !with.contains_key(*one)).count();
            match with.contains_key(&client) {
                true => assert_eq!((gone, come), (vec![client], 1), "{version}"),
                false => assert_eq!((gone, come), (vec![], 0), "{version}"),
            }
            displaced += come;
        }
    }
    // Each of the eight of six rounds, once.
    assert_eq!(displaced, 48);
    let chosen = with.values().flat_map(BTreeMap::keys).collect::<BTreeSet<_>>();
    assert_eq!(chosen.len() as u64, CLIENTS, "everybody has its turn");
}

/// Who took part before depends on who else was there.
#[test]
fn who_is_chosen_trains_by_nothing_of_earlier_rounds() {
    let orders = |run: Run| {
        let world = World::new(coordinator(run), CLIENTS, 1).finish();
        let trained = world.seen.iter().filter_map(|action| match action {
            Action::Send { order, .. } => match &order.work {
                Work::Train(train) => Some((train.stateless, train.most_steps.is_some())),
                _ => None,
            },
            _ => None,
        });
        trained.collect::<BTreeSet<_>>()
    };
    assert_eq!(orders(private("", "")), BTreeSet::from([(true, false)]));
    // One who is drawn displaces nobody: it is free to know what it did, and how long that took.
    for run in [
        private("", "rate = 0.9"),
        Run {
            privacy: None,
            ..private("", "")
        },
    ] {
        let orders = orders(run);
        assert!(orders.contains(&(false, true)) && orders.iter().all(|(stateless, _)| !stateless));
    }
}

#[test]
fn the_sum_of_drawn_clients_is_divided_by_how_many_are_said_to_come() {
    let expected = |privacy: &str| {
        let run = private("", privacy);
        run.privacy.unwrap().expected(&run)
    };
    assert_eq!(expected(""), 8.0);
    assert_eq!(expected("rate = 0.5"), 6.0);
    assert_eq!(expected("rate = 0.5\npopulation = 40"), 20.0);
}

/// Chance draws each on its own, and so does what decides its training.
#[test]
fn nobody_trains_otherwise_because_another_client_is_drawn() {
    let seeds = |clients| {
        let run = Run {
            start_with: clients as usize,
            ..private("", "rate = 1.0")
        };
        trainings(&World::new(coordinator(run), clients, 1).finish())
    };
    let (mut with, without) = (seeds(CLIENTS), seeds(CLIENTS - 1));
    for trained in with.values_mut() {
        trained.remove(&ClientId(CLIENTS - 1));
    }
    assert_eq!(with, without);
}

#[test]
fn a_round_for_which_nobody_is_drawn_counts_like_any_other() {
    let thirty = Run {
        rounds: 30,
        ..private("", "rate = 0.1")
    };
    let world = World::new(coordinator(thirty), CLIENTS, 1).finish();
    let reports = world.reports();
    let numbers: Vec<u64> = reports.iter().map(|report| report.round).collect();
    assert_eq!(numbers, (1..=30).collect::<Vec<u64>>());
    let (empty, full): (Vec<_>, Vec<_>) = reports.iter().partition(|report| report.clients.is_empty());
    // A chance of 0.28 each: noise made these versions.
    assert!((2..20).contains(&empty.len()), "{}", empty.len());
    assert!(empty.iter().all(|report| report.loss.is_none()));
    assert!(full.iter().all(|report| report.loss.is_some()));
    assert_eq!(world.coordinator.status().spent.unwrap().rounds, 30);
}

#[test]
fn one_client_moves_the_mean_by_no_more_than_its_bound() {
    // Almost without noise, all of it is clipping: 8 updates of at most 0.5, divided by 8.
    let quiet = "rounds = 1\nstart-with = 12\nweights = 'uniform'\n[pace]\nmode = 'synchronous'\nclients = 8\n\
                 [privacy]\nnoise-multiplier = 0.05\nclipping = { kind = 'fixed', norm = 0.5 }\n";
    let world = World::new(coordinator(run(quiet)), CLIENTS, 1).finish();
    let norm = world
        .coordinator
        .model()
        .iter()
        .map(|x| f64::from(x * x))
        .sum::<f64>()
        .sqrt();
    assert!(norm > 0.05 && norm < 0.55, "{norm}");
}

#[test]
fn noise_is_that_of_the_entropy_and_survives_a_restart() {
    let whole = World::new(coordinator(private("", "rate = 0.7")), CLIENTS, 1).finish();
    for (at, checkpoint) in &whole.checkpoints {
        let mut again = resume(checkpoint.clone());
        for (now, event) in &whole.log[*at..] {
            again.handle(*now, event.clone());
        }
        let bits: Vec<u32> = again.model().iter().map(|x| x.to_bits()).collect();
        assert_eq!(bits, whole.bits());
    }
    let run = private("", "rate = 0.7");
    let (strategy, selection) = (run.strategy.build().unwrap(), run.selection.build());
    let model = vec![0.0; LENGTH];
    let other = Coordinator::new(
        run,
        layout(),
        model,
        strategy,
        selection,
        Arc::new(Processor),
        [4; 32],
    );
    let other = World::new(other.unwrap(), CLIENTS, 1).finish();
    assert_ne!(other.bits(), whole.bits());
    // Nobody finds the secrets in a log.
    assert!(!format!("{:?}", whole.coordinator.core).contains("3, 3, 3"));
}

/// The last version of which clients have said what they think.
fn last_judged(world: &World) -> Option<u64> {
    let judged = |action: &Action| match action {
        Action::Evaluated(report) => Some(report.version),
        _ => None,
    };
    world.seen.iter().rev().find_map(judged)
}

#[test]
fn a_run_ends_before_it_spends_more_than_it_may() {
    let whole = World::new(coordinator(private("", "")), CLIENTS, 1).finish();
    let after_two = whole.reports()[1].epsilon.unwrap();
    let privacy = format!("most-epsilon = {}", after_two + 1e-6);
    let world = World::new(coordinator(private("", &privacy)), CLIENTS, 1).finish();
    let status = world.coordinator.status();
    assert_eq!((status.version, status.ended), (2, true));
    assert!(status.spent.unwrap().epsilon <= after_two);
    assert!(matches!(status.failure, Some(Failure::Privacy { epsilon, .. }) if epsilon > after_two));
    assert_eq!(last_judged(&world), Some(2));
    // Who leaves while it is judged does not keep it from its end.
    let mut world = World::new(coordinator(private("", &privacy)), CLIENTS, 1);
    while world.coordinator.status().version < 2 {
        world.step();
    }
    world.feed_all();
    let judges: Vec<ClientId> = world.orders.iter().map(|(client, _)| *client).collect();
    assert!(!judges.is_empty() && !world.coordinator.status().ended);
    world.orders.clear();
    let gone = judges.into_iter().map(|client| Event::Gone { client });
    world.events.extend(gone.chain((0..CLIENTS).map(here)));
    assert!(world.finish().coordinator.status().ended);
}
