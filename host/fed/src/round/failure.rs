use serde::{Deserialize, Serialize};

/// Why a round has made no version.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, thiserror::Error)]
#[non_exhaustive]
pub enum RoundFailure {
    /// Too few updates.
    #[error("{updates} updates came in, at least {minimum} are needed")]
    TooFew {
        /// What came in.
        updates: usize,
        /// What is needed.
        minimum: usize,
    },
    /// The strategy gave no result.
    #[error("{0}")]
    Strategy(String),
    /// The updates could not be summed in secret.
    #[error("there is no sum of its updates: {0}")]
    NoSum(String),
    /// The updates did not go from client to client.
    #[error("there is no mean of its updates: {0}")]
    NoMean(String),
    /// No noise could be added.
    #[error("its mean cannot be made private: {0}")]
    Privacy(String),
    /// The model would not be finite any more.
    #[error(
        "the step would have made number {index} of the model {value}: take a smaller `strategy.rate` or `training.learning-rate`"
    )]
    Diverged {
        /// Its position.
        index: usize,
        /// What it would be.
        value: f32,
    },
}

/// Why a run ended before its last round.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// Too many failed rounds in a row.
    #[error("{rounds} rounds in a row have failed, the last one because {last}")]
    Rounds {
        /// How many.
        rounds: u32,
        /// Why the last one did.
        last: RoundFailure,
    },
    /// The plugin that brings the strategy failed. Resumed from its last checkpoint, the run asks it for that version again.
    #[error("{0}; the run goes on from the version before when it is started again")]
    Strategy(String),
    /// A checkpoint could not be written. Nothing is to be written of this end either.
    #[error(
        "the checkpoint could not be written: {0}; the run goes on from the one before when it is started again"
    )]
    Unsaved(String),
    /// One more round would give away too much.
    #[error("one more round would spend ε = {epsilon:.3}, and `privacy.most-epsilon` is {most}")]
    Privacy {
        /// What would be spent.
        epsilon: f64,
        /// What may be.
        most: f64,
    },
    /// Too few clients may give away more of themselves.
    #[error(
        "{left} clients may give away more, and a round needs {least}: one more update of the others would exceed `most-epsilon`, of `[local-privacy]` or of their nodes"
    )]
    GivenAway {
        /// Clients that may.
        left: usize,
        /// What is needed.
        least: usize,
    },
    /// What a round would give away cannot be told.
    #[error("what one more round would give away cannot be accounted for: {0}")]
    Account(String),
    /// Somebody wanted it to end.
    #[error("it was stopped")]
    Stopped,
}
