//! What passes between this node and another one.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a byte may take that the swarm sends: 64 kbit/s. On a slower link a call with a long body may be taken for one to a dead node.
const BYTE: Duration = Duration::from_micros(125);
/// More than this no connection holds that is not acknowledged.
const LONGEST: Duration = Duration::from_secs(40);

/// Counts bytes over all connections, and notes what may be under way still. Pure but for its locks: time is an argument.
#[derive(Default)]
pub(crate) struct Link {
    sent: AtomicU64,
    heard: AtomicU64,
    /// When all that the swarm has sent is there at the latest.
    arrives: Mutex<Option<Instant>>,
}

impl Link {
    /// Bytes sent, direct calls among them.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes that the swarm has read.
    pub(crate) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Bytes go out.
    pub(crate) fn sends(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes go out over the swarm.
    pub(crate) fn writes(&self, bytes: usize, now: Instant) {
        self.sends(bytes);
        let takes = BYTE.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
        let mut arrives = self.arrives.lock();
        let before = arrives.map_or(now, |before| before.max(now));
        *arrives = Some((before + takes.min(LONGEST)).min(now + LONGEST));
    }

    /// Bytes come in over the swarm.
    pub(crate) fn reads(&self, bytes: usize) {
        self.heard.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Whether something may be under way still on a slow link.
    pub(crate) fn is_busy(&self, now: Instant) -> bool {
        self.arrives.lock().is_some_and(|arrives| arrives > now)
    }

    /// The other has answered: what was sent before is there.
    pub(crate) fn has_arrived(&self) {
        *self.arrives.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_may_be_under_way_until_it_is_answered_and_no_longer_than_a_while() {
        let (link, start) = (Link::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert!(!link.is_busy(start));
        link.writes(8_000, start);
        link.writes(8_000, start);
        assert!(link.is_busy(start + second) && !link.is_busy(start + 2 * second));
        // What was under way then is there by now.
        link.writes(8_000, start + 5 * second);
        assert!(!link.is_busy(start + 6 * second));
        link.has_arrived();
        assert!(!link.is_busy(start));
        link.writes(usize::MAX, start);
        link.writes(1, start);
        assert!(link.is_busy(start + LONGEST - second) && !link.is_busy(start + LONGEST));
    }

    #[test]
    fn bytes_are_counted_each_way() {
        let link = Link::default();
        link.sends(3);
        link.writes(4, Instant::now());
        link.reads(5);
        assert_eq!((link.sent(), link.heard()), (7, 5));
    }
}
