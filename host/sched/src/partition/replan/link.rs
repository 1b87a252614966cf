//! What a re-planner remembers of one link, besides how fast it is believed to be.

use crate::partition::Tuning;
use std::time::Duration;

/// By less than so many milliseconds a message may be late once: something else was on the link. Twice in a row the link is slow.
const CROSSING_MS: f64 = 25.0;

/// What was heard of a link, and when.
#[derive(Clone)]
pub(super) struct LinkNews {
    /// When it was last measured.
    pub(super) measured: Duration,
    /// How often it was probed since a request or news of it: the more often, the longer until the next time.
    pub(super) looks: u32,
    /// Whether what is believed of it was told by another one, with which it seems to share a bottleneck.
    pub(super) guessed: bool,
    /// What was sent last over it, where that is not answered.
    pub(super) unanswered: Option<Unanswered>,
    /// How large the last message was that was late, until one at least half as large is not.
    late: Option<u64>,
    /// When something that was overdue came over it, and it was looked at for that.
    came_back: Duration,
}

/// A message that no answer has come to: the next one over its link tells whether that was slow, or the tier behind it.
#[derive(Clone)]
pub(super) struct Unanswered {
    pub(super) bytes: u64,
    pub(super) layers: Vec<usize>,
    pub(super) ms: f64,
}

impl LinkNews {
    /// A link that is as it is known to be now.
    pub(super) const fn new(now: Duration) -> Self {
        Self {
            measured: now,
            looks: 0,
            guessed: false,
            unanswered: None,
            late: None,
            came_back: now,
        }
    }

    /// Whether nothing was heard of it for so long.
    pub(super) fn is_silent(&self, patience: Duration, now: Duration) -> bool {
        now.saturating_sub(self.measured) >= patience
    }

    /// Something has come that was overdue, so an outage may be over: whether that is worth a look. Where the link is only slow, all that is sent
    /// to look at it is overdue: not each of them is a reason to send another one.
    pub(super) fn is_back(&mut self, tuning: &Tuning, now: Duration) -> bool {
        let is_worth_it = now.saturating_sub(self.came_back) >= tuning.probe_at_most;
        if is_worth_it {
            self.came_back = now;
        }
        is_worth_it
    }

    /// Whether the last message was late, and none since has shown that this was chance.
    pub(super) const fn is_suspect(&self) -> bool {
        self.late.is_some()
    }

    /// Whether a message was late as one is that has met others on its way, and none before it was that no other one has disproved since. A much
    /// smaller one does not: it would hardly be late where the link is somewhat slower.
    pub(super) fn has_met_others(&mut self, tuning: &Tuning, bytes: u64, ms: f64, expected: f64) -> bool {
        let is_late = ms > expected && tuning.deviates(ms / expected).is_some();
        let was_late = self.late;
        if is_late {
            self.late = Some(bytes);
        } else if was_late.is_some_and(|late| bytes >= late.min(tuning.probe_bytes) / 2) {
            self.late = None;
        }
        is_late && was_late.is_none() && ms - expected < CROSSING_MS
    }
}
