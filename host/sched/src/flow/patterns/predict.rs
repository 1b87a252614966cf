//! The closed formulas, and what may be put into them.

use super::{Outlook, Pattern, PatternError, Step};

impl Pattern {
    /// What a request is expected to get and to take, if steps are independent.
    ///
    /// # Errors
    /// Another number of steps than the pattern takes; a parameter or a measurement outside its bounds.
    pub fn predict(&self, steps: &[Step]) -> Result<Outlook, PatternError> {
        self.check(steps.len())?;
        for Step {
            accuracy,
            latency_ms,
            cost,
        } in steps
        {
            self.share("accuracy", *accuracy)?;
            self.amount("latency-ms", *latency_ms)?;
            self.amount("cost", *cost)?;
        }
        Ok(match self {
            Self::Pipeline => Outlook {
                accuracy: steps.iter().map(|step| step.accuracy).product(),
                ..taken(steps.iter().map(|step| (1.0, step)))
            },
            Self::Router { kinds, sends, right } => router(kinds, sends, right, steps),
            Self::Cascade {
                confident_right,
                confident_wrong,
            } => cascade(confident_right, confident_wrong, steps),
            Self::Vote => vote(steps),
            Self::Retrieval { without } => Outlook {
                accuracy: steps[0].accuracy * steps[1].accuracy + (1.0 - steps[0].accuracy) * without,
                ..taken(steps.iter().map(|step| (1.0, step)))
            },
            Self::Critic {
                attempts,
                passes_right,
                passes_wrong,
            } => critic(*attempts, *passes_right, *passes_wrong, steps[0], steps[1]),
            Self::PlannerWorkers { parts } => {
                let [planner, worker] = [steps[0], steps[1]];
                Outlook {
                    accuracy: planner.accuracy * worker.accuracy.powf(f64::from(*parts)),
                    latency_ms: planner.latency_ms + worker.latency_ms,
                    cost: planner.cost + f64::from(*parts) * worker.cost,
                }
            }
            Self::Guard { answers } => Outlook {
                accuracy: answers * steps[0].accuracy + (1.0 - answers) * steps[1].accuracy,
                ..taken([(1.0, &steps[0]), (1.0 - answers, &steps[1])])
            },
        })
    }

    /// Whether the parameters are within their bounds and the pattern takes so many steps.
    pub(super) fn check(&self, steps: usize) -> Result<(), PatternError> {
        let takes = |fits: bool, takes| match fits {
            true => Ok(()),
            false => Err(PatternError::Steps {
                pattern: self.name(),
                given: steps,
                takes,
            }),
        };
        match self {
            Self::Pipeline => takes(steps >= 1, "one or more"),
            Self::Router { kinds, sends, right } => {
                takes(steps >= 2, "a classifier and one or more branches")?;
                self.distribution("kinds", kinds)?;
                for (field, table) in [("sends", sends), ("right", right)] {
                    if table.len() != kinds.len() || table.iter().any(|row| row.len() != steps - 1) {
                        return Err(
                            self.list(field, format!("must be {} rows of {}", kinds.len(), steps - 1))
                        );
                    }
                }
                sends.iter().try_for_each(|row| self.distribution("sends", row))?;
                right
                    .iter()
                    .flatten()
                    .try_for_each(|share| self.share("right", *share))
            }
            Self::Cascade {
                confident_right,
                confident_wrong,
            } => {
                takes(steps >= 2, "two or more")?;
                for (field, shares) in [
                    ("confident-right", confident_right),
                    ("confident-wrong", confident_wrong),
                ] {
                    if shares.len() != steps - 1 {
                        return Err(
                            self.list(field, format!("has {} entries, not {}", shares.len(), steps - 1))
                        );
                    }
                    shares.iter().try_for_each(|share| self.share(field, *share))?;
                }
                Ok(())
            }
            Self::Vote => takes(steps % 2 == 1 && steps < 64, "an odd number, at most 63"),
            Self::Retrieval { without } => {
                takes(steps == 2, "two").and_then(|()| self.share("without", *without))
            }
            Self::Critic {
                attempts,
                passes_right,
                passes_wrong,
            } => {
                takes(steps == 2, "two")?;
                self.count("attempts", *attempts)?;
                self.share("passes-right", *passes_right)?;
                self.share("passes-wrong", *passes_wrong)
            }
            Self::PlannerWorkers { parts } => {
                takes(steps == 2, "two").and_then(|()| self.count("parts", *parts))
            }
            Self::Guard { answers } => {
                takes(steps == 2, "two").and_then(|()| self.share("answers", *answers))
            }
        }
    }

    fn share(&self, field: &'static str, value: f64) -> Result<(), PatternError> {
        self.bounded(field, value, (0.0..=1.0).contains(&value), "from 0 to 1")
    }

