//! The time of a run, which stands still while nobody drives it.

use karman_fed::Instant;
use karman_space::Time;

/// It goes on from where it stood.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    base: Instant,
    since: std::time::Instant,
}

impl Clock {
    /// The clock of a run that is driven from now on.
    pub(super) fn starts(base: Instant) -> Self {
        Self {
            base,
            since: std::time::Instant::now(),
        }
    }

    pub(super) fn now(self) -> Instant {
        self.base.after(self.since.elapsed())
    }

    /// When it will be this time by a clock that says `wall` now; what is too long ago is the beginning of the run.
    pub(super) fn at(self, time: Time, wall: Time) -> Instant {
        let now = self.now();
        let ago = u64::try_from(wall.since(time).as_millis()).unwrap_or(u64::MAX);
        Instant(now.0.saturating_sub(ago)).after(time.since(wall))
    }
}
