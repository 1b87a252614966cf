use super::*;
use crate::{Instant, Profile, Run, RunError, Window};
use fastrand::Rng;
use karman_tensor::encode::Link;
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

    /// Against counting millisecond by millisecond.
    #[test]
    fn who_takes_part_is_in_view_from_now_on_for_as_long_as_it_needs(
        gaps in prop::collection::vec((0u64..5, 1u64..20), 1..6), now in 0u64..40, needed in 0u64..60,
    ) {
        let mut at = 0;
        let mut windows = Vec::new();
        for (gap, length) in gaps {
            windows.push(window(at + gap, at + gap + length));
            at += gap + length;
        }
        let inside = |time: u64| windows.iter().any(|window| (window.start.0..window.end.0).contains(&time));
        let in_view = (now..).take_while(|time| inside(*time)).count() as u64;
        let needed = Duration::from_millis(needed);
        let work = Workload { measured: Some(needed), ..Workload::default() };
        let timeout = Duration::from_secs(1);
        let rule = Eligibility::default();
        let checked = rule.check(&Profile::default(), Some(&windows[..]), &work, Instant(now), timeout);
        let in_view = Duration::from_millis(in_view);
        let expected = match !in_view.is_zero() && needed <= in_view {
            true => Ok(()),
            false => Err(NotEligible::View { in_view, needed }),
        };
        prop_assert_eq!(checked, expected);
        prop_assert_eq!(rule.check(&Profile::default(), None, &work, Instant(now), timeout), Ok(()));
    }
}

fn window(start: u64, end: u64) -> Window {
    Window {
        start: Instant(start),
        end: Instant(end),
        bytes_per_second: None,
    }
}

#[test]
fn a_satellite_joins_when_it_will_be_in_view_long_enough() {
    let seconds = Duration::from_secs;
    let pass = |end, rate| Window {
        bytes_per_second: Some(rate),
        ..window(0, end)
    };
    let work = Workload {
        down: 1_000_000,
        training: seconds(100),
        up: 1_000_000,
        measured: None,
    };
    let rule = Eligibility::default();
    let check = |windows: &[Window], profile: &Profile, work: &Workload, now| {
        rule.check(profile, Some(windows), work, Instant(now), seconds(400))
    };
    let anyone = Profile::default();
    // 100 s down, 100 s training, 100 s up: the slower of the two directions counts.
    let enough = [pass(300_000, 20_000.0), pass(300_000, 10_000.0)];
    assert_eq!(check(&enough, &anyone, &work, 0), Ok(()));
    let error = check(&enough, &anyone, &work, 205_000).unwrap_err();
    let (in_view, needed) = (seconds(95), seconds(300));
    assert_eq!(error, NotEligible::View { in_view, needed });
    assert_eq!(
        error.to_string(),
        "not in view long enough: 1 min 35 s of 5 min needed"
    );
    // A later pass is no good: a client is lost before that.
    let twice = [pass(250_000, 10_000.0), window(260_000, 900_000)];
    assert!(check(&twice, &anyone, &work, 0).is_err());
    let without_a_break = [pass(250_000, 10_000.0), window(250_000, 900_000)];
    assert_eq!(check(&without_a_break, &anyone, &work, 0), Ok(()));
    // What was measured counts for more than what is planned, and a whole round for more than its parts.
    let fast = Profile {
        link: Some(Link {
            bytes_per_second: 1e6,
        }),
        ..Profile::default()
    };
    assert_eq!(check(&enough, &fast, &work, 190_000), Ok(()));
    let known = Workload {
        measured: Some(seconds(40)),
        ..work
    };
    assert_eq!(check(&enough, &anyone, &known, 205_000), Ok(()));
    // Out of view, whatever there is to do; and with nothing left of its plan.
    let nothing = Workload::default();
    let error = check(&[window(10, 20)], &anyone, &work, 5).unwrap_err();
    assert_eq!(error.to_string(), "not in view: 1 min 40 s needed");
    assert!(check(&[window(10, 20)], &anyone, &nothing, 5).is_err());
    assert!(check(&[], &anyone, &nothing, 5).is_err());
}

#[test]
fn who_takes_longer_than_a_round_may_is_not_asked() {
    let (needed, timeout) = (Duration::from_secs(90), Duration::from_secs(60));
    let work = Workload {
        measured: Some(needed),
        ..Workload::default()
    };
    let error = Eligibility::default()
        .check(&Profile::default(), None, &work, Instant(0), timeout)
        .unwrap_err();
    assert_eq!(error, NotEligible::Time { needed, timeout });
    assert_eq!(
        error.to_string(),
        "a round with it takes 1 min 30 s, and `pace.timeout` is 1 min"
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
    let work = Workload::default();
    let error = Eligibility::default()
        .check(&profile, None, &work, Instant(0), Duration::from_millis(1))
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
