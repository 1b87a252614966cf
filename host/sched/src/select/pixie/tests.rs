//! What Pixie promises, batch by batch.

use super::super::testing::{candidate, millis, serve, task};
use super::super::{Call, LatencyLaw, mix_within};
use super::*;
use std::time::Duration;

fn tasks() -> Vec<Task> {
    let candidates = vec![
        candidate("tiny", 0.76, 120.0, 0.0),
        candidate("small", 0.91, 1200.0, 1e-5),
        candidate("medium", 0.93, 2170.0, 7e-5),
        candidate("large", 0.96, 2190.0, 1.6e-3),
    ];
    vec![task("answer", candidates)]
}

fn slo(cost: f64, limit: f64) -> Slo {
    Slo {
        cost: Some(cost),
        latency_p95: Some(millis(limit)),
        ..Slo::over(869)
    }
}

/// A batch with latencies `slower` times those of the profiles: what it cost, how many were late, mean accuracy.
fn batch(slo: &Slo, seed: u64, slower: f64) -> (f64, u64, f64) {
    batch_of(&tasks(), slo, seed, slower)
}

fn batch_of(tasks: &[Task], slo: &Slo, seed: u64, slower: f64) -> (f64, u64, f64) {
    let mut pixie = Pixie::new(tasks.to_vec(), slo.clone(), PixieSettings::default()).unwrap();
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut cost, mut late, mut accuracy) = (0.0, 0, 0.0);
    let limit = slo.latency_p95.unwrap().as_secs_f64() * 1e3;
    for _ in 0..slo.requests {
        let share = rng.f64();
        let mut took = 0.0;
        let chosen = serve(&mut pixie, tasks, |candidate| {
            took = slower * LatencyLaw::of(&tasks[0].candidates[candidate].profile).quantile(share);
            took
        });
        let profile = &tasks[0].candidates[chosen].profile;
        cost += profile.cost;
        accuracy += profile.accuracy.unwrap_or_default() / slo.requests as f64;
        late += u64::from(took > limit);
    }
    (cost, late, accuracy)
}

#[test]
fn budgets_are_kept_and_spent() {
    for (cost, limit) in [
        (0.005, 1500.0),
        (0.02, 1900.0),
        (0.5, 1000.0),
        (0.8, 1900.0),
        (1.2, 2500.0),
    ] {
        let slo = slo(cost, limit);
        let best = mix_within(&tasks(), &slo).unwrap().value / 869.0;
        let mut mean = 0.0;
        for seed in 0..8 {
            let (spent, late, accuracy) = batch(&slo, seed, 1.0);
            assert!(
                spent <= cost && late <= 43,
                "{cost} {limit} {seed}: {spent} {late}"
            );
            mean += accuracy / 8.0;
        }
        // One batch is up to two points off by the luck of its late calls.
        assert!(mean > best - 0.01, "{cost} {limit}: {mean} of {best}");
    }
}

#[test]
fn what_is_dear_does_not_take_what_the_rest_of_the_batch_needs() {
    // The large one adds most to a call that is late anyway, and costs as much as 340 by the small one.
    let tasks = vec![task(
        "answer",
        vec![
            candidate("free", 0.757, 119.0, 0.0),
            candidate("small", 0.778, 165.0, 4.8e-6),
            candidate("large", 0.961, 2174.0, 1.65e-3),
        ],
    )];
    for seed in 0..50 {
        let (_, _, accuracy) = batch_of(&tasks, &slo(0.02, 450.0), seed, 1.0);
        assert!(
            accuracy > 0.778,
            "{seed}: {accuracy} is less than that of the small one alone"
        );
    }
}

#[test]
fn bad_luck_does_not_cost_the_accuracy_that_is_asked_for() {
    let tasks = vec![task(
        "answer",
        vec![
            candidate("small", 0.95, 50.0, 1.0),
            candidate("large", 0.99, 190.0, 1.0),
        ],
    )];
    let least = 0.985;
    let kept = |accuracy: Option<f64>| -> usize {
        let slo = Slo {
            accuracy,
            latency_p95: Some(millis(200.0)),
            ..Slo::over(100)
        };
        let batches = (0..50).map(|seed| batch_of(&tasks, &slo, seed, 1.0));
        batches
            .filter(|(_, late, mean)| *late <= 5 && *mean >= least)
            .count()
    };
    let (asked, not_asked) = (kept(Some(least)), kept(None));
    assert!(asked >= not_asked + 20, "{asked} and {not_asked} of 50");
}

