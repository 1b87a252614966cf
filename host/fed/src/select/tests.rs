use super::*;
use crate::{Instant, Profile, Run, RunError, Window};
use fastrand::Rng;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    let candidate = (
        1u64..500,
        prop::option::of(0.0..5.0f64),
        prop::option::of(0.1..50.0f64),
        0u64..3,
        0.0..1.0f64,
    );
    prop::collection::vec(candidate, 0..30).prop_map(|all| {
        let numbered = all.into_iter().enumerate();
        let candidate = |(i, (samples, loss, seconds, chosen, charge)): (usize, _)| Candidate {
            client: ClientId(i as u64 * 3),
            samples,
            loss,
            seconds,
            chosen,
            charge: Some(charge),
            last_round: (chosen > 0).then_some(chosen),
            ..Candidate::default()
        };
        numbered.map(candidate).collect()
    })
}

fn policies() -> Vec<Box<dyn Selection>> {
    let choices = [
        SelectionChoice::default(),
        SelectionChoice::Fastest(Fastest {}),
        SelectionChoice::Oort(Oort::default()),
        SelectionChoice::PowerOfChoice(PowerOfChoice::default()),
        SelectionChoice::Bandit(Bandit::default()),
        SelectionChoice::Energy(Energy { reserve: 0.0 }),
    ];
    choices.iter().map(SelectionChoice::build).collect()
}

proptest! {
    #[test]
    fn every_policy_chooses_as_many_as_it_can_and_nobody_twice(
        candidates in candidates(), count in 0usize..20, round in 1u64..50, seed: u64,
    ) {
        for mut policy in policies() {
            let chosen = policy.choose(&candidates, count, round, &mut Rng::with_seed(seed));
            let again = policy.choose(&candidates, count, round, &mut Rng::with_seed(seed));
            prop_assert_eq!(&chosen, &again, "{}", policy.name());
            let unique: BTreeSet<ClientId> = chosen.iter().copied().collect();
            prop_assert_eq!(unique.len(), chosen.len(), "{}", policy.name());
            let known: BTreeSet<ClientId> = candidates.iter().map(|it| it.client).collect();
            prop_assert!(unique.is_subset(&known), "{}", policy.name());
            prop_assert_eq!(chosen.len(), count.min(candidates.len()), "{}", policy.name());
        }
    }

    #[test]
    fn a_bandit_goes_on_from_its_state(candidates in candidates(), rewards in prop::collection::vec(0.0..1.0f64, 30)) {
        let mut bandit = Bandit::default();
        let outcomes: Vec<Outcome> = candidates
            .iter()
            .zip(rewards)
            .map(|(it, contribution)| Outcome { client: it.client, seconds: it.seconds, contribution: Some(contribution) })
            .collect();
        bandit.learn(&outcomes, &candidates);
        let mut copy = Bandit::default();
        copy.load(&bandit.save()).unwrap();
        prop_assert_eq!(bandit, copy);
    }

    /// Against minute-by-minute counting.
    #[test]
    fn a_transfer_uses_exactly_the_time_in_view(
        gaps in prop::collection::vec((0u64..20, 1u64..20), 1..6), down in 0u64..30, up in 0u64..30, training in 0u64..30,
    ) {
        let mut at = 0;
        let mut windows = Vec::new();
        for (gap, length) in gaps {
            windows.push(Window { start: Instant(at + gap), end: Instant(at + gap + length) });
            at += gap + length;
        }
        // One byte takes one millisecond.
        let work = Workload {
            down, up, training: Duration::from_millis(training), bytes_per_second: Some(1000.0),
        };
        let inside = |time: u64| windows.iter().any(|window| (window.start.0..window.end.0).contains(&time));
        let walk = |from: u64, length: u64| {
            let mut left = length;
            let mut time = from;
            while time <= at {
                if left == 0 && (inside(time) || length > 0) { return Some(time); }
                if inside(time) { left = left.saturating_sub(1); }
                time += 1;
            }
            None
        };
        let expected = walk(0, down).and_then(|received| walk(received + training, up));
        prop_assert_eq!(done_at(&windows, &work, Instant(0)), expected.map(Instant));
    }
}

#[test]
fn a_satellite_joins_when_it_will_be_in_view_long_enough() {
    let window = |start, end| Window {
        start: Instant(start),
        end: Instant(end),
    };
    let profile = |end| Profile {
        windows: vec![window(0, end), window(5_000_000, 5_600_000)],
        ..Profile::default()
    };
    let work = Workload {
        down: 1_000_000,
        training: Duration::from_secs(100),
        up: 1_000_000,
        bytes_per_second: Some(10_000.0),
    };
    let rule = Eligibility::default();
    // 100 s down, 100 s training, 100 s up.
    assert_eq!(
        rule.check(&profile(300_000), &work, Instant(0), Instant(400_000)),
        Ok(())
    );
    let short = rule.check(&profile(299_000), &work, Instant(0), Instant(400_000));
    assert_eq!(short, Err(NotEligible::Contact));
    // With patience the next pass will do.
    assert_eq!(
        rule.check(&profile(299_000), &work, Instant(0), Instant(6_000_000)),
        Ok(())
    );
}

