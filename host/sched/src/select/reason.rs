use super::{Aim, Resource};
use serde::{Deserialize, Serialize};

/// Why a candidate serves. [`Why`](crate::Why) puts it into words.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// No other can be reached, or there is none.
    Only,
    /// The user said so.
    Fixed,
    /// Best by this aim among those whose profiles keep the limits.
    Best {
        /// What was aimed at.
        aim: Aim,
        /// Whether any keeps them; if none does, it is the best of all.
        within: bool,
    },
    /// The plan for the rest of the batch gives it this share of the calls.
    Share {
        /// Its share, from 0 to 1.
        share: f64,
        /// Requests that are left.
        requests: u64,
    },
    /// It has served for so few calls that a change would come too soon, or is owed to nobody yet.
    Kept {
        /// For how many.
        calls: u32,
    },
    /// A budget may not last, so that it is spared.
    Short {
        /// Which.
        resource: Resource,
        /// Requests that are left.
        requests: u64,
    },
    /// The queue is longer than it can serve within the limit.
    Queue {
        /// The queue.
        length: usize,
        /// The longest that it can.
        most: usize,
    },
    /// The prototype's rule: what the choices take is over what is left for a request.
    Overspend {
        /// Of what.
        resource: Resource,
    },
    /// The prototype's rule: answers are wrong too often, and budget is left.
    Inaccurate,
    /// No plan could be made; it is the last that was.
    NoPlan,
    /// What a policy that a plugin brings says.
    Said(String),
}