/// A request looks at a picture, and every other one at what is in it: how many of 100 batches end within the cost and with the accuracy that are
/// asked for.
fn kept_by_a_workflow(slo: &Slo) -> usize {
    let of = |name: &str, small: f64, large: f64| {
        vec![
            candidate(&format!("{name}-small"), small, 20.0, 1.0),
            candidate(&format!("{name}-large"), large, 80.0, 4.0),
        ]
    };
    let tasks = [
        task("screen", of("screen", 0.9725, 0.995)),
        Task {
            visits: 0.5,
            ..task("segment", of("segment", 0.745, 0.95))
        },
    ];
    let kept = |seed: u64| {
        let mut pixie = Pixie::new(tasks.to_vec(), slo.clone(), PixieSettings::default()).unwrap();
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut cost, mut right, mut calls) = (0.0, 0.0, 0.0);
        for _ in 0..slo.requests {
            let deep = rng.bool();
            let mut served = Vec::new();
            for (task, of) in tasks.iter().enumerate().take(1 + usize::from(deep)) {
                let ask = Ask {
                    task,
                    ..Ask::default()
                };
                let candidate = pixie.choose(&ask).unwrap().chosen;
                let profile = &of.candidates[candidate].profile;
                cost += profile.cost;
                right += profile.accuracy.unwrap_or_default();
                calls += 1.0;
                served.push(Call {
                    task,
                    candidate,
                    latency: profile.mean,
                    cost: profile.cost,
                    energy: None,
                    right: None,
                });
            }
            let served = Served {
                now: Duration::ZERO,
                queue: 0,
                latency: served.iter().map(|call| call.latency).sum(),
                calls: &served,
            };
            pixie.report(&served).unwrap();
        }
        cost <= slo.cost.unwrap() && right / calls >= slo.accuracy.unwrap()
    };
    (0..100).filter(|seed| kept(*seed)).count()
}

#[test]
fn tasks_that_are_called_by_chance_leave_the_batch_its_accuracy() {
    let slo = |cost, accuracy| Slo {
        cost: Some(cost),
        accuracy: Some(accuracy),
        ..Slo::over(60)
    };
    let kept = [(200.0, 0.955), (250.0, 0.965), (300.0, 0.969)]
        .map(|(cost, accuracy)| kept_by_a_workflow(&slo(cost, accuracy)));
    assert!(kept.iter().sum::<usize>() >= 295, "{kept:?} of 100 each");
}

#[test]
fn limits_hold_when_profiles_do_not() {
    for seed in 0..8 {
        let (_, late, _) = batch(&slo(0.8, 1900.0), seed, 1.5);
        assert!(late <= 43, "{seed}: {late}");
    }
}

#[test]
fn who_was_slow_for_a_short_while_comes_back() {
    // What is left of the limit by the quick one the large one takes. While the quick one seems to be late more often than the steady one,
    // nothing speaks for it.
    let tasks = vec![task(
        "answer",
        vec![
            candidate("quick", 0.900, 100.0, 0.0),
            candidate("steady", 0.901, 160.0, 0.0),
            candidate("large", 0.970, 400.0, 0.0),
        ],
    )];
    let slo = Slo {
        latency_p95: Some(millis(200.0)),
        ..Slo::over(500)
    };
    let mut pixie = Pixie::new(tasks.clone(), slo, PixieSettings::default()).unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    // By batch: calls of the quick one, and how many of all were late.
    let mut seen = [(0, 0); 6];
    let mut slow_calls = 0;
    for (batch, (calls, late)) in seen.iter_mut().enumerate() {
        for n in 0..500 {
            let share = rng.f64();
            serve(&mut pixie, &tasks, |candidate| {
                let law = LatencyLaw::of(&tasks[0].candidates[candidate].profile);
                let is_slow = candidate == 0 && batch == 0 && n < 100;
                let took = if is_slow { 1000.0 } else { law.quantile(share) };
                *calls += u64::from(candidate == 0);
                slow_calls += u64::from(is_slow);
                *late += u64::from(took > 200.0);
                took
            });
        }
    }
    assert!(slow_calls < 60, "there is no alarm: {slow_calls}");
    assert!(seen[5].0 > 250, "{seen:?}");
    assert!(seen.iter().all(|(_, late)| *late <= 25), "{seen:?}");
}

