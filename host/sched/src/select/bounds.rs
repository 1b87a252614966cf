use karman_types::{Implementation, Slo, SloError, format_duration};
use std::fmt;
use std::time::Duration;

/// What one request wants of the implementation that answers it. What is left out is not limited.
///
/// Other than the limits of a workflow ([`Slo`]), which are budgets for many requests together, each of these has to be kept by the
/// profile of everyone who may answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// The share of answers that are right, from 0 to 1: at least this.
    pub accuracy: Option<f64>,
    /// 95 of a hundred answers take at most this.
    pub p95: Option<Duration>,
    /// Money for the request, in the currency of the profiles: at most this.
    pub cost: Option<f64>,
}

/// One of the [`Bounds`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bound {
    /// [`Bounds::accuracy`].
    Accuracy,
    /// [`Bounds::cost`].
    Cost,
    /// [`Bounds::p95`].
    P95,
}

/// Nobody keeps a bound, of those who keep the ones before it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("nobody has {}: {}", self.wanted(), self.there())]
pub struct Unmet {
    /// Which.
    pub bound: Bound,
    /// What is wanted: a share, money, or seconds.
    pub wanted: f64,
    /// The best that there is among those who keep the bounds before it; nothing where it was never measured.
    pub best: Option<f64>,
    /// How many those are.
    pub of: usize,
}

impl Bounds {
    /// What the limits of a workflow want of everyone who may serve. The others are budgets.
    pub fn of_each(slo: &Slo) -> Self {
        Self {
            accuracy: slo.accuracy,
            ..Self::default()
        }
    }

    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether they mean something.
    ///
    /// # Errors
    /// Names the first that is outside what it may be, or no number.
    pub fn check(&self) -> Result<(), SloError> {
        let Self { accuracy, p95, cost } = *self;
        Slo {
            accuracy,
            latency_p95: p95,
            cost,
            ..Slo::over(Slo::USUAL_REQUESTS)
        }
        .check()
    }

    /// Those whose profiles keep every bound, in their order.
    ///
    /// # Errors
    /// Names the first bound that nobody keeps: accuracy, then cost, then the p95.
    pub fn met_by(&self, mut candidates: Vec<Implementation>) -> Result<Vec<Implementation>, Unmet> {
        for (bound, wanted) in self.wanted() {
            let before = candidates.len();
            let values = candidates.iter().filter_map(|known| bound.of(known));
            let best = values.reduce(|one, other| if bound.keeps(one, other) { one } else { other });
            candidates.retain(|known| bound.of(known).is_some_and(|value| bound.keeps(value, wanted)));
            if candidates.is_empty() {
                return Err(Unmet {
                    bound,
                    wanted,
                    best,
                    of: before,
                });
            }
        }
        Ok(candidates)
    }

    fn wanted(&self) -> impl Iterator<Item = (Bound, f64)> + use<> {
        let all = [
            (Bound::Accuracy, self.accuracy),
            (Bound::Cost, self.cost),
            (Bound::P95, self.p95.map(|p95| p95.as_secs_f64())),
        ];
        all.into_iter()
            .filter_map(|(bound, wanted)| Some((bound, wanted?)))
    }
}

impl Bound {
    /// What the profile of an implementation says of it.
    fn of(self, known: &Implementation) -> Option<f64> {
        match self {
            Self::Accuracy => known.profile.accuracy,
            Self::Cost => Some(known.profile.cost),
            Self::P95 => Some(known.profile.p95.as_secs_f64()),
        }
    }

    /// Whether a value keeps a limit.
    fn keeps(self, value: f64, limit: f64) -> bool {
        match self {
            Self::Accuracy => value >= limit,
            Self::Cost | Self::P95 => value <= limit,
        }
    }

    fn words(self, value: f64) -> String {
        match self {
            Self::Accuracy | Self::Cost => value.to_string(),
            Self::P95 => format_duration(Duration::try_from_secs_f64(value).unwrap_or(Duration::MAX)),
        }
    }
}

impl Unmet {
    fn wanted(&self) -> String {
        let value = self.bound.words(self.wanted);
        match self.bound {
            Bound::Accuracy => format!("an accuracy of at least {value}"),
            Bound::Cost => format!("a cost of at most {value}"),
            Bound::P95 => format!("a p95 of at most {value}"),
        }
    }

