use crate::Instant;
use karman_tensor::encode::Link;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A client of a run: one data set on one node. The node that drives the run numbers them; the same client keeps its number.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct ClientId(pub u64);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}", self.0)
    }
}

/// What a client says of itself, and what its node knows of its link and battery. Declared numbers are an attack surface: they
/// are bounded, and nothing that decides the result rests on them alone.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Profile {
    /// Samples that it trains on.
    pub samples: u64,
    /// Entropy of its labels over the greatest possible, 0 to 1; nothing where it does not tell.
    pub label_entropy: Option<f64>,
    /// State of charge of its battery, 0 to 1; nothing on mains.
    pub charge: Option<f64>,
    /// The link to it, as measured.
    pub link: Option<Link>,
    /// The largest rank of adapters that its node trains; nothing where it sets no bound.
    pub adapter_rank: Option<u32>,
    /// The largest ε, at [`crate::LocalPrivacy::USUAL_DELTA`], that its node gives away in one run where it adds the noise; nothing where it sets
    /// no bound.
    pub most_epsilon: Option<f64>,
}

/// A stretch of time in which a client is in view: it can be reached.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Window {
    /// When it begins.
    pub start: Instant,
    /// When it ends.
    pub end: Instant,
    /// What its link is planned to carry, in bytes a second; nothing where nobody says so.
    pub bytes_per_second: Option<f64>,
}

/// When clients are in view, of those with whom contacts are planned: each one's windows by their starts. All others always are.
pub type Windows = BTreeMap<ClientId, Vec<Window>>;

/// A number that no profile can have.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, thiserror::Error)]
#[error("`{field}` is {value}: it must lie between {least} and {most}")]
pub struct ProfileError {
    /// Which one.
    pub field: String,
    /// As given.
    pub value: f64,
    /// The least that is possible.
    pub least: f64,
    /// The most that is possible.
    pub most: f64,
}

impl Profile {
    /// Whether every number of it can be.
    ///
    /// # Errors
    /// [`ProfileError`] names the first that cannot.
    pub fn check(&self) -> Result<(), ProfileError> {
        let within = |field: &str, value: f64, least: f64, most: f64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(ProfileError {
                field: field.into(),
                value,
                least,
                most,
            }),
        };
        within("label-entropy", self.label_entropy.unwrap_or(0.0), 0.0, 1.0)?;
        within("charge", self.charge.unwrap_or(0.0), 0.0, 1.0)?;
        within("most-epsilon", self.most_epsilon.unwrap_or(0.0), 0.0, f64::MAX)?;
        if let Some(link) = self.link {
            within(
                "bytes-per-second",
                link.bytes_per_second,
                f64::MIN_POSITIVE,
                f64::MAX,
            )?;
        }
        Ok(())
    }
}