#[test]
fn training_is_taken_to_last_no_longer_than_there_is_time_unless_somebody_says_so() {
    let seconds = Duration::from_secs;
    let rule = Eligibility::default();
    assert_eq!(rule.expected_training(seconds(600)), seconds(60));
    assert_eq!(rule.expected_training(seconds(8)), seconds(4));
    let described = |training: &str| {
        Run::from_toml(&format!(
            "name = 'x'\nrounds = 1\n[pace]\nmode = 'synchronous'\nclients = 2\ntimeout = '1 min'\n\
             [eligibility]\ntraining = '{training}'\n"
        ))
    };
    let rule = described("1 min").unwrap().eligibility;
    assert_eq!(rule.training, Some(seconds(60)));
    let written = cbor4ii::serde::to_vec(Vec::new(), &rule).unwrap();
    assert_eq!(cbor4ii::serde::from_slice::<Eligibility>(&written).unwrap(), rule);
    let (training, timeout) = (seconds(61), seconds(60));
    let error = described("61 s").unwrap_err();
    assert_eq!(error, RunError::NoTime(NoTime { training, timeout }));
    let says = error.to_string();
    assert!(
        says.contains("`eligibility.training`") && says.contains("`pace.timeout`"),
        "{says}"
    );
}

#[test]
fn a_low_battery_stays_out() {
    let profile = Profile {
        charge: Some(0.1),
        ..Profile::default()
    };
    let work = Workload {
        down: 0,
        training: Duration::ZERO,
        up: 0,
        bytes_per_second: None,
    };
    let error = Eligibility::default()
        .check(&profile, &work, Instant(0), Instant(1))
        .unwrap_err();
    assert_eq!(
        error,
        NotEligible::Charge {
            charge: 0.1,
            least: 0.2
        }
    );
    let low = Candidate {
        charge: Some(0.2),
        ..Candidate::default()
    };
    assert!(
        Energy::default()
            .choose(&[low], 1, 1, &mut Rng::with_seed(1))
            .is_empty()
    );
}

#[test]
fn a_bandit_prefers_who_is_worth_it_and_forgets_nobody() {
    let all: Vec<Candidate> = (0..10)
        .map(|i| Candidate {
            client: ClientId(i),
            samples: 100,
            seconds: Some(1.0),
            ..Candidate::default()
        })
        .collect();
    let mut bandit = Bandit::default();
    let mut random = Rng::with_seed(3);
    let mut seen = all.clone();
    let mut chosen = [0; 10];
    for round in 1..=200 {
        let now = bandit.choose(&seen, 2, round, &mut random);
        let outcomes: Vec<Outcome> = now
            .iter()
            .map(|client| Outcome {
                client: *client,
                seconds: Some(1.0),
                contribution: Some(if client.0 < 2 { 1.0 } else { 0.2 }),
            })
            .collect();
        for client in now {
            chosen[client.0 as usize] += 1;
            seen[client.0 as usize].last_round = Some(round);
        }
        bandit.learn(&outcomes, &seen);
    }
    let good = chosen[0] + chosen[1];
    assert!(
        good > 120,
        "{chosen:?}: the good ones should have more than their share of 80"
    );
    assert!(chosen.iter().all(|times| *times >= 200 / 25), "{chosen:?}");
}

#[test]
fn power_of_choice_takes_the_largest_losses() {
    let all: Vec<Candidate> = (0..20)
        .map(|i| Candidate {
            client: ClientId(i),
            samples: 10,
            loss: Some(i as f64),
            ..Candidate::default()
        })
        .collect();
    let mut policy = PowerOfChoice { candidates: 20 };
    let mut chosen = policy.choose(&all, 3, 1, &mut Rng::with_seed(1));
    chosen.sort();
    assert_eq!(chosen, [ClientId(17), ClientId(18), ClientId(19)]);
}

#[test]
fn oort_prefers_large_losses_and_fast_clients() {
    let candidate = |id, loss, seconds| Candidate {
        client: ClientId(id),
        samples: 10,
        loss: Some(loss),
        seconds: Some(seconds),
        chosen: 1,
        last_round: Some(9),
        ..Candidate::default()
    };
    let all = [
        candidate(0, 1.0, 1.0),
        candidate(1, 2.0, 1.0),
        candidate(2, 2.0, 100.0),
    ];
    let mut oort = Oort {
        explore: 0.0,
        ..Oort::default()
    };
    assert_eq!(
        oort.choose(&all, 2, 10, &mut Rng::with_seed(1)),
        [ClientId(1), ClientId(0)]
    );
}
