use super::message::Step;
use karman_types::NodeId;

/// Why a client does not do what it is told.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The node is not invited.
    #[error("{0} is not on the roster")]
    NotInvited(NodeId),
    /// The key pair is not the one on the roster.
    #[error("the key of {0} is another one on the roster")]
    NotMyKey(NodeId),
    /// The roster carries another number than the one that the client has shown for this round.
    #[error("the roster does not carry the number that {0} has shown for this round")]
    NotMyPass(NodeId),
    /// A message of another step, or a second one of the same.
    #[error("the coordinator speaks of {said}, this client is at {at}")]
    OutOfTurn {
        /// What the message is of.
        said: Step,
        /// Where the client is.
        at: Step,
    },
    /// A set of members that does not fit the roster, or holds somebody who was not there before.
    #[error("the members named with {0} are not those of the step before")]
    Members(Step),
    /// The client is not among those who take part, although it did what was asked.
    #[error("the coordinator has left this client out of {0}")]
    LeftOut(Step),
    /// Too few take part for the sum to be secret, or for it to be unmasked.
    #[error("only {have} take part in {step}, {need} are needed")]
    TooFew {
        /// At which step.
        step: Step,
        /// How many there are.
        have: usize,
        /// How many there have to be.
        need: usize,
    },
    /// A list that is not as long as there are neighbours.
    #[error("{have} {what} came for {need} neighbours")]
    Count {
        /// Of what.
        what: Step,
        /// How many there are.
        have: usize,
        /// How many there have to be.
        need: usize,
    },
    /// A signature that is none.
    #[error("the {what} of {node} are not signed by it")]
    Signature {
        /// What should be signed.
        what: Step,
        /// By whom.
        node: NodeId,
    },
    /// A key that would give a mask everybody knows.
    #[error("a key of {0} is of low order")]
    WeakKey(NodeId),
    /// The vector has another length.
    #[error("the vector has {have} elements instead of {need}")]
    Length {
        /// Its length.
        have: usize,
        /// What was agreed on.
        need: usize,
    },
    /// An element does not fit.
    #[error("element {0} is outside the ring")]
    OutsideRing(usize),
    /// Somebody is said to have both survived and dropped out: with the shares for both, its vector would be laid open.
    #[error("{0} cannot have survived and dropped out")]
    Overlap(NodeId),
    /// The lists leave somebody out, or name others.
    #[error("those who survived and those who dropped out are not all who shared secrets")]
    NotAll,
    /// The survivors are not those whose list this client signed.
    #[error("the survivors are not those that were signed")]
    OtherSurvivors,
    /// It has revealed what it reveals in a round.
    #[error("the shares of this round are revealed already")]
    Revealed,
}
