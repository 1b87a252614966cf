//! When the offers of this node are announced anew. Those next to a key change as the routing table grows, most while it is small; and
//! announcing meets others, who come into the table then. So it is when the table has doubled. Where thousands are given the same plugin at
//! once they do not announce it to the same eight nodes at once: the larger the table, the longer each waits, by luck.

use std::time::{Duration, Instant};

/// Who comes into the table seldom comes alone.
const PAUSE: Duration = Duration::from_secs(1);
/// Nodes in the table up to which nobody waits: a mesh so small is told in a moment.
const FEW: usize = 64;
/// How long a node waits at most for each one in the table beyond these. There are some 200 in one of 10,000 nodes: 14 s.
const FOR_EACH: Duration = Duration::from_millis(100);

/// How long a node waits that knows so many, by luck from 0 up to 1.
pub(super) fn spread(known: usize, luck: f64) -> Duration {
    let beyond = u32::try_from(known.saturating_sub(FEW)).unwrap_or(u32::MAX);
    FOR_EACH.saturating_mul(beyond).mul_f64(luck)
}

/// Pure: time is an argument.
pub(super) struct Telling {
    due: Option<Instant>,
    /// Nodes in the table when the offers were announced last, or the fewest since.
    known: usize,
}

impl Telling {
    pub(super) const fn new() -> Self {
        Self { due: None, known: 0 }
    }

    /// The offers are others, or this node is elsewhere: that is told after this wait, which is none where it is elsewhere. What changes meanwhile does not make it longer.
    pub(super) fn changed(&mut self, now: Instant, wait: Duration) {
        let due = now + wait;
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// This many nodes are in the routing table now.
    pub(super) fn grown(&mut self, now: Instant, known: usize, wait: Duration) {
        // Where many have left it, those who come instead have heard nothing.
        self.known = self.known.min(known);
        if known >= 2 * self.known {
            self.due.get_or_insert(now + PAUSE + wait);
        }
    }

    /// Whether they will be, now or after a wait.
    pub(super) const fn is_pending(&self) -> bool {
        self.due.is_some()
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// The offers have been announced, with this many nodes in the table.
    pub(super) const fn told(&mut self, known: usize) {
        (self.due, self.known) = (None, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_table_that_grows_is_followed_as_it_doubles() {
        let (start, mut telling) = (Instant::now(), Telling::new());
        let mut told = Vec::new();
        for known in 1..=200 {
            let now = start + SECOND * known;
            telling.grown(now, known as usize, Duration::ZERO);
            if telling.is_due(now) {
                telling.told(known as usize);
                told.push(known);
            }
        }
        assert_eq!(told, [2, 5, 11, 23, 47, 95, 191]);
    }

    #[test]
    fn a_table_that_has_shrunk_and_grows_again_is_followed() {
        let (start, mut telling) = (Instant::now(), Telling::new());
        telling.told(100);
        telling.grown(start, 30, Duration::ZERO);
        telling.grown(start, 59, Duration::ZERO);
        assert!(!telling.is_due(start + PAUSE));
        telling.grown(start, 60, Duration::ZERO);
        assert!(telling.is_due(start + PAUSE));
    }

    #[test]
    fn what_changes_is_told_at_once_and_once() {
        let (start, mut telling) = (Instant::now(), Telling::new());
        assert!(!telling.is_due(start));
        telling.changed(start, Duration::ZERO);
        assert!(telling.is_due(start) && telling.is_pending());
        telling.told(100);
        assert!(!telling.is_pending());
        assert!(!telling.is_due(start + 1000 * SECOND));
        telling.grown(start, 199, Duration::ZERO);
        assert!(!telling.is_due(start + 1000 * SECOND));
        telling.grown(start, 200, Duration::ZERO);
        assert!(!telling.is_due(start));
        assert!(telling.is_due(start + PAUSE));
    }

    #[test]
    fn the_larger_a_mesh_the_longer_its_nodes_wait_and_what_changes_meanwhile_makes_it_no_longer() {
        assert_eq!([0, FEW].map(|known| spread(known, 1.0)), [Duration::ZERO; 2]);
        assert_eq!(spread(FEW + 140, 1.0), 14 * SECOND);
        assert_eq!(spread(FEW + 140, 0.5), 7 * SECOND);
        let (start, mut telling) = (Instant::now(), Telling::new());
        telling.changed(start, 7 * SECOND);
        telling.changed(start + 6 * SECOND, 7 * SECOND);
        telling.grown(start + 6 * SECOND, 200, 7 * SECOND);
        assert!(!telling.is_due(start + 6 * SECOND) && telling.is_due(start + 7 * SECOND));
        telling.changed(start, 2 * SECOND);
        assert!(telling.is_due(start + 2 * SECOND));
    }
}
