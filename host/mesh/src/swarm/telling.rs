//! When the offers of this node are announced anew. Those next to a key may change with every node that comes into the routing
//! table; but announcing meets others, who come into the table then: each time has to wait for longer than the one before.

use std::time::{Duration, Instant};

/// The first pause after the table has grown.
const FIRST: Duration = Duration::from_secs(1);
/// The longest. What is announced is remembered for far longer.
const LONGEST: Duration = Duration::from_secs(3600);

/// Pure: time is an argument.
pub(super) struct Telling {
    due: Option<Instant>,
    pause: Duration,
}

impl Telling {
    pub(super) const fn new() -> Self {
        Self {
            due: None,
            pause: FIRST,
        }
    }

    /// The offers are others, or this node is elsewhere: that is told at once.
    pub(super) const fn changed(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// The routing table has grown.
    pub(super) fn grown(&mut self, now: Instant) {
        if self.due.is_none() {
            self.due = Some(now + self.pause);
            self.pause = (self.pause * 2).min(LONGEST);
        }
    }

    /// Whether to tell now; once.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.due.is_some_and(|due| due <= now);
        if due {
            self.due = None;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At which seconds a node tells whose routing table grows all the time.
    fn tells(telling: &mut Telling, start: Instant, seconds: u64) -> Vec<u64> {
        let at = |second: &u64| {
            let now = start + Duration::from_secs(*second);
            telling.grown(now);
            telling.is_due(now)
        };
        (0..seconds).filter(at).collect()
    }

    #[test]
    fn a_table_that_grows_all_the_time_is_followed_more_and_more_seldom() {
        let start = Instant::now();
        let mut telling = Telling::new();
        let at = tells(&mut telling, start, 8 * 3600);
        assert_eq!(at[..4], [1, 4, 9, 18]);
        assert!(at.windows(2).last().unwrap()[1] - at.windows(2).last().unwrap()[0] >= 3600);
    }

    #[test]
    fn what_changes_is_told_at_once_and_once() {
        let start = Instant::now();
        let mut telling = Telling::new();
        tells(&mut telling, start, 3600);
        let later = start + 2 * LONGEST;
        telling.is_due(later);
        telling.changed(later);
        assert_eq!((telling.is_due(later), telling.is_due(later)), (true, false));
    }
}
