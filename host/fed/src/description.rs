mod clients;
mod local_privacy;
mod low_rank;
mod pace;
mod parts;
mod privacy;
mod secure_sum;
mod swarm;
#[cfg(test)]
mod tests;

pub use clients::Clients;
pub use local_privacy::LocalPrivacy;
pub use low_rank::{LowRank, LowRankRule};
pub use pace::Pace;
pub use parts::{EncodingPolicy, Evaluation, Limits, Training};
pub use privacy::Privacy;
pub use secure_sum::SecureSum;
pub use swarm::Swarm;

use crate::privacy::CentralError;
use crate::select::{Eligibility, NoTime, SelectionChoice};
use crate::strategy::{Gather, StrategyChoice, WeightPolicy};
use karman_tensor::arithmetic::Grid;
use karman_tensor::encode::Encoding;
use karman_types::{KeyError, from_toml};
use serde::{Deserialize, Serialize};

/// A run as it is written down: `fed.toml`. Everything but the name and the number of rounds has a default.
///
/// ```
/// let run = karman_fed::Run::from_toml(r#"
///     name = "digits"
///     rounds = 50
///     weights = { capped = 200 }
///
///     [pace]
///     mode = "synchronous"
///     clients = 10
///     timeout = "2 min"
///
///     [strategy]
///     name = "fed-adam"
///     rate = 0.05
/// "#).unwrap();
/// assert_eq!(run.pace.cohort(), 10);
///
/// let error = karman_fed::Run::from_toml("name = 'digits'\nruonds = 50").unwrap_err();
/// assert_eq!(error.to_string(), "unknown key `ruonds` at line 2; did you mean `rounds`?");
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Run {
    /// What people call it.
    pub name: String,
    /// Versions of the model to make.
    pub rounds: u64,
    /// Decides all chance. Default 0.
    #[serde(default)]
    pub seed: u64,
    /// Clients that have to be here before the first round. Default: the fewest with which a round works.
    #[serde(default)]
    pub start_with: usize,
    /// The model of the driver's node whose weights it begins with. Default: a client makes the first version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Who trains.
    #[serde(default)]
    pub clients: Clients,
    /// How rounds follow each other. Default: `synchronous`, with 10 clients.
    #[serde(default)]
    pub pace: Pace,
    /// What becomes of the updates. Default: `fed-avg`.
    #[serde(default)]
    pub strategy: StrategyChoice,
    /// How much each counts.
    #[serde(default)]
    pub weights: WeightPolicy,
    /// Who is wanted. Default: `random`.
    #[serde(default)]
    pub selection: SelectionChoice,
    /// Who can.
    #[serde(default)]
    pub eligibility: Eligibility,
    /// What clients do with the model.
    #[serde(default)]
    pub training: Training,
    /// How updates travel.
    #[serde(default)]
    pub encoding: EncodingPolicy,
    /// Whether clients train low-rank adapters in place of the whole model. Default: not.
    #[serde(default)]
    pub low_rank: Option<LowRank>,
    /// Differential privacy of the clients. Default: none.
    #[serde(default)]
    pub privacy: Option<Privacy>,
    /// Noise that clients add themselves, each to its own update. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_privacy: Option<LocalPrivacy>,
    /// Whether updates are summed so that nobody sees one. Default: not.
    #[serde(default)]
    pub secure_sum: Option<SecureSum>,
    /// Whether updates go from client to client, without a server in the middle. Default: not.
    #[serde(default)]
    pub swarm: Option<Swarm>,
    /// Whether and when clients judge the model.
    #[serde(default)]
    pub evaluation: Evaluation,
    /// What one client may do to the run.
    #[serde(default)]
    pub limits: Limits,
}

