//! How long a client waits for whoever leads its round. A leader may be gone, or keep a client from the pieces that it needs.

use crate::Instant;
use karman_types::format_duration;
use std::time::Duration;

/// What a client that waits has had of its leader, and when.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    most: Duration,
    heard: Instant,
    gained: Instant,
    held: u32,
}

/// Why a client leaves a round that its leader does not lead.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Neglect {
    /// No letter has come of it.
    #[error("whoever leads it has said nothing for {}; this client waits no longer than {}", format_duration(*.since), format_duration(*.most))]
    Silent {
        /// Since when.
        since: Duration,
        /// How long a client waits.
        most: Duration,
    },
    /// No chunk has come, and the client needs more of them.
    #[error("no piece has come for {}: {held} are here, and {needed} are needed; this client waits no longer than {}", format_duration(*.since), format_duration(*.most))]
    Starved {
        /// Since when.
        since: Duration,
        /// How long a client waits.
        most: Duration,
        /// The chunks that it has.
        held: u32,
        /// The chunks that it should have.
        needed: u32,
    },
}

impl Attention {
    /// A client that begins to wait now, and does so no longer than this without a word or a chunk.
    pub const fn new(now: Instant, most: Duration) -> Self {
        Self {
            most,
            heard: now,
            gained: now,
            held: 0,
        }
    }

    /// The leader has said something.
    pub fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// So many chunks are here.
    pub fn holds(&mut self, now: Instant, held: u32) {
        if self.held != held {
            (self.held, self.gained) = (held, now);
        }
    }

    /// Whether the leader still leads: it is not silent for too long, and the client, where it needs so many chunks, goes on getting some.
    /// `needed` is nothing where it has to have no more than it has.
    ///
    /// # Errors
    /// It does not.
    pub fn check(&self, now: Instant, needed: Option<u32>) -> Result<(), Neglect> {
        let (most, held) = (self.most, self.held);
        let (silent, hungry) = (now.since(self.heard), now.since(self.gained));
        if silent >= most {
            return Err(Neglect::Silent { since: silent, most });
        }
        match needed.filter(|needed| held < *needed && hungry >= most) {
            Some(needed) => Err(Neglect::Starved {
                since: hungry,
                most,
                held,
                needed,
            }),
            None => Ok(()),
        }
    }

    /// Whether neither a word nor a chunk has come for too long: clients that are by themselves need no leader as long as chunks come.
    pub fn is_over(&self, now: Instant) -> bool {
        now.since(self.heard.max(self.gained)) >= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: Duration = Duration::from_millis(100);

    #[test]
    fn a_leader_that_says_nothing_is_waited_for_no_longer_than_was_set() {
        let mut attention = Attention::new(Instant(50), MOST);
        assert_eq!(attention.check(Instant(149), None), Ok(()));
        let silent = attention.check(Instant(150), None).unwrap_err();
        assert_eq!(
            silent,
            Neglect::Silent {
                since: MOST,
                most: MOST
            }
        );
        attention.heard(Instant(149));
        assert_eq!(attention.check(Instant(248), None), Ok(()));
        assert!(attention.check(Instant(249), None).is_err());
    }

    #[test]
    fn a_leader_that_talks_and_gives_nothing_is_left_by_whoever_needs_more() {
        let mut attention = Attention::new(Instant(0), MOST);
        for now in (0..=300).step_by(50) {
            attention.heard(Instant(now));
            // A chunk at 50 and another one at 100, and then no more.
            attention.holds(Instant(now), 7 + (now / 50).min(2) as u32);
        }
        let starved = Neglect::Starved {
            since: Duration::from_millis(200),
            most: MOST,
            held: 9,
            needed: 10,
        };
        assert_eq!(attention.check(Instant(300), Some(10)), Err(starved));
        assert_eq!(attention.check(Instant(300), Some(9)), Ok(()), "it has enough");
        assert_eq!(attention.check(Instant(300), None), Ok(()));
        assert_eq!(attention.check(Instant(199), Some(10)), Ok(()));
    }

    proptest! {
        /// However letters and chunks come: who waits without either does so for the time that was set, and no longer.
        #[test]
        fn what_comes_puts_off_the_end_and_nothing_else_does(
            mut times in proptest::collection::vec((0_u64..10_000, any::<bool>()), 0..40),
        ) {
            times.sort_unstable();
            let mut attention = Attention::new(Instant(0), MOST);
            let mut held = 0;
            for (now, word) in &times {
                match word {
                    true => attention.heard(Instant(*now)),
                    false => {
                        held += 1;
                        attention.holds(Instant(*now), held);
                    }
                }
            }
            let last = times.last().map_or(0, |(now, _)| *now);
            prop_assert!(!attention.is_over(Instant(last + 99)));
            prop_assert!(attention.is_over(Instant(last + 100)));
            prop_assert!(attention.check(Instant(last + 100), Some(u32::MAX)).is_err());
        }
    }
}
