use serde::{Deserialize, Serialize};

/// A graph of layers that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// There is nothing to cut.
    #[error("the graph has no layers")]
    NoLayers,
    /// A tensor comes from or goes to a layer that does not exist.
    #[error("tensor {tensor} names layer {layer}, which does not exist")]
    NoSuchLayer {
        /// The tensor.
        tensor: usize,
        /// What it names.
        layer: usize,
    },
    /// A layer needs what comes from itself.
    #[error("layer {layer} is part of a cycle")]
    Cycle {
        /// One of those in it.
        layer: usize,
    },
    /// A time that is no number of milliseconds.
    #[error("layer {layer} takes {ms} ms; a time is finite and not negative")]
    Time {
        /// The layer.
        layer: usize,
        /// Its time.
        ms: f64,
    },
    /// A chain with more or fewer outputs than layers.
    #[error("{layers} layers have {outputs} outputs; in a chain each has one")]
    Lengths {
        /// How many layers.
        layers: usize,
        /// How many outputs.
        outputs: usize,
    },
    /// Everything that is wanted is there already.
    #[error("every result is held already: there is nothing left to run")]
    NothingLeft,
    /// An activation is said to be held that is no tensor of the graph.
    #[error("tensor {tensor} does not exist")]
    NoSuchTensor {
        /// Its index.
        tensor: usize,
    },
}

/// Tiers, links or weights of a problem that make no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// The graph itself.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// None, or more than [`Problem::MAX_TIERS`](super::Problem::MAX_TIERS).
    #[error("{0} tiers; from 1 to {max} can be planned for", max = super::Problem::MAX_TIERS)]
    Tiers(usize),
    /// A number that is negative, not finite, or zero where that means nothing.
    #[error("{field} of {of} is {value}; it has to be finite and {bound}")]
    Number {
        /// Which number.
        field: &'static str,
        /// The tier or link that has it.
        of: String,
        /// The number.
        value: f64,
        /// What it has to be besides.
        bound: &'static str,
    },
    /// A tensor or a link names a tier that does not exist.
    #[error("{of} names tier {tier}; there are {tiers}")]
    NoSuchTier {
        /// What names it.
        of: String,
        /// The tier.
        tier: usize,
        /// How many there are.
        tiers: usize,
    },
    /// A link from a tier to itself, or the second one between the same two.
    #[error("the link from tier {from} to tier {to} is {what}")]
    Link {
        /// Where it begins.
        from: usize,
        /// Where it ends.
        to: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Times or weights for another number of tiers or layers.
    #[error("{what}: {have} instead of {expected}")]
    Length {
        /// Of what.
        what: String,
        /// How many there are.
        have: usize,
        /// How many there should be.
        expected: usize,
    },
    /// An objective in which nothing counts.
    #[error("the objective weighs nothing")]
    NoObjective,
    /// Energy counts, and no tier has a power figure.
    #[error("energy is part of the objective, and no tier states a power")]
    NoPower,
}

/// Why a cut cannot run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, thiserror::Error)]
#[non_exhaustive]
pub enum Infeasible {
    /// A tier has too little memory for the layers it would get.
    #[error("tier {tier} would need {needs} bytes of memory and has {limit}")]
    Memory {
        /// The tier.
        tier: usize,
        /// Weights, and the most that is needed beside them.
        needs: u64,
        /// What it has.
        limit: u64,
    },
    /// The tier has no time for the layer: it cannot run it.
    #[error("tier {tier} cannot run layer {layer}")]
    CannotRun {
        /// The layer.
        layer: usize,
        /// The tier.
        tier: usize,
    },
    /// The tier is not there.
    #[error("tier {tier} is not available")]
    NotAvailable {
        /// The tier.
        tier: usize,
    },
    /// The weights are not there, and may not or cannot be sent.
    #[error("tier {tier} does not have the weights of layer {layer}")]
    NoWeights {
        /// The layer.
        layer: usize,
        /// The tier.
        tier: usize,
    },
    /// No link, direct or over others, goes that way.
    #[error("nothing leads from tier {from} to tier {to}")]
    Unreachable {
        /// From here.
        from: usize,
        /// To here.
        to: usize,
    },
    /// A tensor would go from a later tier to an earlier one.
    #[error("layer {to} on an earlier tier takes what layer {from} makes on a later one")]
    GoesBack {
        /// The layer that makes it.
        from: usize,
        /// The layer that takes it.
        to: usize,
    },
    /// Not one tier for each layer.
    #[error("{have} layers are assigned, and the graph has {layers}")]
    Length {
        /// How many are assigned.
        have: usize,
        /// How many there are.
        layers: usize,
    },
}

/// Why a policy has no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No cut that the policy knows can run; the last reason it met.
    #[error("no cut can run: {0}")]
    Infeasible(#[from] Infeasible),
    /// The policy knows no cut of this problem.
    #[error("{policy} cannot plan this: {why}")]
    NotForThis {
        /// The policy.
        policy: &'static str,
        /// What it would need.
        why: &'static str,
    },
    /// What is left of a request makes no sense.
    #[error(transparent)]
    Problem(#[from] ProblemError),
}
