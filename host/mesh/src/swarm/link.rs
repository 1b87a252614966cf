//! What passes between this node and another one.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a byte may take that the swarm sends: 64 kbit/s. On a slower link a call with a long body may be taken for one to a dead node.
const BYTE: Duration = Duration::from_micros(125);
/// More than this no connection holds that is not acknowledged.
const LONGEST: Duration = Duration::from_secs(40);
/// So much from a relay holds up an answer that comes over it; what is said in passing does not.
const HOLDS_UP: u64 = 4 << 10;

/// Counts bytes over all connections, and notes what may be under way still. Pure but for its locks: time is an argument.
#[derive(Default)]
pub(crate) struct Link {
    sent: AtomicU64,
    heard: AtomicU64,
    /// Streams of the swarm.
    streams: AtomicUsize,
    /// When all that the swarm has sent is there at the latest.
    arrives: Mutex<Option<Instant>>,
    /// What passes to and from the relay that the last connection goes over.
    relay: Mutex<Option<Arc<Self>>>,
}

impl Link {
    /// Bytes sent, direct calls among them.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Grows with the bytes that the swarm has read; and with those that a relay sends for others, which come over the same connection before
    /// an answer does.
    pub(crate) fn heard(&self) -> u64 {
        let of = |link: &Self| link.heard.load(Ordering::Relaxed);
        let of_relay = self.relay.lock().as_deref().map_or(0, of) / HOLDS_UP;
        of(self).wrapping_add(of_relay)
    }

    /// Its connection goes over a relay from now on, or over none.
    pub(crate) fn goes_over(&self, relay: Option<Arc<Self>>) {
        *self.relay.lock() = relay;
    }

    /// A stream of the swarm begins.
    pub(super) fn opens(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    /// One is over.
    pub(super) fn closes(&self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether there are any.
    pub(super) fn has_streams(&self) -> bool {
        self.streams.load(Ordering::Relaxed) > 0
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

    /// Whether something may be under way still on a slow link, be it as far as the relay only.
    pub(crate) fn is_busy(&self, now: Instant) -> bool {
        let of = |link: &Self| link.arrives.lock().is_some_and(|arrives| arrives > now);
        of(self) || self.relay.lock().as_deref().is_some_and(of)
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
    fn what_a_relay_carries_for_others_holds_up_an_answer() {
        let (link, relay, start) = (Link::default(), Arc::new(Link::default()), Instant::now());
        relay.reads(HOLDS_UP as usize);
        relay.writes(8_000, start);
        link.reads(1);
        assert!(link.heard() == 1 && !link.is_busy(start));
        link.goes_over(Some(relay.clone()));
        assert!(link.heard() == 2 && link.is_busy(start));
        relay.reads(HOLDS_UP as usize - 1);
        assert_eq!((link.sent(), link.heard()), (0, 2), "a few words");
        relay.reads(1);
        assert_eq!(link.heard(), 3);
        link.goes_over(None);
        assert!(link.heard() == 1 && !link.is_busy(start));
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
