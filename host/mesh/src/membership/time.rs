use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::time::Duration;

/// A time in seconds since 1970 (UTC, without leap seconds), at most the last second of the year 9999.
///
/// Clocks lie: a board without a battery boots in 1970. To judge an expiry, pass the latest of the clock, the persisted floor
/// and the time of the build. [`Member::issued`](super::Member::issued) is signed, so it may raise that
/// floor.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct UnixTime(u64);

impl UnixTime {
    /// The last second of the year 9999, the last that a token's date can hold.
    pub const MAX: Self = Self(253_402_300_799);

    /// This many seconds after the start of 1970; [`UnixTime::MAX`] when that is later.
    pub const fn from_seconds(seconds: u64) -> Self {
        if seconds > Self::MAX.0 {
            Self::MAX
        } else {
            Self(seconds)
        }
    }

    /// The seconds since the start of 1970.
    pub const fn seconds(self) -> u64 {
        self.0
    }

    /// This much later, in whole seconds.
    #[must_use]
    pub const fn after(self, time: Duration) -> Self {
        Self::from_seconds(self.0.saturating_add(time.as_secs()))
    }
}

impl fmt::Display for UnixTime {
    /// As in `2027-01-15 08:00:00 UTC`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.0 / 86_400, self.0 % 86_400);
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC"
        )
    }
}

impl<'de> Deserialize<'de> for UnixTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Self::from_seconds)
    }
}

/// Year, month and day in the Gregorian calendar, this many days after the start of 1970.
fn date(mut days: u64) -> (u64, usize, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // Every 400 years have the same number of days.
    let mut year = 1970 + 400 * (days / 146_097);
    days %= 146_097;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [
        31,
        28 + u64::from(leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_800_000_000, "2027-01-15 08:00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (u64::MAX, "9999-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(UnixTime::from_seconds(seconds).to_string(), text);
        }
        assert_eq!(UnixTime::MAX.after(Duration::MAX), UnixTime::MAX);
    }
}