/// A description that no run can follow.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It does not read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A number outside its bounds.
    #[error("`{field}` is {value}: it must lie between {least} and {most}")]
    Number {
        /// Which one.
        field: &'static str,
        /// As given.
        value: f64,
        /// The least that is possible.
        least: f64,
        /// The most that is possible.
        most: f64,
    },
    /// Noise or clipping that are none.
    #[error("`privacy`: {0}")]
    Privacy(#[from] CentralError),
    /// What is promised would not hold.
    #[error("`[privacy]` needs {needs}")]
    NotPrivate {
        /// What is missing.
        needs: &'static str,
    },
    /// Noise or clipping of clients that are none.
    #[error("`local-privacy`: {0}")]
    LocalPrivacy(#[source] CentralError),
    /// What is promised of clients that add noise would not hold.
    #[error("`[local-privacy]` needs {needs}")]
    NotLocal {
        /// What is missing.
        needs: &'static str,
    },
    /// What a secure sum does not go with.
    #[error("`[secure-sum]` needs {needs}")]
    NotSecure {
        /// What is missing.
        needs: &'static str,
    },
    /// What rounds without a server in the middle do not go with.
    #[error("`[swarm]` needs {needs}")]
    NotSwarm {
        /// What is missing.
        needs: &'static str,
    },
    /// What low-rank adapters do not go with.
    #[error("`[low-rank]` needs {needs}")]
    NotLowRank {
        /// What is missing.
        needs: &'static str,
    },
    /// Nobody would be asked.
    #[error(transparent)]
    NoTime(#[from] NoTime),
    /// A robust rule, or one that a plugin brings, with updates of several versions.
    #[error("`{strategy}` needs updates of one version of the model: `mode = \"synchronous\"`")]
    NotSynchronous {
        /// The strategy.
        strategy: String,
    },
}

impl RunError {
    fn number((field, value, least, most): (&'static str, f64, f64, f64)) -> Self {
        Self::Number {
            field,
            value,
            least,
            most,
        }
    }
}

/// The most clients that train at once: what a fixed-point sum is made for.
pub(crate) const MOST_CLIENTS: usize = 100_000;

impl Run {
    /// Reads a description and checks it.
    ///
    /// # Errors
    /// An unknown key, with the nearest known one; a number outside its bounds; parts that do not go together.
    pub fn from_toml(text: &str) -> Result<Self, RunError> {
        let run: Self = from_toml(text)?;
        run.check()?;
        Ok(run)
    }

    /// Whether a run can follow this description.
    ///
    /// # Errors
    /// A number outside its bounds; parts that do not go together.
    pub fn check(&self) -> Result<(), RunError> {
        let within = |field, value: f64, least: f64, most: f64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(RunError::number((field, value, least, most))),
        };
        let cohort = self.pace.cohort() as f64;
        within("rounds", self.rounds as f64, 1.0, 1e9)?;
        // Seconds: with none every client would be late.
        within("pace.timeout", self.pace.timeout().as_secs_f64(), 0.001, 1e7)?;
        self.eligibility.check_timeout(self.pace.timeout())?;
        let minimum = self.pace.minimum() as f64;
        match &self.pace {
            Pace::Synchronous { .. } => {
                within("pace.clients", cohort, 1.0, MOST_CLIENTS as f64)?;
                within("pace.minimum", minimum, 1.0, cohort)?;
            }
            Pace::SemiAsynchronous { enough, .. } => {
                within("pace.clients", cohort, 1.0, MOST_CLIENTS as f64)?;
                within("pace.minimum", minimum, 1.0, cohort)?;
                within("pace.enough", *enough as f64, minimum, cohort)?;
            }
            Pace::Buffered { .. } => {
                within("pace.at-once", cohort, 1.0, MOST_CLIENTS as f64)?;
                within("pace.buffer", minimum, 1.0, MOST_CLIENTS as f64)?;
            }
        }
        within(
            "clients.simulated",
            self.clients.simulated.into(),
            0.0,
            MOST_CLIENTS as f64,
        )?;
        within(
            "clients.shares",
            self.clients.shares.into(),
            0.0,
            MOST_CLIENTS as f64,
        )?;
        within("training.epochs", self.training.epochs.into(), 1.0, 1e6)?;
        within("training.batch", self.training.batch.into(), 1.0, 1e6)?;
        within(
            "training.learning-rate",
            self.training.learning_rate.into(),
            Training::LEAST_RATE.into(),
            1e6,
        )?;
        within(
            "training.learning-rate-decay",
            self.training.learning_rate_decay.into(),
            0.0,
            1.0,
        )?;
        within(
            "evaluation.target",
            self.evaluation.target.unwrap_or(0.0),
            0.0,
            1.0,
        )?;
        within(
            "eligibility.least-charge",
            self.eligibility.least_charge,
            0.0,
            1.0,
        )?;
        within("limits.samples", self.limits.samples as f64, 1.0, 1e9)?;
        within("limits.magnitude", self.limits.magnitude.into(), 1e-6, 1e9)?;
        if let WeightPolicy::Capped(most) = self.weights {
            within("weights.capped", most as f64, 1.0, 1e9)?;
        }
        if let EncodingPolicy::Fixed(Encoding::TopK(share)) = self.encoding {
            within("encoding.fixed.top-k", share.into(), 1.0, 1000.0)?;
        }
        if let EncodingPolicy::ByLink(error) = self.encoding {
            within("encoding.by-link", error, 0.0, 1.0)?;
        }
        self.strategy.check().map_err(RunError::number)?;
        self.selection.check().map_err(RunError::number)?;
        if let Some(privacy) = &self.privacy {
            within(
                "privacy.most-epsilon",
                privacy.most_epsilon.unwrap_or(1.0),
                f64::MIN_POSITIVE,
                1e6,
            )?;
            privacy.check(self)?;
        }
        if let Some(local) = &self.local_privacy {
            local.check(self)?;
        }
        if let Some(secure) = &self.secure_sum {
            secure.check(self)?;
        }
        if let Some(swarm) = &self.swarm {
            swarm.check(self)?;
        }
        if let Some(low_rank) = &self.low_rank {
            low_rank.check(self)?;
        }
        self.check_robust()
    }

    /// The grid on which every sum of this run fits: as many terms as a version can have, each at most the largest weight times the
    /// largest number.
    ///
    /// # Panics
    /// When the description was not checked: its limits are positive and finite.
    pub fn grid(&self) -> Grid {
        let terms = self.pace.cohort().max(self.pace.minimum()) as u32;
        let largest =
            self.weights.largest(self.limits.samples).max(1) as f64 * f64::from(self.limits.magnitude);
        Grid::new(largest, terms.max(1))
            .expect("the description was checked: its limits are positive and finite")
    }

    /// Robust rules compare updates of one version, and need a round large enough for the liars they are to stand. A plugin gets no
    /// others either: whoever writes one is not to weigh what is stale against what is not.
    fn check_robust(&self) -> Result<(), RunError> {
        let (strategy, least) = match (self.strategy.plugin(), self.strategy.build()) {
            (Some(plugin), _) => (plugin.plugin.clone(), 1),
            (None, Some(strategy)) => match strategy.gather() {
                Gather::Together { least } => (strategy.name().to_owned(), least),
                Gather::Sum | Gather::Each => return Ok(()),
            },
            (None, None) => return Ok(()),
        };
        if !matches!(self.pace, Pace::Synchronous { .. }) {
            return Err(RunError::NotSynchronous { strategy });
        }
        match self.pace.cohort() >= least {
            true => Ok(()),
            false => Err(RunError::Number {
                field: "pace.clients",
                value: self.pace.cohort() as f64,
                least: least as f64,
                most: MOST_CLIENTS as f64,
            }),
        }
    }
}