    fn there(&self) -> String {
        match (self.best, self.of) {
            (_, 0) => "there is nobody".to_owned(),
            (None, of) => format!("of none of the {of} it was measured"),
            (Some(best), of) => format!("the best of {of} has {}", self.bound.words(best)),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accuracy => "accuracy",
            Self::Cost => "cost",
            Self::P95 => "p95",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{candidate, millis};
    use super::*;
    use proptest::prelude::*;

    fn small_and_large() -> Vec<Implementation> {
        vec![candidate("s", 0.97, 10.0, 0.0), candidate("l", 0.99, 80.0, 0.002)]
    }

    fn names(kept: &[Implementation]) -> Vec<&str> {
        kept.iter().map(|known| known.name.as_str()).collect()
    }

    #[test]
    fn who_meets_every_bound_may_answer() {
        let all = Bounds::default().met_by(small_and_large()).unwrap();
        assert_eq!(names(&all), ["s", "l"]);
        let accurate = Bounds {
            accuracy: Some(0.98),
            ..Bounds::default()
        };
        assert_eq!(names(&accurate.met_by(small_and_large()).unwrap()), ["l"]);
        let fast = Bounds {
            p95: Some(millis(10.0)),
            ..Bounds::default()
        };
        assert_eq!(names(&fast.met_by(small_and_large()).unwrap()), ["s"]);
        let free = Bounds {
            cost: Some(0.0),
            ..Bounds::default()
        };
        assert_eq!(names(&free.met_by(small_and_large()).unwrap()), ["s"]);
    }

    #[test]
    fn the_bound_that_nobody_keeps_is_named() {
        let both = Bounds {
            accuracy: Some(0.98),
            p95: Some(millis(20.0)),
            cost: None,
        };
        let unmet = both.met_by(small_and_large()).unwrap_err();
        assert_eq!((unmet.bound, unmet.of), (Bound::P95, 1));
        assert_eq!(
            unmet.to_string(),
            "nobody has a p95 of at most 20 ms: the best of 1 has 80 ms"
        );
        let perfect = Bounds {
            accuracy: Some(1.0),
            ..Bounds::default()
        };
        let unmet = perfect.met_by(small_and_large()).unwrap_err();
        assert_eq!(
            unmet.to_string(),
            "nobody has an accuracy of at least 1: the best of 2 has 0.99"
        );
        let mut unknown = candidate("u", 0.5, 1.0, 0.0);
        unknown.profile.accuracy = None;
        let unmet = perfect.met_by(vec![unknown]).unwrap_err();
        assert!(unmet.to_string().ends_with("of none of the 1 it was measured"));
    }

    #[test]
    fn of_the_limits_of_a_workflow_everyone_keeps_the_accuracy() {
        let slo = Slo {
            accuracy: Some(0.98),
            cost: Some(0.0),
            latency_p95: Some(millis(1.0)),
            ..Slo::over(100)
        };
        let kept = Bounds::of_each(&slo).met_by(small_and_large()).unwrap();
        assert_eq!(names(&kept), ["l"]);
        assert!(Bounds::of_each(&Slo::over(100)).is_empty());
    }

    #[test]
    fn bounds_that_mean_nothing_are_named() {
        let cases = [
            (Some(1.5), None, None, "accuracy"),
            (Some(f64::NAN), None, None, "accuracy"),
            (None, Some(Duration::ZERO), None, "latency-p95"),
            (None, None, Some(-1.0), "cost"),
        ];
        for (accuracy, p95, cost, field) in cases {
            let error = Bounds { accuracy, p95, cost }.check().unwrap_err();
            assert!(error.to_string().contains(field), "{error}");
        }
    }

    proptest! {
        #[test]
        fn those_who_are_left_keep_all_and_those_who_are_not_do_not(
            profiles in prop::collection::vec((0.0..1.0, 1.0..100.0, 0.0..1.0), 0..6),
            accuracy in prop::option::of(0.0..1.0),
            p95 in prop::option::of(1.0..100.0),
            cost in prop::option::of(0.0..1.0),
        ) {
            let all: Vec<Implementation> = profiles
                .iter()
                .map(|(accuracy, p95, cost)| candidate("x", *accuracy, *p95, *cost))
                .collect();
            let bounds = Bounds { accuracy, p95: p95.map(millis), cost };
            let keeps = |known: &&Implementation| {
                accuracy.is_none_or(|least| known.profile.accuracy.unwrap() >= least)
                    && cost.is_none_or(|most| known.profile.cost <= most)
                    && bounds.p95.is_none_or(|most| known.profile.p95 <= most)
            };
            let expected: Vec<Implementation> = all.iter().filter(keeps).cloned().collect();
            match bounds.met_by(all) {
                Ok(kept) => prop_assert_eq!(kept, expected),
                Err(_) => prop_assert!(expected.is_empty()),
            }
        }
    }
}
