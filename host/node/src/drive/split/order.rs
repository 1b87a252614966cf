//! How an operator wants a model to run in parts.

use super::policy::CutBy;
use karman_sched::partition::{Bounded, Bounds, Objective, ProblemError, Tuning};
use karman_types::{Slo, TaskError};
use serde::{Deserialize, Serialize};

/// An operator's order to run a model in parts, cut between its layers.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SplitOrder {
    /// The nodes that may take part besides this one, as for deployments; empty: the nearest of every other tier.
    pub over: Vec<String>,
    /// What a millisecond until the result counts.
    pub latency: Option<f64>,
    /// What a millijoule counts.
    pub energy: Option<f64>,
    /// What a millisecond of the slowest stage counts.
    pub interval: Option<f64>,
    /// What a request is to keep, instead of weights: its p95 and its energy give the weights. It bounds nothing else.
    pub slo: Option<Slo>,
    /// What a request is to take as little of as the SLO's bound on the other allows.
    pub least: Option<Bounded>,
    /// How far an activation may come out of a link from what went in, as a share of the largest magnitude in its tensor; nothing:
    /// it comes out as it went in.
    pub max_error: Option<f64>,
    /// Who cuts.
    pub policy: CutBy,
    /// By what share another plan has to be better before requests move to it; nothing: as usual for the policy.
    pub hysteresis: Option<f64>,
    /// A cut that stays whatever is measured, instead of one that a policy finds: for each node but the last, in the order of the
    /// stages, how many layers come before the next one's. Nodes that are not named get none.
    pub cut: Option<Vec<usize>>,
    /// Whether nodes that have not timed the model yet predict its times from those of other models, as far as they have timed any,
    /// instead of timing it first.
    pub predict: bool,
    /// Whether tasks that load the model get it in parts from now on.
    pub apply: bool,
}

impl SplitOrder {
    /// # Errors
    /// `invalid` when it is no share.
    pub(super) fn max_error(&self) -> Result<f64, TaskError> {
        share("max_error", self.max_error.unwrap_or_default())
    }

    /// When a plan is looked at again, and what it takes to move.
    ///
    /// # Errors
    /// `invalid` when the hysteresis is no share.
    pub(super) fn tuning(&self) -> Result<Tuning, TaskError> {
        let usual = Tuning::default();
        let hysteresis = match (self.hysteresis, self.policy) {
            (Some(hysteresis), _) => share("hysteresis", hysteresis)?,
            (None, CutBy::Best) => usual.hysteresis,
            // It goes by what it measured last, and knows no reluctance.
            (None, CutBy::Neurosurgeon) => 0.0,
        };
        Ok(Tuning { hysteresis, ..usual })
    }

    /// Whether the node that holds the data may begin with the rest itself when others are late: where latency counts, or energy, for whoever
    /// waits draws power, too; and no given cut or other policy is there to be compared with.
    pub(super) fn overtakes(&self) -> bool {
        let waiting_counts = |objective: Objective| objective.latency > 0.0 || objective.energy > 0.0;
        self.cut.is_none() && self.policy == CutBy::Best && self.objective().is_ok_and(waiting_counts)
    }

    /// What counts; where there are bounds, what counts at first.
    ///
    /// # Errors
    /// Those of [`SplitOrder::bounds`].
    pub(super) fn objective(&self) -> Result<Objective, TaskError> {
        match (self.bounds()?, self.latency, self.energy, self.interval) {
            (Some(bounds), ..) => bounds.objective().map_err(wrong_bound),
            (None, None, None, None) => Ok(Objective::LATENCY),
            (None, latency, energy, interval) => Ok(Objective::weighing(
                latency.unwrap_or_default(),
                energy.unwrap_or_default(),
                interval.unwrap_or_default(),
            )),
        }
    }

