//! In which turn the offers are announced once more while they do not change: one at a time, so that a node with few of them tells each
//! often and one with many does not tell all the time. Those next to a key that were started again unseen, or came between, hear it then.

use libp2p::kad::RecordKey;
use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

/// How often one of them is announced: that meets eight others, at some ten kilobytes each, or 50 bytes a second.
const EVERY: Duration = Duration::from_secs(1800);
/// Within this time all are, however many there are: half of that for which others remember them.
const ALL_WITHIN: Duration = Duration::from_secs(12 * 3600);

/// Pure: time and luck are arguments.
pub(super) struct Turns {
    /// Those that have not had their turn.
    left: VecDeque<RecordKey>,
    due: Instant,
}

impl Turns {
    /// Nodes that are started together do not announce together.
    pub(super) fn new(now: Instant, luck: f64) -> Self {
        let (left, due) = (VecDeque::new(), now + EVERY.mul_f64(luck));
        Self { left, due }
    }

    /// Which of those that are announced is announced now, if one is.
    pub(super) fn next(&mut self, now: Instant, announced: &HashSet<RecordKey>) -> Option<RecordKey> {
        if now < self.due {
            return None;
        }
        let count = u32::try_from(announced.len().max(1)).unwrap_or(u32::MAX);
        self.due = now + EVERY.min(ALL_WITHIN / count);
        self.left.retain(|key| announced.contains(key));
        if self.left.is_empty() {
            self.left.extend(announced.iter().cloned());
        }
        self.left.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn keys(count: usize) -> HashSet<RecordKey> {
        (0..count).map(|key| RecordKey::new(&key.to_be_bytes())).collect()
    }

    /// What is announced in this many minutes, a look every minute.
    fn told(
        turns: &mut Turns,
        start: Instant,
        minutes: u32,
        announced: &HashSet<RecordKey>,
    ) -> Vec<RecordKey> {
        let looks = (0..minutes).map(|minute| start + minute * MINUTE);
        looks.filter_map(|now| turns.next(now, announced)).collect()
    }

    #[test]
    fn each_has_its_turn_and_none_twice_before_all_have_had_one() {
        let start = Instant::now();
        let mut turns = Turns::new(start, 0.0);
        let told = told(&mut turns, start, 4 * 30, &keys(4));
        assert_eq!(told.len(), 4);
        assert_eq!(told.into_iter().collect::<HashSet<_>>(), keys(4));
        assert_eq!(turns.next(start + 119 * MINUTE, &keys(4)), None);
        let again = turns.next(start + 120 * MINUTE, &keys(4)).unwrap();
        assert!(keys(4).contains(&again));
    }

    #[test]
    fn however_many_there_are_all_are_told_before_others_forget_them() {
        let start = Instant::now();
        let mut turns = Turns::new(start, 1.0);
        assert!(told(&mut turns, start, 30, &keys(72)).is_empty());
        let told = told(&mut turns, start + EVERY, 12 * 60, &keys(72));
        assert_eq!(told.into_iter().collect::<HashSet<_>>(), keys(72));
    }

    #[test]
    fn what_is_not_announced_any_more_has_no_turn() {
        let start = Instant::now();
        let mut turns = Turns::new(start, 0.0);
        assert_eq!(turns.next(start, &HashSet::new()), None);
        assert!(turns.next(start + EVERY, &keys(3)).is_some());
        let left = keys(1);
        let told = told(&mut turns, start + 2 * EVERY, 4 * 30, &left);
        assert_eq!(told, Vec::from_iter(left.iter().cloned().cycle().take(4)));
    }
}
