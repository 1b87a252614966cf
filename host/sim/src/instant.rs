use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A moment of virtual time, in nanoseconds since the start of the run. It saturates after 584 years.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Instant(pub u64);

impl Instant {
    /// When the run begins.
    pub const START: Self = Self(0);

    /// The last one there is.
    pub const MAX: Self = Self(u64::MAX);

    /// This many seconds after the start, to the nearest nanosecond; the start for what is negative or no number.
    pub fn from_secs_f64(seconds: f64) -> Self {
        // A cast saturates, and takes NaN for zero.
        Self((seconds * 1e9).round() as u64)
    }

    /// Seconds since the start.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time that has passed since an earlier one; zero if that one is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time since the start, as a [`karman_space::Line`] counts it.
    pub const fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(nanoseconds(time)))
    }
}

impl From<Duration> for Instant {
    fn from(since_start: Duration) -> Self {
        Self(nanoseconds(since_start))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.as_secs_f64())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// This many seconds as a length of time, to the nearest nanosecond; zero for what is negative or no number.
pub fn seconds(seconds: f64) -> Duration {
    Instant::from_secs_f64(seconds).since_start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_hold() {
        assert_eq!(Instant::MAX + Duration::MAX, Instant::MAX);
        assert_eq!(Instant::START.since(Instant::MAX), Duration::ZERO);
        for odd in [-1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(Instant::from_secs_f64(odd), Instant::START);
        }
        assert_eq!(Instant::from_secs_f64(f64::INFINITY), Instant::MAX);
        assert_eq!(seconds(1.5e-9), Duration::from_nanos(2));
    }
}
