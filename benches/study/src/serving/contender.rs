use super::run::{Run, on_time_accuracy};
use anyhow::Result;
use karman_sched::serve::{Deferred, Edf, EdfFinal, EdgeServing, LongestQueue, Serve};
use serde::Serialize;

/// A policy in the study. The first is ours; the last, EdgeServing as published, is shown beside the comparators.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "they are named as their policies in karman-sched")]
pub enum Contender {
    EdgeServing,
    Edf,
    EdfFinal,
    LongestQueue,
    Deferred { margin: f64 },
    DeferredExits { margin: f64 },
    Published,
}

impl Contender {
    /// Everybody, ours first. Those with a margin get the one that comes to the best on-time accuracy in the runs that are made of
    /// them for this.
    ///
    /// # Errors
    /// Those of a run.
    pub fn tuned(margins: &[f64], mut runs: impl FnMut(Self) -> Result<Vec<Run>>) -> Result<[Self; 7]> {
        let mut tuned = |make: fn(f64) -> Self| -> Result<Self> {
            let mut best = (f64::NEG_INFINITY, make(0.0));
            for &margin in margins {
                let on_time = on_time_accuracy(&runs(make(margin))?);
                if on_time > best.0 {
                    best = (on_time, make(margin));
                }
            }
            Ok(best.1)
        };
        Ok([
            Self::EdgeServing,
            Self::Edf,
            Self::EdfFinal,
            Self::LongestQueue,
            tuned(|margin| Self::Deferred { margin })?,
            tuned(|margin| Self::DeferredExits { margin })?,
            Self::Published,
        ])
    }

    /// As it stands in the keys of rows.
    pub const fn name(self) -> &'static str {
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

    /// The policy itself.
    pub fn policy(self) -> Box<dyn Serve> {
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
