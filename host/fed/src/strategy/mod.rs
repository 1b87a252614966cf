//! What becomes of the updates: one rule a file, all behind one trait, which a plugin implements too.
//!
//! Most rules are a weighted mean and a step of the server ([`FedAvg`], [`FedProx`], [`FedAvgM`], [`FedAdam`], [`FedYogi`],
//! [`FedAdagrad`], [`Scaffold`], [`FedNova`]): their updates stream through a fixed-point sum. The robust ones ([`Krum`],
//! [`Bulyan`], [`TrimmedMean`], [`Median`]) need all updates of a round at once, and ignore weights: a weight that a client
//! declares would give a liar the influence back that the rule takes from him. A rule that a plugin brings ([`Brought`]) gets them one
//! by one, with what is known of each.
//!
//! Each struct is its section of the run's description; what it keeps from round to round is not part of that, and goes into the
//! checkpoint by [`Strategy::save`].

mod adaptive;
mod brought;
mod bulyan;
mod choice;
mod fed_adagrad;
mod fed_adam;
mod fed_avg;
mod fed_avg_m;
mod fed_nova;
mod fed_prox;
mod fed_yogi;
mod krum;
mod median;
mod plugin;
mod scaffold;
mod trimmed_mean;
mod weights;

#[cfg(test)]
mod tests;

pub use brought::{Aggregator, Brought, Made, Round};
pub use bulyan::Bulyan;
pub use choice::StrategyChoice;
pub use fed_adagrad::FedAdagrad;
pub use fed_adam::FedAdam;
pub use fed_avg::FedAvg;
pub use fed_avg_m::FedAvgM;
pub use fed_nova::FedNova;
pub use fed_prox::FedProx;
pub use fed_yogi::FedYogi;
pub use krum::Krum;
pub use median::Median;
pub use plugin::Plugin;
pub use scaffold::Scaffold;
pub use trimmed_mean::TrimmedMean;
pub use weights::WeightPolicy;

use crate::{Arithmetic, ArithmeticError, AssignmentId, ClientId, StateError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A rule by which the updates of a round become the next version of the model.
///
/// An update is what a client's training changed: its numbers after it minus those before. A round calls [`Strategy::begin`] when
/// it opens; for each update that it takes [`Strategy::factor`], or at its end [`Strategy::combine`] with all of them, or neither where
/// [`Strategy::gather`] asks for each; then [`Strategy::step`]. The same calls give the same results.
pub trait Strategy: fmt::Debug + Send {
    /// Its name, as the run's description writes it.
    fn name(&self) -> &str;

    /// Whether updates are added up as they arrive, or needed at once, or one by one.
    fn gather(&self) -> Gather {
        Gather::Sum
    }

    /// How many rows of numbers, each as long as the model, an update consists of: 1, or 2 where clients send a second one along.
    fn rows(&self) -> usize {
        1
    }

    /// What is sent to clients along with the model.
    fn begin(&self) -> Extras {
        Extras::default()
    }

    /// What the update of this client is multiplied by in the sum, which is then divided by the sum of weights: above 0, and no
    /// more than its weight.
    fn factor(&self, facts: &Facts) -> f64 {
        facts.weight as f64
    }

    /// Makes one update of all, where [`Strategy::gather`] asks for them together. They come in the order of clients.
    ///
    /// # Errors
    /// [`StrategyError::NotDefined`] when there are too few for what the rule promises.
    fn combine(&self, updates: &[&[f32]], arithmetic: &dyn Arithmetic) -> Result<Vec<f32>, StrategyError> {
        Ok(arithmetic.trimmed_mean(updates, 0)?)
    }

    /// Changes the model by the aggregate.
    ///
    /// # Errors
    /// When a plugin fails. The model is then as it was before: the caller keeps a copy.
    fn step(&mut self, model: &mut [f32], aggregate: &Aggregate<'_>) -> Result<(), StrategyError>;

    /// What it keeps from round to round.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Goes on from what [`Strategy::save`] gave.
    ///
    /// # Errors
    /// When the bytes are not such a state.
    fn load(&mut self, _state: &[u8]) -> Result<(), StateError> {
        Ok(())
    }
}

/// How a rule wants its updates.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Gather {
    /// Added up as they arrive, at most eight of them in memory.
    Sum,
    /// All at once, at least so many.
    Together {
        /// With fewer the rule is not defined.
        least: usize,
    },
    /// One by one when the round closes ([`Aggregate::updates`]); until then all of them are in memory.
    Each,
}

/// What goes to clients with the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extras {
    /// FedProx's mu: the client adds `mu/2 ‖w − w_t‖²` to its loss.
    pub proximal: f32,
    /// SCAFFOLD's control variate of the server, as long as the model; nothing where it is still zero.
    pub control: Option<Arc<[f32]>>,
}

/// What is known of one update that a round has taken.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Facts {
    /// Whose it is.
    pub client: ClientId,
    /// What it answers.
    pub assignment: AssignmentId,
    /// Samples, as declared.
    pub samples: u64,
    /// What it counts by the weight policy.
    pub weight: u64,
    /// Local steps of gradient descent.
    pub steps: u32,
    /// The mean loss that the client saw while training.
    pub loss: f32,
    /// How many versions the model has gone on since the client got it.
    pub staleness: u64,
}

/// What all updates of a round come to.
#[derive(Clone, Debug)]
pub struct Aggregate<'a> {
    /// The version that the model has.
    pub version: u64,
    /// The mean or its robust stand-in, [`Strategy::rows`] times as long as the model; empty for [`Gather::Each`].
    pub update: &'a [f32],
    /// For [`Gather::Each`] each update, in the order of clients; else empty.
    pub updates: &'a [Vec<f32>],
    /// What is known of each update, in the order of clients.
    pub facts: &'a [Facts],
    /// Clients that the run knows, whether they took part or not.
    pub population: usize,
}

/// A rule that gave no result.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StrategyError {
    /// Too few updates for the liars that the rule is to stand.
    #[error("{rule} is not defined for {updates} updates of which {liars} may lie: it needs {needs}")]
    NotDefined {
        /// The rule.
        rule: &'static str,
        /// Updates there are.
        updates: usize,
        /// Liars it is to stand.
        liars: usize,
        /// Updates it needs for so many.
        needs: usize,
    },
    /// The arithmetic failed.
    #[error(transparent)]
    Arithmetic(#[from] ArithmeticError),
    /// What it made of the updates is no update.
    #[error("the strategy failed: {0}")]
    Failed(String),
    /// A plugin failed. As it decides by nothing but what it is given, it would fail again.
    #[error("the strategy `{plugin}` made no version {version}: {why}")]
    Plugin {
        /// Its name.
        plugin: String,
        /// The version that it was to make.
        version: u64,
        /// Why it did not.
        why: String,
    },
}

/// `model += rate * update`, in double precision.
fn descend(model: &mut [f32], rate: f64, update: &[f32]) {
    for (weight, change) in model.iter_mut().zip(update) {
        *weight = (f64::from(*weight) + rate * f64::from(*change)) as f32;
    }
}

/// The array itself, zeros as long as the model before the first round.
fn grown(array: &mut Vec<f32>, length: usize, start: f32) -> &mut [f32] {
    if array.len() != length {
        *array = vec![start; length];
    }
    array
}
