//! The formulas against requests that are played step by step.

use super::{Outlook, Pattern, Step};
use proptest::prelude::*;

const SMALL: Step = Step {
    accuracy: 0.78,
    latency_ms: 130.0,
    cost: 0.005,
};
const LARGE: Step = Step {
    accuracy: 0.96,
    latency_ms: 1770.0,
    cost: 1.65,
};

/// Plays requests through steps that are right by chance.
struct Play {
    rng: fastrand::Rng,
    latency_ms: f64,
    cost: f64,
}

impl Play {
    fn chance(&mut self, share: f64) -> bool {
        self.rng.f64() < share
    }

    fn call(&mut self, step: Step) -> bool {
        self.latency_ms += step.latency_ms;
        self.cost += step.cost;
        self.chance(step.accuracy)
    }
}

const REQUESTS: u32 = 40_000;

fn play(request: impl Fn(&mut Play) -> bool) -> Outlook {
    let mut play = Play {
        rng: fastrand::Rng::with_seed(3),
        latency_ms: 0.0,
        cost: 0.0,
    };
    let right = (0..REQUESTS).filter(|_| request(&mut play)).count();
    let requests = f64::from(REQUESTS);
    Outlook {
        accuracy: right as f64 / requests,
        latency_ms: play.latency_ms / requests,
        cost: play.cost / requests,
    }
}

#[track_caller]
fn agree(pattern: &Pattern, steps: &[Step], request: impl Fn(&mut Play) -> bool) {
    let (predicted, played) = (pattern.predict(steps).unwrap(), play(request));
    let near = |one: f64, other: f64| (one - other).abs() <= 0.015 * one.max(0.5);
    assert!(
        near(predicted.accuracy, played.accuracy)
            && near(predicted.latency_ms, played.latency_ms)
            && near(predicted.cost, played.cost),
        "{predicted:?} {played:?}"
    );
}

#[test]
fn a_cascade_is_cheaper_and_faster_than_the_monolith_and_nearly_as_accurate() {
    let cascade = Pattern::Cascade {
        confident_right: vec![0.8],
        confident_wrong: vec![0.1],
    };
    agree(&cascade, &[SMALL, LARGE], |play| {
        let right = play.call(SMALL);
        let confident = play.chance(if right { 0.8 } else { 0.1 });
        if confident { right } else { play.call(LARGE) }
    });
    let (cascade, monolith) = (
        cascade.predict(&[SMALL, LARGE]).unwrap(),
        Pattern::Pipeline.predict(&[LARGE]).unwrap(),
    );
    assert!(cascade.accuracy > monolith.accuracy - 0.025, "{cascade:?}");
    assert!(
        cascade.cost < 0.4 * monolith.cost && cascade.latency_ms < 0.5 * monolith.latency_ms,
        "{cascade:?}"
    );
}

#[test]
fn formulas_say_what_happens() {
    agree(&Pattern::Pipeline, &[LARGE, SMALL], |play| {
        play.call(LARGE) & play.call(SMALL)
    });
    agree(
        &Pattern::Retrieval { without: 0.3 },
        &[SMALL, LARGE],
        |play| match play.call(SMALL) {
            true => play.call(LARGE),
            false => {
                play.call(LARGE);
                play.chance(0.3)
            }
        },
    );
    let critic = Pattern::Critic {
        attempts: 3,
        passes_right: 0.9,
        passes_wrong: 0.2,
    };
    agree(&critic, &[SMALL, LARGE], |play| {
        for _ in 0..2 {
            let right = play.call(SMALL);
            play.call(LARGE);
            if play.chance(if right { 0.9 } else { 0.2 }) {
                return right;
            }
        }
        play.call(SMALL)
    });
    agree(&Pattern::Guard { answers: 0.4 }, &[SMALL, LARGE], |play| {
        let right = play.call(SMALL);
        if play.chance(0.4) { right } else { play.call(LARGE) }
    });
    let classifier = Step {
        accuracy: 1.0,
        latency_ms: 20.0,
        cost: 0.0,
    };
    let router = Pattern::Router {
        kinds: vec![0.7, 0.3],
        sends: vec![vec![0.9, 0.1], vec![0.2, 0.8]],
        right: vec![vec![0.8, 0.9], vec![0.7, 0.9]],
    };
    agree(&router, &[classifier, SMALL, LARGE], |play| {
        play.call(classifier);
        let kind = usize::from(play.chance(0.3));
        let simple = play.chance([0.9, 0.2][kind]);
        play.call(if simple { SMALL } else { LARGE });
        play.chance(if simple { [0.8, 0.7][kind] } else { 0.9 })
    });
    // At the same time: the slower one counts, so only answers and money are played.
    let parts = Pattern::PlannerWorkers { parts: 3 }
        .predict(&[LARGE, SMALL])
        .unwrap();
    let played = play(|play| play.call(LARGE) & play.call(SMALL) & play.call(SMALL) & play.call(SMALL));
    assert!((parts.accuracy - played.accuracy).abs() < 0.01 && (parts.cost - played.cost).abs() < 1e-6);
    assert_eq!(parts.latency_ms, 1900.0);
}

