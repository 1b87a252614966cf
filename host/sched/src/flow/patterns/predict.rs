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

    /// Whether the parameters are within their bounds and the pattern takes this many steps.
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
