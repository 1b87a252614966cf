use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A text that is no size or time.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{text}` is not {what}")]
pub struct ParseUnitError {
    text: String,
    what: &'static str,
}

/// A number of bytes, written with its unit: `64 MiB`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl ByteSize {
    /// This many KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// This many MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// This many GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// The number of bytes, as far as this machine can address it.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = UNITS
            .into_iter()
            .find(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale))
            .unwrap_or(("B", 1));
        write!(f, "{} {unit}", self.0 / scale)
    }
}

impl FromStr for ByteSize {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let error = || ParseUnitError {
            text: text.into(),
            what: "a size such as `64 MiB` (B, KiB, MiB, GiB)",
        };
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..split].parse().map_err(|_| error())?;
        let unit = text[split..].trim();
        let named = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
        let (_, scale) = named.ok_or_else(error)?;
        number.checked_mul(*scale).map(Self).ok_or_else(error)
    }
}

crate::serde_as_text!(ByteSize);

/// Reads `200 ms`, `3 s`, `5 min`, `7d`, `2 h`, `40 us`.
///
/// # Errors
/// When the number or the unit is missing, or the time is longer than a `u64` of microseconds.
pub fn parse_duration(text: &str) -> Result<Duration, ParseUnitError> {
    let error = || ParseUnitError {
        text: text.into(),
        what: "a time such as `200 ms` (us, ms, s, min, h, d)",
    };
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
    let number: u64 = text[..split].parse().map_err(|_| error())?;
    let micros: u64 = match text[split..].trim() {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "min" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(error()),
    };
    number
        .checked_mul(micros)
        .map(Duration::from_micros)
        .ok_or_else(error)
}

/// A time as people read it: `41 us`, `3.1 ms`, `2.5 s`, `4 min 12 s`.
pub fn format_duration(time: Duration) -> String {
    let micros = time.as_micros();
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..1_000_000 => trim(micros as f64 / 1e3, "ms"),
        1_000_000..60_000_000 => trim(micros as f64 / 1e6, "s"),
        _ => match (time.as_secs() / 60, time.as_secs() % 60) {
            (minutes, 0) => format!("{minutes} min"),
            (minutes, seconds) => format!("{minutes} min {seconds} s"),
        },
    }
}

/// A size as people read it: `512 B`, `1.2 KiB`, `12.4 MiB`.
pub fn format_bytes(bytes: u64) -> String {
    match UNITS.into_iter().find(|(_, scale)| bytes >= *scale) {
        Some((unit, scale)) if scale > 1 => trim(bytes as f64 / scale as f64, unit),
        _ => format!("{bytes} B"),
    }
}

fn trim(value: f64, unit: &str) -> String {
    let text = format!("{value:.1}");
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}

/// Durations in serialised form are texts with a unit.
pub mod serde_duration {
    use super::*;

    /// Writes the exact time: whole milliseconds as `N ms`, else microseconds.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        let micros = time.as_micros();
        match micros % 1_000 {
            0 => serializer.collect_str(&format_args!("{} ms", micros / 1_000)),
            _ => serializer.collect_str(&format_args!("{micros} us")),
        }
    }

    /// Reads what [`parse_duration`] reads.
    ///
    /// # Errors
    /// When the text is no time.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        parse_duration(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// The same of a duration that may be left out.
pub mod serde_optional_duration {
    use super::*;

    #[derive(Deserialize, Serialize)]
    struct Written(#[serde(with = "serde_duration")] Duration);

    /// Writes the exact time, where there is one.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        time.map(Written).serialize(serializer)
    }

    /// Reads what [`parse_duration`] reads, or nothing.
    ///
    /// # Errors
    /// When the text is no time.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Written>::deserialize(deserializer)?.map(|written| written.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sizes_read_what_they_write(bytes in any::<u64>()) {
            prop_assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<ByteSize>();
            let _ = parse_duration(&text);
        }
    }

    #[test]
    fn units_are_written_out() {
        assert_eq!(format_duration(Duration::from_micros(3_140)), "3.1 ms");
        assert_eq!(format_duration(Duration::from_secs(252)), "4 min 12 s");
        assert_eq!(format_bytes(13_002_342), "12.4 MiB");
        assert_eq!(format_bytes(110_592), "108 KiB");
        assert_eq!("64 MiB".parse(), Ok(ByteSize::mib(64)));
        assert_eq!("64 mib".parse(), Ok(ByteSize::mib(64)));
        assert_eq!(parse_duration("7d"), Ok(Duration::from_secs(604_800)));
        assert!("64 MB".parse::<ByteSize>().is_err());
        assert!("64".parse::<ByteSize>().is_err());
        assert!(parse_duration("200").is_err());
    }
}