    fn amount(&self, field: &'static str, value: f64) -> Result<(), PatternError> {
        self.bounded(
            field,
            value,
            value >= 0.0 && value.is_finite(),
            "finite and not below 0",
        )
    }

    fn count(&self, field: &'static str, value: u32) -> Result<(), PatternError> {
        self.bounded(field, value.into(), value > 0, "at least 1")
    }

    fn bounded(
        &self,
        field: &'static str,
        value: f64,
        holds: bool,
        bounds: &'static str,
    ) -> Result<(), PatternError> {
        let pattern = self.name();
        match holds {
            true => Ok(()),
            false => Err(PatternError::Value {
                pattern,
                field,
                value,
                bounds,
            }),
        }
    }

    fn distribution(&self, field: &'static str, shares: &[f64]) -> Result<(), PatternError> {
        shares.iter().try_for_each(|share| self.share(field, *share))?;
        let whole: f64 = shares.iter().sum();
        match (whole - 1.0).abs() < 1e-6 {
            true => Ok(()),
            false => Err(self.list(field, format!("comes to {whole}, not 1"))),
        }
    }

    const fn list(&self, field: &'static str, problem: String) -> PatternError {
        PatternError::List {
            pattern: self.name(),
            field,
            problem,
        }
    }
}

/// Latency and cost of steps that are called so often, one after another.
fn taken<'a>(steps: impl IntoIterator<Item = (f64, &'a Step)>) -> Outlook {
    let mut outlook = Outlook {
        accuracy: 0.0,
        latency_ms: 0.0,
        cost: 0.0,
    };
    for (calls, step) in steps {
        outlook.latency_ms += calls * step.latency_ms;
        outlook.cost += calls * step.cost;
    }
    outlook
}

fn router(kinds: &[f64], sends: &[Vec<f64>], right: &[Vec<f64>], steps: &[Step]) -> Outlook {
    let branches = steps.len() - 1;
    let calls = |branch: usize| -> f64 {
        kinds
            .iter()
            .zip(sends)
            .map(|(kind, sends)| kind * sends[branch])
            .sum()
    };
    let right_of = |kind: usize| -> f64 {
        sends[kind]
            .iter()
            .zip(&right[kind])
            .map(|(sent, right)| sent * right)
            .sum()
    };
    Outlook {
        accuracy: (0..kinds.len()).map(|kind| kinds[kind] * right_of(kind)).sum(),
        ..taken(
            [(1.0, &steps[0])]
                .into_iter()
                .chain((0..branches).map(|n| (calls(n), &steps[n + 1]))),
        )
    }
}

fn cascade(confident_right: &[f64], confident_wrong: &[f64], steps: &[Step]) -> Outlook {
    let (mut reaches, mut accuracy) = (1.0, 0.0);
    let mut calls = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        calls.push((reaches, step));
        // Who is asked last is taken at its word.
        let confident = |shares: &[f64]| shares.get(index).copied().unwrap_or(1.0);
        let kept_right = step.accuracy * confident(confident_right);
        let kept = kept_right + (1.0 - step.accuracy) * confident(confident_wrong);
        accuracy += reaches * kept_right;
        reaches *= 1.0 - kept;
    }
    Outlook {
        accuracy,
        ..taken(calls)
    }
}

fn vote(steps: &[Step]) -> Outlook {
    // The probability of each number of right answers, one voter after another.
    let mut right = vec![1.0];
    for step in steps {
        let mut next = vec![0.0; right.len() + 1];
        for (count, probability) in right.iter().enumerate() {
            next[count] += probability * (1.0 - step.accuracy);
            next[count + 1] += probability * step.accuracy;
        }
        right = next;
    }
    Outlook {
        accuracy: right[steps.len() / 2 + 1..].iter().sum(),
        latency_ms: steps.iter().map(|step| step.latency_ms).fold(0.0, f64::max),
        cost: steps.iter().map(|step| step.cost).sum(),
    }
}

fn critic(attempts: u32, passes_right: f64, passes_wrong: f64, author: Step, critic: Step) -> Outlook {
    let right = author.accuracy * passes_right;
    let passes = right + (1.0 - author.accuracy) * passes_wrong;
    // Of all answers but the last, how many are made: each one only if those before were refused.
    let refused = 1.0 - passes;
    let last = refused.powf(f64::from(attempts - 1));
    let looked_at = match passes > 0.0 {
        true => (1.0 - last) / passes,
        false => f64::from(attempts - 1),
    };
    Outlook {
        accuracy: looked_at * right + last * author.accuracy,
        ..taken([(looked_at + last, &author), (looked_at, &critic)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
