use crate::Instant;
use karman_types::{ErrorKind, NodeId, TaskError, TaskId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One attempt of a task. Never the same twice, not even after a restart of the owner.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct AttemptId {
    /// The task.
    pub task: TaskId,
    /// Which run of which owner started it.
    pub run: u64,
    /// 1 at the first attempt.
    pub number: u32,
}

/// Whether another node could cure this error. The input, the rights and the code are the same everywhere, so an attempt that
/// was invalid, was denied or failed is not repeated.
pub const fn curable(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Internal)
}

/// Chance that a seed decides. Kept as the bare seed, so that it can be written down with the rest of the state.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.with(|rng| rng.u64(..))
    }

    /// From 0 up to 1.
    pub(crate) fn luck(&mut self) -> f64 {
        self.with(|rng| rng.f64())
    }

    fn with<T>(&mut self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        let mut rng = fastrand::Rng::with_seed(self.0);
        let drawn = draw(&mut rng);
        self.0 = rng.get_seed();
        drawn
    }
}

/// An attempt that runs.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Live {
    pub(crate) number: u32,
    pub(crate) provider: NodeId,
    pub(crate) since: Instant,
}

/// How the next attempt is started.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Next {
    /// Not before something happens to those that run.
    #[default]
    None,
    /// At this moment a provider is looked for.
    At(Instant),
    /// A provider is being looked for.
    Placing,
    /// At this provider, once the keepers know of it.
    Dispatching(NodeId),
}

/// What was found among the offered providers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Choice {
    Provider(NodeId),
    /// There are some, but all of them have as much as they may have.
    Busy,
    Nobody,
}

/// The attempts of one task: those that run, what became of the others, and when the next is due.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Attempts {
    /// The number of the latest.
    pub(crate) started: u32,
    /// How many of them ended in a conflict.
    pub(crate) conflicts: u32,
    /// How many of them ended for want of something that is nobody's fault.
    pub(crate) excused: u32,
    /// How often in a row no provider was found, or something could not be saved.
    pub(crate) pauses: u32,
    pub(crate) live: Vec<Live>,
    pub(crate) next: Next,
    pub(crate) last_error: Option<TaskError>,
    tried: Vec<NodeId>,
    hedged: bool,
}

impl Attempts {
    pub(crate) fn due(started: u32, at: Instant) -> Self {
        Self {
            started,
            next: Next::At(at),
            ..Self::default()
        }
    }

    /// Whether the limits allow another one. An attempt that ran into a conflict did its work, so it counts apart; one that
    /// was excused does not count.
    pub(crate) const fn may_start(&self, most: u32) -> bool {
        self.failures() < most
    }

    /// How many of them failed, or may yet.
    pub(crate) const fn failures(&self) -> u32 {
        self.started
            .saturating_sub(self.conflicts)
            .saturating_sub(self.excused)
    }

    /// When the only attempt that runs gets a second one beside it.
    pub(crate) fn hedge_at(&self, after: Option<Duration>, most: u32) -> Option<Instant> {
        match (&self.live[..], after) {
            ([only], Some(after)) if !self.hedged && self.next == Next::None && self.may_start(most) => {
                Some(only.since.after(after))
            }
            _ => None,
        }
    }

    /// Looks for a provider now; beside an attempt that runs, this is the hedge.
    pub(crate) fn place(&mut self) {
        self.hedged |= !self.live.is_empty();
        self.next = Next::Placing;
    }

    /// The best of the offered providers, which are in order of preference: one that was not tried, if there is one, and
    /// never one that runs this task already.
    pub(crate) fn choose(&self, offered: &[NodeId], free: impl Fn(NodeId) -> bool) -> Choice {
        let others = || offered.iter().filter(|node| !self.runs_at(**node));
        let open = || others().filter(|node| free(**node));
        let choice = open()
            .find(|node| !self.tried.contains(node))
            .or_else(|| open().next());
        match choice {
            Some(node) => Choice::Provider(*node),
            None if others().next().is_some() => Choice::Busy,
            None => Choice::Nobody,
        }
    }

    /// Providers that it is better to avoid: they run the task, or failed it.
    pub(crate) fn tried(&self) -> &[NodeId] {
        &self.tried
    }

    /// Where the next attempt starts, once the keepers know of it.
    pub(crate) const fn dispatching(&self) -> Option<NodeId> {
        match self.next {
            Next::Dispatching(provider) => Some(provider),
            _ => None,
        }
    }

    /// Starts the next attempt and returns its number.
    pub(crate) fn start(&mut self, provider: NodeId, now: Instant) -> u32 {
        self.started += 1;
        self.pauses = 0;
        self.next = Next::None;
        self.live.push(Live {
            number: self.started,
            provider,
            since: now,
        });
        if !self.tried.contains(&provider) {
            self.tried.push(provider);
        }
        self.started
    }

    /// Takes out an attempt that ended; nothing when it does not run (any more).
    pub(crate) fn finish(&mut self, number: u32) -> Option<Live> {
        let index = self.live.iter().position(|live| live.number == number)?;
        if self.live.len() == 1 {
            self.hedged = false;
        }
        Some(self.live.remove(index))
    }

    /// Runs again because what it read has changed: not the provider's fault.
    pub(crate) fn again(&mut self) {
        self.conflicts += 1;
        self.tried.clear();
    }

    /// Runs again once what was missing is there: not the provider's fault either.
    pub(crate) fn excuse(&mut self) {
        self.excused += 1;
        self.tried.clear();
    }

    /// Runs elsewhere, or here again once there is a place: it did not run.
    pub(crate) fn pass_by(&mut self) {
        self.excused += 1;
    }

    fn runs_at(&self, node: NodeId) -> bool {
        self.live.iter().any(|live| live.provider == node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeId {
        NodeId::of_key(name.as_bytes())
    }

    #[test]
    fn the_untried_comes_first_and_the_running_never() {
        let [a, b, c] = ["a", "b", "c"].map(node);
        let mut attempts = Attempts::default();
        attempts.start(a, Instant(0));
        assert_eq!(attempts.choose(&[a, b, c], |_| true), Choice::Provider(b));
        assert_eq!(attempts.choose(&[a], |_| true), Choice::Nobody);
        assert_eq!(attempts.choose(&[a, b], |_| false), Choice::Busy);
        attempts.finish(1);
        assert_eq!(attempts.choose(&[a, b], |_| true), Choice::Provider(b));
        assert_eq!(attempts.choose(&[a], |_| true), Choice::Provider(a));
    }

    #[test]
    fn one_hedge_beside_one_attempt() {
        let after = Some(Duration::from_millis(50));
        let mut attempts = Attempts::default();
        assert_eq!(attempts.hedge_at(after, 4), None);
        attempts.start(node("a"), Instant(10));
        assert_eq!(attempts.hedge_at(after, 4), Some(Instant(60)));
        assert_eq!(attempts.hedge_at(after, 1), None);
        attempts.place();
        attempts.start(node("b"), Instant(60));
        attempts.finish(1);
        assert_eq!(attempts.hedge_at(after, 4), None);
    }

    #[test]
    fn only_what_another_node_could_cure_is_repeated() {
        let kinds = ErrorKind::ALL.into_iter().filter(|kind| curable(*kind));
        assert!(kinds.eq([ErrorKind::Unavailable, ErrorKind::Internal]));
    }
}
