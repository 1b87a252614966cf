use super::Taker;
use crate::tier::expected;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// By which policy the providers of a call are tried, as `node.toml` names it.
///
/// Each of them tries providers that did not answer lately last, and breaks ties by the backlog, then the round trip and at last the id:
/// the same view gives the same order. Sorting is all that it costs.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// The provider expected to answer first, of those with a core free: after the round trip and what calls of this task took there
    /// lately. Then those without, the one with the fewest calls on each core first: what these calls are is unknown, and so how long
    /// they take. As long as nothing was measured, the nearest.
    #[default]
    Soonest,
    /// The nearest with a core free, whatever calls took; then those without, the one with the fewest calls on each core first.
    NearestFree,
    /// The provider expected to answer first, those without a core free among them: the calls ahead are taken to be of the same task, and
    /// to be served one after the other on each core, as [`crate::tier::LaImr`] counts. Where nodes do little else.
    LaImr,
    /// The provider with the fewest calls on each core, near or far.
    LeastLoaded,
}

impl Route {
    /// Each of them, the default first.
    pub const ALL: [Self; 4] = [Self::Soonest, Self::NearestFree, Self::LaImr, Self::LeastLoaded];

    /// By which nodes name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Soonest => "soonest",
            Self::NearestFree => "nearest-free",
            Self::LaImr => "la-imr",
            Self::LeastLoaded => "least-loaded",
        }
    }

    /// The one of this name, if it is one of these.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|route| route.name() == name)
    }

    /// The names of all, for those who asked for another.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// The order in which they are tried, as places in `takers`; all of them.
    pub fn order(self, takers: &[Taker]) -> Vec<usize> {
        let fastest = fastest(takers);
        let mut order: Vec<usize> = (0..takers.len()).collect();
        order.sort_by_cached_key(|at| {
            let taker = &takers[*at];
            let rank = self.rank(taker, fastest);
            (
                taker.failed.is_some(),
                rank,
                taker.backlog(),
                taker.way(),
                taker.node,
            )
        });
        order
    }

    /// What it goes by, the least first: a backlog, then a time.
    pub(super) fn rank(self, taker: &Taker, fastest: Option<Duration>) -> (u64, Duration) {
        let way = taker.way();
        match self {
            Self::Soonest => (taker.backlog(), way.saturating_add(takes(taker, fastest))),
            Self::NearestFree => (taker.backlog(), way),
            Self::LaImr => {
                let service = takes(taker, fastest).as_secs_f64();
                let answered = expected(service, taker.cores, taker.busy);
                let answered = Duration::try_from_secs_f64(answered).unwrap_or(Duration::MAX);
                (0, way.saturating_add(answered))
            }
            Self::LeastLoaded => (taker.load(), Duration::ZERO),
        }
    }
}

/// What a call of the task takes on the fastest of them that was measured. How long one was waited for in vain is no measurement.
pub(super) fn fastest(takers: &[Taker]) -> Option<Duration> {
    takers.iter().filter_map(|taker| taker.takes).min()
}

/// What a call of the task takes there. A provider that was not measured is taken to be twice as fast as the fastest that was: it is tried where
/// that would pay, and where it would not, it is left alone. Nobody is taken to be faster than a call that was waited for in vain.
pub(super) fn takes(taker: &Taker, fastest: Option<Duration>) -> Duration {
    let hoped = || fastest.unwrap_or_default() / 2;
    let takes = taker.takes.unwrap_or_else(hoped);
    taker.outlasted.map_or(takes, |least| takes.max(least))
}
