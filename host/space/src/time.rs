use chrono::{DateTime, SecondsFormat};
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

/// An instant in UTC, in microseconds since 1970; written as RFC 3339: `2026-11-21T10:00:00Z`.
///
/// It lies between [`Time::MIN`] and [`Time::MAX`], which every operation saturates at. As in POSIX, a leap second
/// does not count: differences across one are a second short.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Time(i64);

/// A text that is no time.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a time such as `2026-11-21T10:00:00Z` (RFC 3339, with `Z` or an offset)")]
pub struct ParseTimeError(String);

impl Time {
    /// 0000-01-01T00:00:00Z, the first that RFC 3339 can write.
    pub const MIN: Self = Self(-62_167_219_200_000_000);

    /// 9999-12-31T23:59:59.999999Z, the last that RFC 3339 can write.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// This many microseconds after 1970-01-01T00:00:00Z.
    pub const fn from_unix_micros(micros: i64) -> Self {
        if micros < Self::MIN.0 {
            Self::MIN
        } else if micros > Self::MAX.0 {
            Self::MAX
        } else {
            Self(micros)
        }
    }

    /// This many milliseconds after 1970-01-01T00:00:00Z.
    pub const fn from_unix_ms(ms: i64) -> Self {
        Self::from_unix_micros(ms.saturating_mul(1_000))
    }

    /// Milliseconds since 1970-01-01T00:00:00Z; 0 before that.
    pub const fn unix_ms(self) -> u64 {
        match self.0 < 0 {
            true => 0,
            false => self.0 as u64 / 1_000,
        }
    }

    /// Microseconds since 1970-01-01T00:00:00Z.
    pub const fn unix_micros(self) -> i64 {
        self.0
    }

    /// The time that has passed since an earlier instant; zero if that one is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }
}

/// Parts of a microsecond are dropped.
fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self::from_unix_micros(self.0.saturating_add(micros(time)))
    }
}

impl Sub<Duration> for Time {
    type Output = Self;

    fn sub(self, time: Duration) -> Self {
        Self::from_unix_micros(self.0.saturating_sub(micros(time)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = DateTime::from_timestamp_micros(self.0).expect("years 0 to 9999 are dates");
        f.write_str(&date.to_rfc3339_opts(SecondsFormat::AutoSi, true))
    }
}

impl FromStr for Time {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<Self, ParseTimeError> {
        let date = DateTime::parse_from_rfc3339(text).map_err(|_| ParseTimeError(text.into()))?;
        let micros = date.timestamp_micros();
        // An offset can carry a date past the years that can be written again.
        match Self::from_unix_micros(micros) {
            time if time.0 == micros => Ok(time),
            _ => Err(ParseTimeError(text.into())),
        }
    }
}

karman_types::serde_as_text!(Time);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reads_what_it_writes(micros in any::<i64>(), near in -2_000_000_000_000_000i64..4_000_000_000_000_000) {
            for time in [Time::from_unix_micros(micros), Time::from_unix_micros(near)] {
                prop_assert_eq!(time.to_string().parse(), Ok(time));
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<Time>();
        }

        #[test]
        fn what_is_added_has_passed(micros in 0..4_000_000_000_000_000i64, more in 0..1u64 << 50) {
            let (time, more) = (Time::from_unix_micros(micros), Duration::from_micros(more));
            prop_assert_eq!((time + more).since(time), more);
            prop_assert_eq!(time + more - more, time);
            prop_assert_eq!(time.since(time + more), Duration::ZERO);
        }
    }

    #[test]
    fn times_are_rfc_3339() {
        let time: Time = "2026-11-21T11:00:00.25+01:00".parse().unwrap();
        assert_eq!(time.to_string(), "2026-11-21T10:00:00.250Z");
        assert_eq!(time, Time::from_unix_ms(1_795_255_200_250));
        for text in [
            "",
            "2026-11-21",
            "2026-11-21T10:00:00",
            "2026-02-30T10:00:00Z",
            "0000-01-01T00:00:00+01:00",
        ] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        assert_eq!(Time::MIN.to_string(), "0000-01-01T00:00:00Z");
        assert_eq!(Time::MAX.to_string(), "9999-12-31T23:59:59.999999Z");
    }

    #[test]
    fn the_ends_of_time_hold() {
        assert_eq!(Time::MAX + Duration::MAX, Time::MAX);
        assert_eq!(Time::MIN - Duration::MAX, Time::MIN);
        assert_eq!(Time::from_unix_ms(i64::MAX), Time::MAX);
        assert!(Time::MAX.since(Time::MIN) > Duration::from_secs(9_999 * 365 * 86_400));
    }
}
