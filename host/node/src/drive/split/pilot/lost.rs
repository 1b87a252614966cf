//! Tiers that did not answer, or could not make their part ready, and when each is asked again.

use karman_types::Backoff;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The pauses before one is asked again. The longest is that of one that can be reached, and never does its part.
const PAUSES: Backoff = Backoff {
    first: Duration::from_secs(2),
    longest: Duration::from_secs(300),
};

/// Those that are lost, and those that are back and have yet to show that they do their part.
#[derive(Default)]
pub(super) struct Lost(HashMap<usize, Away>);

struct Away {
    is_back: bool,
    /// How often in a row it has gone.
    times: u32,
    /// When it is asked.
    again: Instant,
}

impl Lost {
    /// One has gone; false where that was known.
    pub(super) fn lose(&mut self, tier: usize, now: Instant) -> bool {
        let before = self.0.get(&tier);
        if before.is_some_and(|away| !away.is_back) {
            return false;
        }
        // It was back, and failed again before it did anything.
        let times = before.map_or(1, |away| away.times.saturating_add(1));
        let away = Away {
            is_back: false,
            times,
            again: now + PAUSES.whole(times),
        };
        self.0.insert(tier, away);
        true
    }

    /// One was reached.
    pub(super) fn find(&mut self, tier: usize) {
        if let Some(away) = self.0.get_mut(&tier) {
            away.is_back = true;
        }
    }

    /// One has done its part. One that is lost is still asked: it may have done that before it went.
    pub(super) fn works(&mut self, tier: usize) {
        self.0.retain(|known, away| *known != tier || !away.is_back);
    }

    /// Those that are lost.
    pub(super) fn all(&self) -> Vec<usize> {
        let lost = self.0.iter().filter(|(_, away)| !away.is_back);
        lost.map(|(tier, _)| *tier).collect()
    }

    /// Those that are to be asked now; each is asked again after its pause.
    pub(super) fn due(&mut self, now: Instant) -> Vec<usize> {
        let due = |away: &Away| !away.is_back && now >= away.again;
        let due = self.0.iter_mut().filter(|(_, away)| due(away));
        due.map(|(tier, away)| {
            away.again = now + PAUSES.whole(away.times);
            *tier
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_never_does_his_part_is_asked_ever_more_seldom() {
        let (mut lost, start) = (Lost::default(), Instant::now());
        assert!(lost.lose(1, start) && !lost.lose(1, start));
        assert_eq!((lost.all(), lost.due(start)), (vec![1], vec![]));
        // Whoever cannot be reached is asked as often as before.
        for time in 1..=3 {
            let now = start + PAUSES.first * time;
            assert_eq!((lost.due(now), lost.due(now)), (vec![1], vec![]));
        }
        lost.find(1);
        assert_eq!((lost.all(), lost.due(start + PAUSES.longest)), (vec![], vec![]));
        assert!(lost.lose(1, start));
        assert!(lost.due(start + PAUSES.first).is_empty());
        assert_eq!(lost.due(start + PAUSES.first * 2), [1]);
        for _ in 0..20 {
            lost.find(1);
            lost.lose(1, start);
        }
        assert_eq!(lost.due(start + PAUSES.longest), [1]);
        lost.works(1);
        assert_eq!(lost.all(), [1], "nobody would ask it any more");
        lost.find(1);
        lost.works(1);
        lost.lose(1, start);
        assert_eq!(lost.due(start + PAUSES.first), [1]);
    }
}
