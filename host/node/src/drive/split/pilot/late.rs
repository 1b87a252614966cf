//! Tiers that let a stage time out without an answer: they are asked last for a while, and nobody learns from them how long to wait.

use crate::drive::split::ASKED_LAST;
use std::collections::HashMap;
use std::time::Instant;

/// Those that have not answered since, each with when that was.
#[derive(Default)]
pub(super) struct Late(HashMap<usize, Instant>);

impl Late {
    /// One let a stage time out.
    pub(super) fn miss(&mut self, tier: usize, now: Instant) {
        self.0.insert(tier, now);
    }

    /// One has answered.
    pub(super) fn works(&mut self, tier: usize) {
        self.0.remove(&tier);
    }

    /// Those that are asked last now.
    pub(super) fn last(&self, now: Instant) -> Vec<usize> {
        let is_last = |since: &Instant| now.saturating_duration_since(*since) < ASKED_LAST;
        let last = self.0.iter().filter(|(_, since)| is_last(since));
        last.map(|(tier, _)| *tier).collect()
    }

    /// Whether one of these has not answered since.
    pub(super) fn any_of(&self, tiers: &[usize]) -> bool {
        tiers.iter().any(|tier| self.0.contains_key(tier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn who_times_out_is_asked_last_for_a_while_and_again_when_he_answers() {
        let (mut late, start) = (Late::default(), Instant::now());
        late.miss(1, start);
        assert_eq!((late.last(start), late.any_of(&[0, 1])), (vec![1], true));
        let over = start + ASKED_LAST;
        assert_eq!(late.last(over - Duration::from_millis(1)), [1]);
        assert!(late.last(over).is_empty());
        // How long he takes is still not known.
        assert!(late.any_of(&[0, 1]) && !late.any_of(&[0, 2]));
        late.works(1);
        assert!(late.last(start).is_empty() && !late.any_of(&[1]));
    }
}
