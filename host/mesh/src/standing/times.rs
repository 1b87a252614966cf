//! The time by which a node judges. Clocks lie: a board without a battery boots in the past, and what is left in a clock whose battery has
//! died may lie decades ahead.

use crate::membership::UnixTime;
use karman_store::MOST_AHEAD;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far the newest time seen may lie behind before it is written down again: a write costs a page of flash.
const FLOOR_STEP: u64 = 600;

/// The newest times that a node knows of, in seconds since 1970. Pure: what the clock shows is an argument.
pub(super) struct Times {
    /// It is no earlier than this.
    floor: AtomicU64,
    /// When others signed the newest membership that this node was shown.
    signed: AtomicU64,
}

impl Times {
    pub(super) const fn new(floor: u64) -> Self {
        Self {
            floor: AtomicU64::new(floor),
            signed: AtomicU64::new(0),
        }
    }

    /// A membership was signed then.
    pub(super) fn signed(&self, at: UnixTime) {
        self.signed.fetch_max(at.seconds(), Ordering::Relaxed);
    }

    /// What time it is, and whether it has to be remembered. A clock that is too far ahead is followed while it shows that: what may have
    /// ended by then does not hold.
    pub(super) fn read(&self, clock: u64) -> (UnixTime, bool) {
        let floor = self.floor.load(Ordering::Relaxed);
        let known = floor.max(self.signed.load(Ordering::Relaxed));
        let newer = clock >= floor + FLOOR_STEP && clock <= known.saturating_add(MOST_AHEAD.as_secs());
        if newer {
            self.floor.store(clock, Ordering::Relaxed);
        }
        (UnixTime::from_seconds(clock.max(floor)), newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;
    const SEEN: u64 = 20_000 * DAY;

    fn now(times: &Times, clock: u64) -> u64 {
        times.read(clock).0.seconds()
    }

    #[test]
    fn a_clock_that_was_reset_brings_nothing_back() {
        let times = Times::new(SEEN);
        assert_eq!(times.read(0), (UnixTime::from_seconds(SEEN), false));
        assert!(!times.read(SEEN + FLOOR_STEP - 1).1, "it costs a write");
        assert!(times.read(SEEN + 40 * DAY).1);
        assert_eq!(now(&times, SEEN), SEEN + 40 * DAY);
    }

    #[test]
    fn a_clock_that_is_decades_ahead_is_forgotten_when_it_is_set() {
        let (times, ahead) = (Times::new(SEEN), SEEN + 20_000 * DAY);
        assert_eq!(times.read(ahead), (UnixTime::from_seconds(ahead), false));
        assert_eq!(now(&times, SEEN + DAY), SEEN + DAY);
    }

    #[test]
    fn a_node_that_was_off_for_years_learns_from_others_that_its_clock_is_right() {
        let (times, after) = (Times::new(SEEN), SEEN + 3 * MOST_AHEAD.as_secs());
        assert_eq!(times.read(after), (UnixTime::from_seconds(after), false));
        // One who was let in after that, and long ago by now.
        times.signed(UnixTime::from_seconds(after - 300 * DAY));
        times.signed(UnixTime::from_seconds(SEEN));
        assert!(times.read(after).1);
        assert_eq!(now(&times, 0), after);
        // As long as it runs it needs nobody.
        assert!((1..100).all(|day| times.read(after + day * 10 * DAY).1));
    }
}