    /// What a request is to keep.
    ///
    /// # Errors
    /// `invalid` when the SLO makes no sense, bounds what no cut changes, or stands beside weights.
    pub(super) fn bounds(&self) -> Result<Option<Bounds>, TaskError> {
        let wrong = |says: String| Err(TaskError::invalid(says).with_field("slo"));
        let stated = match &self.slo {
            None if self.least.is_none() => return Ok(None),
            None => Bounds::default(),
            Some(slo) => {
                if let Err(error) = slo.check() {
                    return wrong(error.to_string());
                }
                if slo.accuracy.or(slo.cost).is_some() {
                    return wrong(
                        "a cut changes neither accuracy nor cost; it is planned by p95 and energy".into(),
                    );
                }
                Bounds::of(slo)
            }
        };
        if self.latency.or(self.energy).or(self.interval).is_some() {
            return wrong("an SLO gives the weights itself: state one of the two, not both".into());
        }
        let bounds = Bounds {
            least: self.least,
            ..stated
        };
        let has_bound = self.least.is_some_and(|least| bounds.bound(least).is_some());
        match bounds == Bounds::default() {
            _ if has_bound => wrong("what is to be least has no bound as well: state one of the two".into()),
            true => wrong("it bounds nothing: state p95, energy, or both".into()),
            false => Ok(Some(bounds)),
        }
    }
}

fn share(field: &str, share: f64) -> Result<f64, TaskError> {
    match (0.0..=1.0).contains(&share) {
        true => Ok(share),
        false => {
            Err(TaskError::invalid(format!("`{field}` is {share}: it lies from 0 to 1")).with_field(field))
        }
    }
}

fn wrong_bound(error: ProblemError) -> TaskError {
    TaskError::invalid(error.to_string()).with_field("slo")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn order(slo: Slo) -> SplitOrder {
        SplitOrder {
            slo: Some(slo),
            ..SplitOrder::default()
        }
    }

    #[test]
    fn an_slo_gives_the_weights() {
        let slo = Slo {
            latency_p95: Some(Duration::from_millis(50)),
            energy: Some(8.0),
            ..Slo::over(40)
        };
        let objective = order(slo).objective();
        assert_eq!(objective, Ok(Objective::weighing(1.0 / 50.0, 1.0 / 200.0, 0.0)));
        assert_eq!(SplitOrder::default().objective(), Ok(Objective::LATENCY));
        let frugal = SplitOrder {
            least: Some(Bounded::Energy),
            ..SplitOrder::default()
        };
        assert_eq!(frugal.objective(), Ok(Objective::ENERGY));
        assert!(frugal.overtakes());
        let soon = Slo {
            latency_p95: Some(Duration::from_millis(50)),
            ..Slo::over(1)
        };
        let busy = SplitOrder {
            interval: Some(1.0),
            ..SplitOrder::default()
        };
        assert!(!busy.overtakes(), "nobody waits for a single request");
        let frugal_and_soon = SplitOrder {
            least: Some(Bounded::Energy),
            ..order(soon)
        };
        assert!(frugal_and_soon.overtakes());
    }

    #[test]
    fn reluctance_is_a_share() {
        let by = |hysteresis, policy| SplitOrder {
            hysteresis,
            policy,
            ..SplitOrder::default()
        };
        let reluctance = |order: SplitOrder| order.tuning().map(|tuning| tuning.hysteresis);
        assert_eq!(
            reluctance(by(None, CutBy::Best)),
            Ok(Tuning::default().hysteresis)
        );
        assert_eq!(reluctance(by(None, CutBy::Neurosurgeon)), Ok(0.0));
        assert_eq!(reluctance(by(Some(0.1), CutBy::Neurosurgeon)), Ok(0.1));
        for wrong in [-0.1, 1.5, f64::NAN] {
            let error = reluctance(by(Some(wrong), CutBy::Best)).unwrap_err();
            assert_eq!(error.field.as_deref(), Some("hysteresis"), "{error}");
        }
    }

    #[test]
    fn an_slo_that_says_nothing_of_a_cut_is_refused() {
        let soon = Slo {
            latency_p95: Some(Duration::from_millis(50)),
            ..Slo::over(40)
        };
        let weighed = SplitOrder {
            interval: Some(1.0),
            ..order(soon.clone())
        };
        let cheap = order(Slo {
            cost: Some(1.0),
            ..soon.clone()
        });
        let twice = SplitOrder {
            least: Some(Bounded::Latency),
            ..order(soon.clone())
        };
        let endless = order(Slo { requests: 0, ..soon });
        for (order, says) in [
            (weighed, "not both"),
            (cheap, "neither accuracy nor cost"),
            (endless, "`requests` is 0"),
            (order(Slo::over(40)), "bounds nothing"),
            (twice, "one of the two"),
        ] {
            let error = order.bounds().unwrap_err();
            assert!(error.message.contains(says), "{error}");
            assert_eq!(error.field.as_deref(), Some("slo"));
        }
    }
}
