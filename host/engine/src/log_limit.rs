//! How much a plugin may write into the log of a node.

use parking_lot::Mutex;
use std::time::Instant;

/// Lines in a second, for as long as it likes.
const LINES: f64 = 100.0;
/// Bytes in a second.
const BYTES: f64 = 65_536.0;
/// Seconds' worth that may be written at once.
const AT_ONCE: f64 = 10.0;

/// What one plugin may still write; without a limit always something.
#[derive(Debug)]
pub(crate) struct LogLimit(Option<Mutex<Left>>);

impl LogLimit {
    pub(crate) fn new(limited: bool) -> Self {
        Self(limited.then(|| Mutex::new(Left::new(Instant::now()))))
    }

    /// Whether a line of so many bytes is written. Before the first one that is again, the log is told how many were not.
    pub(crate) fn takes(&self, plugin: &str, bytes: usize) -> bool {
        let Some(left) = &self.0 else {
            return true;
        };
        let taken = left.lock().take(Instant::now(), bytes);
        if let Some(dropped @ 1..) = taken {
            tracing::warn!(target: "plugin", plugin, "{dropped} lines dropped: it wrote more than {LINES} lines or {BYTES} bytes in a second");
        }
        taken.is_some()
    }
}

/// Two buckets that fill steadily.
#[derive(Debug)]
struct Left {
    lines: f64,
    bytes: f64,
    at: Instant,
    dropped: u64,
}

impl Left {
    const fn new(now: Instant) -> Self {
        Self {
            lines: LINES * AT_ONCE,
            bytes: BYTES * AT_ONCE,
            at: now,
            dropped: 0,
        }
    }

    /// How many lines were dropped right before this one; nothing when it is dropped, too.
    fn take(&mut self, now: Instant, bytes: usize) -> Option<u64> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.lines = (self.lines + passed * LINES).min(LINES * AT_ONCE);
        self.bytes = (self.bytes + passed * BYTES).min(BYTES * AT_ONCE);
        self.at = now;
        let bytes = bytes as f64;
        // After a drop there is a second's worth first, or there would be word of drops between any two lines.
        let seconds = f64::from(u8::from(self.dropped > 0));
        if self.lines < (LINES * seconds).max(1.0) || self.bytes < (BYTES * seconds).max(bytes) {
            self.dropped += 1;
            return None;
        }
        self.lines -= 1.0;
        self.bytes -= bytes;
        Some(std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_thousand_lines_at_once_and_a_hundred_in_a_second() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut left = Left::new(start);
        let mut write = |millis, lines: usize| -> Vec<u64> {
            (0..lines).filter_map(|_| left.take(at(millis), 20)).collect()
        };
        assert_eq!(write(0, 1500), [0; 1000]);
        assert!(write(990, 7).is_empty());
        // The first line that is written again knows of all that were not.
        let again = write(1500, 200);
        assert_eq!((again.len(), again[0]), (150, 507));
        assert!(again[1..].iter().all(|dropped| *dropped == 0));
        assert_eq!(write(60_000, 1).len(), 1);
        assert_eq!(write(60_000, 2000).len(), 999);
    }

    #[test]
    fn long_lines_count_by_their_bytes() {
        let start = Instant::now();
        let mut left = Left::new(start);
        let mut write = |seconds| {
            let now = start + Duration::from_secs(seconds);
            (0..500).filter(|_| left.take(now, 8 << 10).is_some()).count()
        };
        assert_eq!([write(0), write(1), write(2)], [80, 8, 8]);
    }
}