#[test]
fn three_voters_beat_one() {
    let outlook = Pattern::Vote.predict(&[SMALL; 3]).unwrap();
    assert!((outlook.accuracy - (0.78f64.powi(3) + 3.0 * 0.78f64.powi(2) * 0.22)).abs() < 1e-12);
    assert_eq!((outlook.latency_ms, outlook.cost), (130.0, 0.015));
}

#[test]
fn bad_input_is_named() {
    let field = |pattern: Pattern, steps: &[Step]| pattern.predict(steps).unwrap_err().to_string();
    let cascade = |right: Vec<f64>| Pattern::Cascade {
        confident_right: right,
        confident_wrong: vec![0.1],
    };
    assert!(field(cascade(vec![f64::NAN]), &[SMALL, LARGE]).contains("`confident-right` is NaN"));
    assert!(field(cascade(vec![]), &[SMALL, LARGE]).contains("`confident-right` has 0 entries"));
    assert!(field(cascade(vec![0.5]), &[SMALL]).contains("cascade has 1 steps"));
    assert!(field(Pattern::Vote, &[SMALL; 2]).contains("odd"));
    assert!(
        field(
            Pattern::Critic {
                attempts: 0,
                passes_right: 1.0,
                passes_wrong: 0.0
            },
            &[SMALL; 2]
        )
        .contains("`attempts`")
    );
    let wrong = Step {
        cost: f64::INFINITY,
        ..SMALL
    };
    assert!(field(Pattern::Pipeline, &[wrong]).contains("`cost` is inf"));
    let router = Pattern::Router {
        kinds: vec![0.5],
        sends: vec![vec![1.0]],
        right: vec![vec![1.0]],
    };
    assert!(field(router, &[SMALL, LARGE]).contains("`kinds` comes to 0.5"));
}

proptest! {
    #[test]
    fn an_outlook_is_within_its_bounds(a in 0.0f64..=1.0, b in 0.0f64..=1.0, p in 0.0f64..=1.0, q in 0.0f64..=1.0, n in 1u32..9) {
        let steps = [Step { accuracy: a, ..SMALL }, Step { accuracy: b, ..LARGE }];
        for pattern in [
            Pattern::Pipeline,
            Pattern::Cascade { confident_right: vec![p], confident_wrong: vec![q] },
            Pattern::Retrieval { without: p },
            Pattern::Critic { attempts: n, passes_right: p, passes_wrong: q },
            Pattern::PlannerWorkers { parts: n },
            Pattern::Guard { answers: p },
        ] {
            let outlook = pattern.predict(&steps).unwrap();
            prop_assert!((-1e-12..=1.0 + 1e-12).contains(&outlook.accuracy), "{pattern:?} {outlook:?}");
            prop_assert!(outlook.cost >= 0.0 && outlook.latency_ms >= 0.0);
            let shape = pattern.shape(&["one", "other"]).unwrap();
            prop_assert!(shape.edges.iter().all(|edge| edge.from < shape.steps.len() && edge.to < shape.steps.len()));
        }
    }
}
