//! What was refused, counted by its reason: one counter for each, so that an operator sees which of the ways of misbehaving
//! somebody tries.

use crate::gate::GateError;
use crate::membership::MembershipError;
use crate::wire::WireError;
use karman_types::{ErrorKind, TaskError};
use parking_lot::Mutex;
use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<&'static str, u64>>);

impl Refusals {
    pub(crate) fn count(&self, reason: &'static str) {
        *self.0.lock().entry(reason).or_default() += 1;
    }

    /// Each reason that there was, and how often.
    pub(crate) fn read(&self) -> Vec<(&'static str, u64)> {
        self.0
            .lock()
            .iter()
            .map(|(reason, count)| (*reason, *count))
            .collect()
    }
}

impl GateError {
    /// The name under which a connection that was turned away is counted. Nothing where nobody is to blame.
    pub(crate) const fn reason(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotAMember(error) | Self::Invitation(error) => error.reason(),
            Self::NoJudge | Self::NoIssuer => "no-issuer",
            Self::Version { .. } => "version",
            Self::Wire(WireError::TooLong { .. }) => "too-long",
            Self::Wire(WireError::Malformed { .. }) => "malformed",
            Self::Slow => "slow",
            Self::NotAdmitted => "not-admitted",
            Self::Busy => "busy",
            // Of several dials to one node the losers end here, too.
            Self::Broken(_) | Self::Wire(WireError::Broken { .. }) | Self::LetInThere | Self::Led => {
                return None;
            }
            Self::Refused(_) | Self::Stranger | Self::Listen { .. } | Self::Store(_) => return None,
            // What was asked for here.
            Self::Own(_) | Self::Issuer(_) | Self::HoldsRoot | Self::NoRoot | Self::NoNextRoot => {
                return None;
            }
        })
    }
}

impl MembershipError {
    const fn reason(&self) -> &'static str {
        match self {
            Self::Foreign { .. } => "foreign",
            Self::Expired { .. } | Self::ClockBehind { .. } => "expired",
            Self::Revoked { .. } => "revoked",
            Self::WrongKey { .. } => "wrong-key",
            Self::Used => "used-invitation",
            Self::Withdrawn => "withdrawn-invitation",
            Self::Old { .. } => "old-revocations",
            Self::Replaced { .. } => "old-root",
            Self::FalseRoot { .. } => "false-root",
            Self::ForkedRoot { .. } => "forked-root",
            Self::NotAnIssuer { .. } | Self::BeyondIssuer { .. } => "beyond-issuer",
            _ => "malformed",
        }
    }
}

/// The name under which a call is counted that was refused before it was served.
pub(crate) const fn of_call(error: &WireError) -> Option<&'static str> {
    match error {
        WireError::TooLong { .. } => Some("call-too-long"),
        WireError::Malformed { .. } => Some("call-malformed"),
        WireError::Broken { .. } => None,
    }
}

/// The same for one that the member may not make, or whose body is too long for the task.
pub(crate) fn of_head(error: &TaskError) -> Option<&'static str> {
    match error.kind {
        ErrorKind::Denied => Some("call-denied"),
        ErrorKind::Limit => Some("call-body-too-long"),
        ErrorKind::Invalid => Some("call-malformed"),
        _ => None,
    }
}
