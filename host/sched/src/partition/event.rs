//! What a re-planner is told, and what it says.

use super::{Plan, Problem, Suffix};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// An input of the replanner: what happened.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Event {
    /// A tier ran these layers of a request.
    Computed {
        /// The tier.
        tier: usize,
        /// The layers: several for a fragment, one where a layer was measured alone.
        layers: Vec<usize>,
        /// How long it took.
        ms: f64,
    },
    /// A message arrived, of a request or a probe, and who got it says how long it took.
    Sent {
        /// Where it came from.
        from: usize,
        /// Where it went.
        to: usize,
        /// Its size.
        bytes: u64,
        /// How long it took.
        ms: f64,
    },
    /// A message arrived, and its answer is back.
    Answered {
        /// Where the message came from, and the answer went.
        from: usize,
        /// Where it went.
        to: usize,
        /// Its size.
        bytes: u64,
        /// The size of the answer.
        answer: u64,
        /// How long both were on their way, together.
        ms: f64,
    },
    /// A message is later than expected, and so much of it has arrived lately.
    Overdue {
        /// Where it comes from.
        from: usize,
        /// Where it goes.
        to: usize,
        /// How many bytes have arrived.
        arrived: u64,
        /// In how many milliseconds, the latest ones.
        ms: f64,
    },
    /// A message that was overdue has come after all. How fast the link is now it does not tell, for it was held up: that is worth a look.
    Back {
        /// Where it came from.
        from: usize,
        /// Where it went.
        to: usize,
    },
    /// A tier that was sent a message to run layers has not answered yet. Whether the link is slow or the tier, the next message over
    /// the link tells.
    Unanswered {
        /// Where the message came from.
        from: usize,
        /// Who does not answer.
        to: usize,
        /// The size of the message.
        bytes: u64,
        /// The layers; none where the tier was to pass it on, or may itself have waited for others.
        layers: Vec<usize>,
        /// For how long.
        ms: f64,
    },
    /// A tensor travels in so many bytes: what encodings make of it shows once it is there.
    Sized {
        /// Which.
        tensor: usize,
        /// Its size on the wire.
        bytes: u64,
    },
    /// A tier came or went.
    Tier {
        /// Which.
        tier: usize,
        /// Whether it is there.
        available: bool,
    },
    /// A link came or went.
    Link {
        /// Where it begins.
        from: usize,
        /// Where it ends.
        to: usize,
        /// Whether it is there.
        up: bool,
    },
    /// Weights have arrived, or will not.
    Weights {
        /// The tier.
        tier: usize,
        /// Of these layers.
        layers: Vec<usize>,
        /// Whether they are there now.
        held: bool,
    },
    /// It is time; nothing else happened.
    Tick,
}

/// An output of the replanner: what is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Requests that start from now on run by this plan.
    Use {
        /// The plan.
        plan: Arc<Plan>,
        /// Why it was looked for.
        cause: Cause,
    },
    /// Weights are to be sent, behind what requests send.
    Ship {
        /// From a tier that holds them.
        from: usize,
        /// To one that does not.
        to: usize,
        /// The layers whose weights these are.
        layers: Vec<usize>,
        /// Their size.
        bytes: u64,
    },
    /// Nothing was heard for long of a link that might matter: something of this size is to be sent to measure it.
    Probe {
        /// Where it begins.
        from: usize,
        /// Where it ends.
        to: usize,
        /// How much to send.
        bytes: u64,
        /// After how many milliseconds to say [`Event::Overdue`]: the link is too slow then to matter. If it comes all the same, that is
        /// [`Event::Back`].
        patience_ms: f64,
    },
}

/// Why a plan was looked for.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Cause {
    /// The period was over.
    Period,
    /// A measurement was this many times its prediction.
    Deviation(f64),
    /// A tier or a link came or went.
    Topology,
    /// Weights arrived.
    Weights,
    /// The conditions were stated.
    Stated,
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Period => formatter.write_str("the period was over"),
            Self::Deviation(ratio) => write!(formatter, "measured {ratio:.2} of what was expected"),
            Self::Topology => formatter.write_str("a tier or a link came or went"),
            Self::Weights => formatter.write_str("weights arrived"),
            Self::Stated => formatter.write_str("the conditions were stated"),
        }
    }
}

/// What is left of a request, and how it goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct Resumption {
    /// What has to run, with the names of its layers in the whole network.
    pub suffix: Suffix,
    /// The plan for it: indices are those of the suffix.
    pub plan: Plan,
    /// The problem that the plan solves.
    pub problem: Problem,
}

/// An event that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// A time that is no number of milliseconds.
    #[error("a measurement of {0} ms; a time is finite and not negative")]
    Time(f64),
    /// A tier that does not exist.
    #[error("tier {0} does not exist")]
    NoSuchTier(usize),
    /// A link that does not exist.
    #[error("there is no link from tier {from} to tier {to}")]
    NoSuchLink {
        /// Where it would begin.
        from: usize,
        /// Where it would end.
        to: usize,
    },
    /// A layer that does not exist, or that the tier cannot run.
    #[error("tier {tier} has no layer {layer}")]
    NoSuchLayer {
        /// The tier.
        tier: usize,
        /// The layer.
        layer: usize,
    },
    /// A fragment without layers.
    #[error("no layers were computed")]
    NoLayers,
    /// A tensor that does not exist.
    #[error("tensor {0} does not exist")]
    NoSuchTensor(usize),
}
