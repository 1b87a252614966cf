use std::time::Duration;

/// Pauses that double from the first to the longest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Backoff {
    /// The pause after the first failure.
    pub first: Duration,
    /// What none is longer than.
    pub longest: Duration,
}

impl Backoff {
    /// The whole pause after the `n`-th failure, from 1.
    pub fn whole(self, n: u32) -> Duration {
        let doubled = 1u32.checked_shl(n.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.longest)
    }

    /// The same, of which up to half is luck (from 0 up to 1), so that not all who wait come back at once.
    pub fn pause(self, n: u32, luck: f64) -> Duration {
        self.whole(n).mul_f64(0.5 + luck / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff {
        first: Duration::from_millis(100),
        longest: Duration::from_secs(30),
    };

    #[test]
    fn pauses_double_up_to_the_longest() {
        let whole = |n| BACKOFF.whole(n).as_millis();
        assert_eq!([0, 1, 2, 3, 9].map(whole), [100, 100, 200, 400, 25_600]);
        assert_eq!([10, 33, u32::MAX].map(whole), [30_000; 3]);
    }

    #[test]
    fn luck_shortens_a_pause_by_no_more_than_half() {
        for n in [1, 2, 40] {
            assert_eq!(BACKOFF.pause(n, 0.0), BACKOFF.whole(n) / 2);
            assert_eq!(BACKOFF.pause(n, 1.0), BACKOFF.whole(n));
        }
    }
}
