use crate::quantised::QuantisedError;

/// Why a board cannot go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// A packet that is cut off or too long, or of no known kind.
    #[error("a packet of {bytes} bytes from peer {peer} cannot be read")]
    Malformed {
        /// Who sent it.
        peer: usize,
        /// Its length.
        bytes: usize,
    },
    /// A packet that this board did not ask for: another stage, another row, not the next bytes, or not from this peer.
    #[error(
        "peer {peer} sent {what} of stage {stage}, row {row}, offset {offset}, which was not asked of it"
    )]
    Unasked {
        /// Who sent it.
        peer: usize,
        /// What it carries.
        what: &'static str,
        /// The stage that it names.
        stage: usize,
        /// The row that it names.
        row: usize,
        /// The place in the row that it names.
        offset: usize,
    },
    /// A program that does not fit the network.
    #[error("stage {stage} of the program does not fit the network: {what}")]
    Program {
        /// Counted from 0.
        stage: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The input has another number of values than the network takes.
    #[error("an input of {given} values was given instead of {expected}")]
    Input {
        /// What the program says.
        expected: usize,
        /// What was given.
        given: usize,
    },
    /// All boards wait and nothing is under way: the programs do not belong together.
    #[error("all boards wait for each other, the first in stage {stage}")]
    Stalled {
        /// The least stage that a board is in.
        stage: usize,
    },
    /// A layer refused its operands.
    #[error(transparent)]
    Arithmetic(#[from] QuantisedError),
}
