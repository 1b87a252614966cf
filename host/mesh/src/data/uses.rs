//! Whether anything uses the connections with a node.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// When the connections were last used, and by how many streams they are now: each holds a clone.
pub(super) struct Uses(Arc<Mutex<Instant>>);

/// A stream that is open, until it is dropped.
pub(super) struct Use(Arc<Mutex<Instant>>);

impl Default for Uses {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Uses {
    /// They are used now.
    pub(super) fn touch(&self) {
        *self.0.lock() = Instant::now();
    }

    /// A stream is opened.
    pub(super) fn begin(&self) -> Use {
        self.touch();
        Use(self.0.clone())
    }

    /// Whether no stream is open, and none was for longer than this.
    pub(super) fn are_over(&self, since: Duration, now: Instant) -> bool {
        Arc::strong_count(&self.0) == 1 && now.saturating_duration_since(*self.0.lock()) > since
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        *self.0.lock() = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_uses_stays_however_long_the_call_takes() {
        let (uses, while_unused) = (Uses::default(), Duration::from_secs(600));
        let later = Instant::now() + 2 * while_unused;
        assert!(uses.are_over(while_unused, later));
        let [first, second] = [uses.begin(), uses.begin()];
        drop(first);
        assert!(!uses.are_over(while_unused, later));
        drop(second);
        let over = Instant::now();
        assert!(
            !uses.are_over(while_unused, over + while_unused / 2),
            "it has just ended"
        );
        assert!(uses.are_over(while_unused, over + 2 * while_unused));
    }
}
