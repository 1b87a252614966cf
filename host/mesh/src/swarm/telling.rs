//! When the offers of this node are announced anew. Those next to a key change as the routing table grows, most while it is small; and
//! announcing meets others, who come into the table then. So it is when the table has doubled.

use std::time::{Duration, Instant};

/// Who comes into the table seldom comes alone.
const PAUSE: Duration = Duration::from_secs(1);

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

    /// The offers are others, or this node is elsewhere: that is told at once.
    pub(super) const fn changed(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// This many nodes are in the routing table now.
    pub(super) fn grown(&mut self, now: Instant, known: usize) {
        // Where many have left it, those who come instead have heard nothing.
        self.known = self.known.min(known);
        if known >= 2 * self.known {
            self.due.get_or_insert(now + PAUSE);
        }
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
            telling.grown(now, known as usize);
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
        telling.grown(start, 30);
        telling.grown(start, 59);
        assert!(!telling.is_due(start + PAUSE));
        telling.grown(start, 60);
        assert!(telling.is_due(start + PAUSE));
    }

    #[test]
    fn what_changes_is_told_at_once_and_once() {
        let (start, mut telling) = (Instant::now(), Telling::new());
        assert!(!telling.is_due(start));
        telling.changed(start);
        assert!(telling.is_due(start));
        telling.told(100);
        assert!(!telling.is_due(start + 1000 * SECOND));
        telling.grown(start, 199);
        assert!(!telling.is_due(start + 1000 * SECOND));
        telling.grown(start, 200);
        assert!(!telling.is_due(start));
        assert!(telling.is_due(start + PAUSE));
    }
}
