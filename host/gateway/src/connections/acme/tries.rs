//! Orders of which nothing came, in a row. They are kept on the disk: who is started again and again asks the server no more often than
//! who stays up.

use karman_types::Backoff;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long to wait after failures. Let's Encrypt allows five an hour.
const PAUSES: Backoff = Backoff {
    first: Duration::from_secs(300),
    longest: Duration::from_secs(6 * 3600),
};

/// Orders in a row of which nothing came.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tries {
    /// The digest of the table that they were for: once that is another one, it is worth a new try.
    table: String,
    /// How many.
    count: u32,
    /// When the last one was begun, in seconds since 1970.
    last: i64,
}

impl Tries {
    /// None yet, for a table with this digest.
    pub(super) fn none(table: &str) -> Self {
        Self {
            table: table.to_owned(),
            count: 0,
            last: 0,
        }
    }

    /// One more, which is begun now.
    pub(super) fn another(&self, now: i64) -> Self {
        Self {
            table: self.table.clone(),
            count: self.count.saturating_add(1),
            last: now,
        }
    }

    /// How many.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Whether they were for the table with this digest.
    pub(super) fn are_for(&self, table: &str) -> bool {
        self.table == table
    }

    /// How long to wait after so many.
    pub(super) fn pause(&self) -> Duration {
        match self.count {
            0 => Duration::ZERO,
            count => PAUSES.whole(count),
        }
    }

    /// How much of that is left. All of it where the clock stands before the last one: it says nothing then of the time in between.
    pub(super) fn left(&self, now: i64) -> Duration {
        let passed = u64::try_from(now.saturating_sub(self.last)).unwrap_or(0);
        self.pause().saturating_sub(Duration::from_secs(passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(failures: u32) -> Tries {
        (0..failures).fold(Tries::none("table"), |tries, _| tries.another(1_000))
    }

    #[test]
    fn who_fails_again_and_again_waits_longer_up_to_six_hours() {
        let minutes = |failures| after(failures).pause().as_secs() / 60;
        assert_eq!([0, 1, 2, 3, 4].map(minutes), [0, 5, 10, 20, 40]);
        assert_eq!((minutes(10), minutes(1_000)), (360, 360));
        // Within an hour there are fewer than the five failures that Let's Encrypt allows.
        let tries = (1..).scan(0, |passed, failures| {
            *passed += after(failures).pause().as_secs();
            Some(*passed)
        });
        assert!(tries.take_while(|passed| *passed < 3600).count() < 5);
    }

    #[test]
    fn a_restart_shortens_no_wait() {
        let tries = after(2);
        let left = |now| tries.left(now).as_secs();
        assert_eq!(
            (left(1_000), left(1_100), left(1_600), left(9_000)),
            (600, 500, 0, 0)
        );
        // A board without a battery starts in the past.
        assert_eq!((left(0), left(i64::MIN)), (600, 600));
        assert_eq!(Tries::none("table").left(0), Duration::ZERO);
    }
}