#[test]
fn the_same_reports_give_the_same_choices() {
    assert_eq!(
        batch(&slo(0.02, 1900.0), 3, 1.0),
        batch(&slo(0.02, 1900.0), 3, 1.0)
    );
}

#[test]
fn who_fails_at_once_does_not_look_fast() {
    let slo = slo(0.8, 2500.0);
    let mut pixie = Pixie::new(tasks(), slo.clone(), PixieSettings::default()).unwrap();
    let mut served = [0; 4];
    for n in 0..400 {
        let chosen = pixie.choose(&Ask::default()).unwrap().chosen;
        served[chosen] += u32::from(n >= 200);
        let answered = Call {
            task: 0,
            candidate: chosen,
            latency: millis(1.0),
            cost: 0.0,
            energy: None,
            right: None,
        };
        let call = match chosen {
            3 => Call {
                right: Some(false),
                ..answered.unanswered(slo.latency_p95)
            },
            _ => answered,
        };
        assert_eq!(call.latency > millis(2500.0), chosen == 3);
        let heard = Served {
            now: Duration::ZERO,
            queue: 0,
            latency: call.latency,
            calls: &[call],
        };
        pixie.report(&heard).unwrap();
    }
    assert!(served[3] < 20, "{served:?}");
}

#[test]
fn who_cannot_be_reached_does_not_serve() {
    let tasks = tasks();
    let mut pixie = Pixie::new(tasks, slo(0.8, 2500.0), PixieSettings::default()).unwrap();
    for unreachable in [&[][..], &[2, 3], &[0, 1, 3], &[]] {
        for _ in 0..30 {
            let decision = pixie
                .choose(&Ask {
                    unreachable,
                    ..Ask::default()
                })
                .unwrap();
            assert!(!unreachable.contains(&decision.chosen));
            assert!(
                decision
                    .runner_up
                    .is_none_or(|second| !unreachable.contains(&second))
            );
            assert_eq!(decision.reason == Reason::Only, unreachable.len() == 3);
        }
    }
}

#[test]
fn an_impossible_budget_is_spared_and_said() {
    let mut tasks = tasks();
    tasks[0].candidates.remove(0);
    let mut pixie = Pixie::new(tasks.clone(), slo(0.005, 2500.0), PixieSettings::default()).unwrap();
    let decision = pixie.choose(&Ask::default()).unwrap();
    assert_eq!(decision.chosen, 0);
    assert!(
        matches!(
            decision.reason,
            Reason::Short {
                resource: Resource::Cost,
                ..
            }
        ),
        "{decision:?}"
    );
    assert_eq!(pixie.plan.short, Some(Resource::Cost));
}

#[test]
fn settings_are_checked() {
    let with = |settings| {
        Pixie::new(tasks(), slo(1.0, 1000.0), settings)
            .unwrap_err()
            .to_string()
    };
    let default = PixieSettings::default();
    assert!(
        with(PixieSettings {
            cool_down: 0,
            ..default
        })
        .contains("`cool-down`")
    );
    assert!(
        with(PixieSettings {
            reserve: f64::NAN,
            ..default
        })
        .contains("`reserve`")
    );
    assert!(
        with(PixieSettings {
            false_alarms: 0.0,
            ..default
        })
        .contains("`false-alarms`")
    );
}

#[test]
fn impossible_reports_are_refused() {
    let mut pixie = Pixie::new(tasks(), slo(1.0, 1000.0), PixieSettings::default()).unwrap();
    let good = Call {
        task: 0,
        candidate: 3,
        latency: millis(1.0),
        cost: 0.1,
        energy: None,
        right: None,
    };
    let mut report = |call| {
        pixie.report(&Served {
            now: Duration::ZERO,
            queue: 0,
            latency: millis(1.0),
            calls: &[call],
        })
    };
    assert_eq!(report(good), Ok(()));
    assert_eq!(
        report(Call { candidate: 4, ..good }),
        Err(ReportError::Unknown {
            task: 0,
            candidate: 4
        })
    );
    let negative = report(Call { cost: -1.0, ..good });
    assert_eq!(
        negative,
        Err(ReportError::Value {
            field: "cost",
            value: -1.0
        })
    );
    assert!(
        report(Call {
            energy: Some(f64::NAN),
            ..good
        })
        .is_err()
    );
    assert_eq!(pixie.spent()[0], 0.1);
}
