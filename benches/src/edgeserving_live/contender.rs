//! The contenders: those of the simulated study.

use karman_sched::serve::{Deferred, Edf, EdfFinal, EdgeServing, LongestQueue, Serve};
use serde::Serialize;

/// A policy in the study.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) enum Contender {
    EdgeServing,
    Edf,
    EdfFinal,
    LongestQueue,
    Deferred { margin: f64 },
    DeferredExits { margin: f64 },
    Published,
}

impl Contender {
    /// Everybody, ours first; the two that defer with these margins.
    pub(super) const fn all(deferred: f64, deferred_exits: f64) -> [Self; 7] {
        [
            Self::EdgeServing,
            Self::Edf,
            Self::EdfFinal,
            Self::LongestQueue,
            Self::Deferred { margin: deferred },
            Self::DeferredExits {
                margin: deferred_exits,
            },
            Self::Published,
        ]
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::EdgeServing => "edgeserving",
            Self::Edf => "edf",
            Self::EdfFinal => "edf_final",
            Self::LongestQueue => "longest_queue",
            Self::Deferred { .. } => "deferred",
            Self::DeferredExits { .. } => "deferred_exits",
            Self::Published => "edgeserving_published",
        }
    }

    pub(super) const fn is_comparator(self) -> bool {
        !matches!(self, Self::EdgeServing | Self::Published)
    }

    pub(super) fn policy(self) -> Box<dyn Serve> {
        match self {
            Self::EdgeServing => Box::new(EdgeServing::default()),
            Self::Edf => Box::new(Edf),
            Self::EdfFinal => Box::new(EdfFinal),
            Self::LongestQueue => Box::new(LongestQueue),
            Self::Deferred { margin } => Box::new(Deferred { exits: false, margin }),
            Self::DeferredExits { margin } => Box::new(Deferred { exits: true, margin }),
            Self::Published => Box::new(EdgeServing::published()),
        }
    }
}
