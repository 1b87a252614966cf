//! What goes wrong in a round, as its coordinator sees it: shares that it does without, messages that it does not take, and why there is no sum.

use super::message::Step;
use karman_types::NodeId;

/// A share that is not what its owner said it would be. One of the two lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fault {
    /// Whose secret it is a share of.
    pub owner: NodeId,
    /// Who held it.
    pub holder: NodeId,
    /// What is wrong.
    pub what: FaultKind,
}

/// What may be wrong with a share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FaultKind {
    /// The holder says that the owner sent garbage.
    Garbage,
    /// The holder revealed something else than the owner committed to.
    Changed,
}

/// Why a client's message is not taken. The client may send another one; the round is as it was.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// The sender is not on the roster.
    #[error("{0} is not on the roster")]
    NotInvited(NodeId),
    /// A message of another step.
    #[error("{from} sends {sent} while the round is at {at}")]
    OutOfTurn {
        /// Who sent it.
        from: NodeId,
        /// What it is of.
        sent: Step,
        /// Where the round is.
        at: Step,
    },
    /// The sender has missed an earlier step.
    #[error("{0} has dropped out of the round")]
    DroppedOut(NodeId),
    /// The sender has answered this step.
    #[error("{0} has sent this already")]
    Repeated(NodeId),
    /// A signature that is none.
    #[error("{0} has not signed what it sends")]
    Signature(NodeId),
    /// A key that would give a mask everybody knows.
    #[error("a key of {0} is of low order")]
    WeakKey(NodeId),
    /// A list or vector of another length.
    #[error("{from} sends {have} {what} instead of {need}")]
    Length {
        /// Who sent it.
        from: NodeId,
        /// What is in it.
        what: &'static str,
        /// How many.
        have: usize,
        /// How many there have to be.
        need: usize,
    },
}

/// Why a round ends without a sum.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// Too few clients are left.
    #[error("only {have} clients sent {step}, {need} are needed")]
    TooFew {
        /// The step that was closed.
        step: Step,
        /// How many there are.
        have: usize,
        /// How many there have to be.
        need: usize,
    },
    /// Too many of a client's holders are gone or lie.
    #[error("only {have} holders have a good share of a secret of {owner}, {need} are needed")]
    TooFewShares {
        /// Whose secret.
        owner: NodeId,
        /// How many there are.
        have: usize,
        /// How many there have to be.
        need: usize,
    },
    /// A client has shared something else than its secret.
    #[error("what {0} shared is not its secret")]
    FalseSecret(NodeId),
    /// So many of a client's holders have no share that it committed to, or say so, that its secret cannot be put together without them.
    #[error("{owner} shared garbage with {holders} of its holders: there is no secret of it without them")]
    Garbage {
        /// Whose secret.
        owner: NodeId,
        /// How many say so.
        holders: usize,
    },
    /// The round is over.
    #[error("the round is over")]
    Over,
}

impl Failure {
    /// Whose lie this is, where it is one: a round without that client may come to a sum. What a client has committed to in false convicts it;
    /// where holders have nothing good of it, more than a third of them would have to lie.
    pub const fn liar(&self) -> Option<NodeId> {
        match self {
            Self::FalseSecret(owner) | Self::Garbage { owner, .. } => Some(*owner),
            Self::TooFew { .. } | Self::TooFewShares { .. } | Self::Over => None,
        }
    }
}
