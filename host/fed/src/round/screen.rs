use super::Update;
use crate::{Layout, Limits, ProfileError};
use karman_tensor::Shape;
use karman_tensor::encode::Encoded;
use serde::{Deserialize, Serialize};

/// Why something that a client sent does not count.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It answers what this client was never asked.
    #[error("it was not asked for this")]
    NotAsked,
    /// It answers a second time.
    #[error("it has answered before")]
    Duplicate,
    /// It answers what nobody waits for any more.
    #[error("its time was over")]
    Late,
    /// The model has gone on too far since.
    #[error("it is {staleness} versions old, at most {most} may it be")]
    Stale {
        /// Versions since.
        staleness: u64,
        /// Versions there may be.
        most: u64,
    },
    /// Not as many arrays as the model has.
    #[error("it has {given} arrays instead of {expected}")]
    Arrays {
        /// What there are.
        given: usize,
        /// What there should be.
        expected: usize,
    },
    /// An array of another shape.
    #[error("`{array}` has the shape {given} instead of {expected}")]
    Shape {
        /// Which array.
        array: String,
        /// What it has.
        given: Shape,
        /// What it should have.
        expected: Shape,
    },
    /// Bytes that are no array of finite numbers.
    #[error("`{array}`: {why}")]
    Unreadable {
        /// Which array.
        array: String,
        /// What is wrong with it.
        why: String,
    },
    /// A number beyond the limit.
    #[error("`{array}` holds {value}: the limit `magnitude` is {most}")]
    Magnitude {
        /// Which array.
        array: String,
        /// The number.
        value: f32,
        /// The limit.
        most: f32,
    },
    /// More samples than a client may declare, or none.
    #[error("it declares {samples} samples: it must be between 1 and the limit `samples` of {most}")]
    Samples {
        /// What it declares.
        samples: u64,
        /// The limit.
        most: u64,
    },
    /// In a round without a server, an update that counts for more or fewer samples than it is of.
    #[error("its update weighs {weight}: one of {samples} samples weighs {due}")]
    Weight {
        /// What it says there.
        weight: u64,
        /// What it declares in the open.
        samples: u64,
        /// What these weigh.
        due: u64,
    },
    /// No step was taken.
    #[error("it has not taken a step")]
    NoSteps,
    /// A loss or an accuracy that cannot be.
    #[error("its `{field}` is {value}")]
    Metric {
        /// Which one.
        field: &'static str,
        /// As given.
        value: f64,
    },
    /// In a secure sum it has shared something else than its secret.
    #[error("what it shared in a secure sum is not its secret")]
    FalseSecret,
    /// In a round without a server it has given others what is no piece of any update, by the word of more than half of its neighbours.
    #[error("most of its neighbours say that it sent them what is no piece of the round")]
    FalsePieces,
    /// Its node trains no adapters of as small a rank as there is.
    #[error("its node trains adapters up to rank {most}: the least of `low-rank.ranks` is {least}")]
    Rank {
        /// The largest that it trains.
        most: u32,
        /// The least there is.
        least: u32,
    },
    /// A profile that cannot be.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

impl Refusal {
    /// Whether it speaks against the client; to be late, to send an answer twice, or to have a small node does not.
    pub(crate) const fn is_fault(&self) -> bool {
        !matches!(
            self,
            Self::Late | Self::Duplicate | Self::Stale { .. } | Self::Rank { .. }
        )
    }
}

/// Why what a client declares of its training cannot be, if it cannot.
pub(crate) fn declared(samples: u64, steps: u32, loss: f32, limits: &Limits) -> Result<(), Refusal> {
    let most = limits.samples;
    if !(1..=most).contains(&samples) {
        return Err(Refusal::Samples { samples, most });
    }
    if steps == 0 {
        return Err(Refusal::NoSteps);
    }
    match loss.is_finite() {
        true => Ok(()),
        false => Err(Refusal::Metric {
            field: "loss",
            value: loss.into(),
        }),
    }
}

/// The numbers of an update, row by row; or why it does not count.
pub(crate) fn read(
    update: &Update,
    layout: &Layout,
    rows: usize,
    limits: &Limits,
) -> Result<Vec<f32>, Refusal> {
    declared(update.samples, update.steps, update.loss, limits)?;
    let expected = layout.arrays().len() * rows;
    if update.frames.len() != expected {
        let given = update.frames.len();
        return Err(Refusal::Arrays { given, expected });
    }
    let mut numbers = Vec::with_capacity(layout.length() * rows);
    for (frame, array) in update.frames.iter().zip(layout.arrays().iter().cycle()) {
        let unreadable = |error: karman_tensor::encode::EncodeError| Refusal::Unreadable {
            array: array.name.clone(),
            why: error.to_string(),
        };
        let encoded = Encoded::from_bytes(frame).map_err(unreadable)?;
        // Before it is decoded: its shape decides how much memory that takes.
        if encoded.shape() != array.shape {
            return Err(Refusal::Shape {
                array: array.name.clone(),
                given: encoded.shape(),
                expected: array.shape,
            });
        }
        let values = encoded.decode().map_err(unreadable)?;
        if let Some(value) = values.iter().find(|value| value.abs() > limits.magnitude) {
            return Err(Refusal::Magnitude {
                array: array.name.clone(),
                value: *value,
                most: limits.magnitude,
            });
        }
        numbers.extend(values);
    }
    Ok(numbers)
}
