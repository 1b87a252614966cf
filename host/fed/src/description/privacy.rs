use super::{EncodingPolicy, Run, RunError};
use crate::Pace;
use crate::privacy::{Central, CentralError, CentralSettings, Clipping, Rate};
use crate::select::SelectionChoice;
use crate::strategy::WeightPolicy;
use serde::{Deserialize, Serialize};

/// Central differential privacy of each client, kept by whoever drives the run. It covers the versions of the model, not the losses
/// and accuracies that clients report.
///
/// See [`crate::privacy`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Privacy {
    /// The standard deviation of the noise over the norm that updates are clipped to; at least 0.05, at most 64.
    pub noise_multiplier: f64,
    /// How updates are clipped.
    pub clipping: Clipping,
    /// The chance with which each client that ever came is drawn for a round, on its own; that nobody knows who was drawn counts in
    /// their favour. Default: the round's clients are chosen at random, and each round counts in full.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// How many clients come over the whole run, where `rate` draws them: the sum of a round is divided by `rate` times as many, for their
    /// true number is nothing that a model may tell. Where more come, each version goes further than the mean of its updates. Default:
    /// `start-with`, or the simulated clients.
    #[serde(default)]
    pub population: Option<usize>,
    /// δ of what is reported. Default 1e-5.
    #[serde(default = "usual_delta")]
    pub delta: f64,
    /// The run ends before it gives away more than this ε. Default: no bound.
    #[serde(default)]
    pub most_epsilon: Option<f64>,
}

const fn usual_delta() -> f64 {
    1e-5
}

impl Privacy {
    /// The mechanism before the first round.
    pub(crate) fn central(&self, run: &Run) -> Result<Central, CentralError> {
        Central::new(CentralSettings {
            noise_multiplier: self.noise_multiplier,
            clipping: self.clipping,
            expected: self.expected(run),
            delta: self.delta,
        })
    }

    /// By how much the sum of a round is divided: by as many updates as are expected in it.
    pub(crate) fn expected(&self, run: &Run) -> f64 {
        match self.rate {
            Some(rate) => rate.share() * population(run) as f64,
            None => run.pace.cohort() as f64,
        }
    }

    /// Whether the rest of the description goes with it: what is promised holds for means of equal updates of one version, from
    /// clients whose choice depends on nothing that they have.
    pub(super) fn check(&self, run: &Run) -> Result<(), RunError> {
        if self.rate.is_some() && population(run) == 0 {
            let needs = "`population` or `start-with` beside `rate`: how many clients there are to draw from";
            return Err(RunError::NotPrivate { needs });
        }
        self.central(run)?;
        let needs = [
            (
                "pace.mode = \"synchronous\"",
                matches!(run.pace, Pace::Synchronous { .. }),
            ),
            (
                "a strategy that steps by a mean, like \"fed-avg\"",
                run.strategy.steps_by_a_mean(),
            ),
            ("weights = \"uniform\"", run.weights == WeightPolicy::Uniform),
            (
                "selection.name = \"random\"",
                matches!(run.selection, SelectionChoice::Random(_)),
            ),
            // Whoever was displaced once has lost something else of its updates ever after, and the account knows of no second difference.
            (
                "`rate`, or no `[encoding]`: what an update has lost on its way comes with a later one",
                self.rate.is_some() || run.encoding == EncodingPolicy::Exact,
            ),
        ];
        match needs.into_iter().find(|(_, holds)| !holds) {
            None => Ok(()),
            Some((needs, _)) => Err(RunError::NotPrivate { needs }),
        }
    }
}

/// How many clients there are to draw from: as many as is said, else those who are to be here before the first round.
fn population(run: &Run) -> usize {
    let said = run.privacy.and_then(|privacy| privacy.population);
    said.unwrap_or_else(|| run.start_with.max(run.clients.simulated as usize))
}
