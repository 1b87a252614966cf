use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The speed of a link in bits per second, written with its unit: `2 Mbit/s` is 2,000,000 bits each second.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Rate(pub u64);

/// A text that is no rate.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a rate such as `2 Mbit/s` (a whole number of bit/s, kbit/s, Mbit/s or Gbit/s)")]
pub struct ParseRateError(String);

/// Multiples of 1000, as for every link.
const UNITS: [(&str, u64); 4] = [
    ("Gbit/s", 1_000_000_000),
    ("Mbit/s", 1_000_000),
    ("kbit/s", 1_000),
    ("bit/s", 1),
];

/// The bits of a byte times the microseconds of a second.
const BYTE_MICROS: u128 = 8_000_000;

impl Rate {
    /// How long it takes to send this many bytes, rounded up to a microsecond; [`Duration::MAX`] at rate 0.
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let micros = (u128::from(bytes) * BYTE_MICROS).div_ceil(u128::from(self.0));
        u64::try_from(micros).map_or(Duration::MAX, Duration::from_micros)
    }

    /// How many whole bytes are sent in this time: the most whose [`Rate::time_for`] is not longer.
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.0).saturating_mul(time.as_micros()) / BYTE_MICROS;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = UNITS
            .into_iter()
            .find(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale))
            .unwrap_or(("bit/s", 1));
        write!(f, "{} {unit}", self.0 / scale)
    }
}

impl FromStr for Rate {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Self, ParseRateError> {
        let error = || ParseRateError(text.into());
        let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
        let number: u64 = text[..split].parse().map_err(|_| error())?;
        let unit = text[split..].trim();
        let (_, scale) = UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .ok_or_else(error)?;
        number.checked_mul(*scale).map(Self).ok_or_else(error)
    }
}

karman_types::serde_as_text!(Rate);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reads_what_it_writes(bits in any::<u64>()) {
            prop_assert_eq!(Rate(bits).to_string().parse(), Ok(Rate(bits)));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<Rate>();
        }

        #[test]
        fn time_and_bytes_agree(bits in 1..1u64 << 40, bytes in any::<u32>(), micros in 0..1u64 << 40) {
            let (rate, bytes, time) = (Rate(bits), u64::from(bytes), Duration::from_micros(micros));
            prop_assert_eq!(rate.time_for(bytes) <= time, bytes <= rate.bytes_in(time));
        }
    }

    #[test]
    fn units_are_written_out() {
        assert_eq!("2 Mbit/s".parse(), Ok(Rate(2_000_000)));
        assert_eq!("9600bit/s".parse(), Ok(Rate(9_600)));
        assert_eq!(Rate(9_600).to_string(), "9600 bit/s");
        assert_eq!(Rate(20_000_000).to_string(), "20 Mbit/s");
        for text in ["", "2", "2 MB/s", "1.5 Mbit/s", "-1 bit/s", "99999999999 Gbit/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_started_microsecond_counts() {
        assert_eq!(Rate(2_000_000).time_for(1_000_000), Duration::from_secs(4));
        assert_eq!(Rate(3_000_000).time_for(1), Duration::from_micros(3));
        assert_eq!(Rate(0).time_for(1), Duration::MAX);
        assert_eq!(Rate(0).bytes_in(Duration::MAX), 0);
    }
}
