use karman_tensor::encode::{Encoding, Link, Measured, choose};
use serde::{Deserialize, Serialize};

/// What clients do with the model: keys that the client plugin gets.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Training {
    /// Passes over its data. Default 1.
    pub epochs: u32,
    /// Samples of a step. Default 32.
    pub batch: u32,
    /// The size of a step. Default 0.01.
    pub learning_rate: f32,
    /// What it is multiplied by with each version of the model. Default 1.
    pub learning_rate_decay: f32,
    /// Whether a client that is known to be slow gets a bound on its steps, so that it is done within the round's time. Default true.
    pub partial_work: bool,
}

impl Default for Training {
    fn default() -> Self {
        Self {
            epochs: 1,
            batch: 32,
            learning_rate: 0.01,
            learning_rate_decay: 1.0,
            partial_work: true,
        }
    }
}

impl Training {
    /// The least that [`Self::learning_rate`] may be, and falls to.
    pub(crate) const LEAST_RATE: f32 = 1e-12;

    /// The size of a step by which this version of the model is trained further.
    pub(crate) fn rate(&self, version: u64) -> f32 {
        let decay = libm::pow(self.learning_rate_decay.into(), version as f64);
        ((f64::from(self.learning_rate) * decay) as f32).max(Self::LEAST_RATE)
    }
}

/// How updates travel. Eight bits and top-k keep what they lose, and send it later.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EncodingPolicy {
    /// As they are.
    #[default]
    Exact,
    /// All alike.
    Fixed(Encoding),
    /// Each by the link to its client: what is through first among the encodings that were measured, with an error of at most this
    /// share of the largest number. Exact where the link was never measured.
    ByLink(f64),
}

/// An encoding, and whether zstd packs it.
pub(crate) type Packing = (Encoding, bool);

impl EncodingPolicy {
    /// How a client's update of this many bytes as `f32` should travel.
    pub(crate) fn choose(self, bytes: u64, link: Option<Link>, measured: &[Measured]) -> Packing {
        match (self, link) {
            (Self::Fixed(encoding), _) => (encoding, false),
            // An update is encoded as a whole before it is sent. Links were checked when they were told.
            (Self::ByLink(error), Some(link)) => choose(bytes, bytes, link, error, measured)
                .map_or((Encoding::F32, false), |choice| (choice.encoding, choice.packed)),
            (Self::Exact, _) | (Self::ByLink(_), None) => (Encoding::F32, false),
        }
    }
}

/// Whether and when clients judge the model on data that they hold back.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Evaluation {
    /// After each so many versions; 0 is never. Default 1.
    pub every: u64,
    /// How many clients are asked, at random. Default 10.
    pub clients: usize,
    /// The accuracy, 0 to 1, at which the run ends early.
    pub target: Option<f64>,
}

impl Default for Evaluation {
    fn default() -> Self {
        Self {
            every: 1,
            clients: 10,
            target: None,
        }
    }
}

/// What one client may do to the run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Limits {
    /// Samples that a client may declare. Default 100,000.
    pub samples: u64,
    /// The largest magnitude of a number in an update. Default 1,000.
    pub magnitude: f32,
    /// Refused updates after which a client is not asked any more. Default 3.
    pub refusals: u32,
    /// Failed rounds in a row after which the run fails. Default 3.
    pub failed_rounds: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            samples: 100_000,
            magnitude: 1000.0,
            refusals: 3,
            failed_rounds: 3,
        }
    }
}
