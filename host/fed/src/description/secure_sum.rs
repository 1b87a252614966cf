use super::{Run, RunError};
use crate::Pace;
use crate::secure::{Graph, Roster};
use crate::select::SelectionChoice;
use serde::{Deserialize, Serialize};

/// Whoever drives the run sees the sum of a round's updates, and none of them. What clients declare stays in the open: samples,
/// steps, losses. A sum is no noise: whoever knows all updates but one knows that one.
///
/// See [`crate::secure`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SecureSum {
    /// The fewest clients whose sum may become known; with fewer the round fails. Default 3.
    pub least: usize,
    /// Who shares secrets with whom. Default `complete`; `{ ring = "logarithmic" }` (SecAgg+) is cheaper for many clients.
    pub graph: Graph,
}

impl Default for SecureSum {
    fn default() -> Self {
        Self {
            least: 3,
            graph: Graph::Complete,
        }
    }
}

impl SecureSum {
    /// The most clients of a sum: each of them looks at the memberships of all.
    pub const MOST_CLIENTS: usize = 1_000;

    /// The fewest clients that a sum is begun with: of fewer, nothing may become known.
    pub(crate) fn fewest(&self) -> usize {
        self.least.max(Roster::FEWEST)
    }

    /// Whether the rest of the description goes with it: what can be made of a sum alone, exact and from nodes that can be told
    /// apart.
    pub(super) fn check(&self, run: &Run) -> Result<(), RunError> {
        let cohort = run.pace.cohort();
        let bounds = |field, value: usize, least: usize| match (least..=cohort).contains(&value) {
            true => Ok(()),
            false => Err(RunError::number((
                field,
                value as f64,
                least as f64,
                cohort as f64,
            ))),
        };
        if cohort > Self::MOST_CLIENTS {
            let most = Self::MOST_CLIENTS as f64;
            return Err(RunError::number(("pace.clients", cohort as f64, 3.0, most)));
        }
        bounds("secure-sum.least", self.least, 2)?;
        let needs = [
            (
                "pace.mode = \"synchronous\" with at least 3 clients",
                matches!(run.pace, Pace::Synchronous { .. }) && cohort >= 3,
            ),
            (
                "a strategy that steps by a mean, like \"fed-avg\"",
                run.strategy.steps_by_a_mean(),
            ),
            (
                "another selection than \"bandit\", which looks at single updates",
                !matches!(run.selection, SelectionChoice::Bandit(_)),
            ),
            (
                "updates as they are, without `[encoding]`",
                run.encoding == super::EncodingPolicy::Exact,
            ),
            (
                "no `[privacy]`: whoever clips updates has to see them",
                run.privacy.is_none(),
            ),
            (
                "clients on nodes: one process that plays all of them has no secrets from itself",
                run.clients.simulated == 0,
            ),
        ];
        match needs.into_iter().find(|(_, holds)| !holds) {
            None => Ok(()),
            Some((needs, _)) => Err(RunError::NotSecure { needs }),
        }
    }
}
