use crate::Time;
use karman_types::{KeyError, from_toml};
use serde::Deserialize;

/// A time that was, played again: which time it is for satellites, for each time of the clock.
///
/// Between two moments it goes evenly, so that a pass of ten minutes may go by in seconds, and the hours between two passes, too.
/// Before the first moment and after the last it says nothing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Replay {
    /// Times of the clock with what they stand for; both grow from one to the next.
    moments: Vec<(Time, Time)>,
}

/// A replay that does not hold together.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The text is not what a replay looks like.
    #[error(transparent)]
    Text(#[from] KeyError),
    /// A text that is too long to be read.
    #[error(
        "the replay has {bytes} bytes, but at most {} are read: leave out what is over",
        Replay::MAX_TEXT
    )]
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// Time would stand still, or go back.
    #[error(
        "moment {moment}: `at` and `was` must both be later than those of the one before: put them in order"
    )]
    Order {
        /// Which, counted from 1.
        moment: usize,
    },
}

/// The file that an operator writes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    moment: Vec<Moment>,
}

/// A time of the clock, and what it stands for. Both grow from one moment to the next.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Moment {
    /// The time of the clock.
    at: Time,
    /// The time that is played then.
    was: Time,
}

impl Replay {
    /// The most bytes of a text that is read: some ten thousand moments.
    pub const MAX_TEXT: usize = 1 << 20;

    /// Reads a table `[[moment]]` for each, with `at`, a time of the clock, and `was`, the one that is played then (RFC 3339).
    ///
    /// # Errors
    /// [`ReplayError::TooLong`] over [`Self::MAX_TEXT`] bytes; [`ReplayError::Text`] with the line for what cannot be read;
    /// [`ReplayError::Order`] for moments that are not in their order.
    pub fn from_toml(text: &str) -> Result<Self, ReplayError> {
        if text.len() > Self::MAX_TEXT {
            return Err(ReplayError::TooLong { bytes: text.len() });
        }
        let file: File = from_toml(text)?;
        let moments = file.moment.iter().map(|moment| (moment.at, moment.was));
        let moments: Vec<(Time, Time)> = moments.collect();
        let wrong = |pair: &[(Time, Time)]| pair[1].0 <= pair[0].0 || pair[1].1 <= pair[0].1;
        match moments.windows(2).position(wrong) {
            // The second of the two, and counted from 1.
            Some(before) => Err(ReplayError::Order { moment: before + 2 }),
            None => Ok(Self { moments }),
        }
    }

    /// The time that is played when the clock says this; none before the first moment and after the last.
    pub fn was(&self, at: Time) -> Option<Time> {
        let later = self.moments.partition_point(|(moment, _)| *moment <= at);
        let (since, was) = *self.moments.get(later.checked_sub(1)?)?;
        let passed = micros(since, at);
        let Some((until, then)) = self.moments.get(later) else {
            return (passed == 0).then_some(was);
        };
        // The product of two stretches of ten thousand years has 117 bits.
        let more = passed * micros(was, *then) / micros(since, *until);
        let more = i64::try_from(more).unwrap_or(i64::MAX);
        Some(Time::from_unix_micros(was.unix_micros().saturating_add(more)))
    }
}

fn micros(from: Time, to: Time) -> i128 {
    i128::from(to.unix_micros()) - i128::from(from.unix_micros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ten minutes in five seconds, then an hour and a half in five more.
    const PASSES: &str = "[[moment]]\nat = \"2026-11-21T10:00:00Z\"\nwas = \"2006-06-26T20:00:00Z\"\n\
        [[moment]]\nat = \"2026-11-21T10:00:05Z\"\nwas = \"2006-06-26T20:10:00Z\"\n\
        [[moment]]\nat = \"2026-11-21T10:00:10Z\"\nwas = \"2006-06-26T21:40:00Z\"\n";

    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    #[test]
    fn time_goes_evenly_between_moments_and_nowhere_else() {
        let replay = Replay::from_toml(PASSES).unwrap();
        for (at, was) in [
            ("10:00:00", Some("20:00:00")),
            ("10:00:01", Some("20:02:00")),
            ("10:00:05", Some("20:10:00")),
            ("10:00:06", Some("20:28:00")),
            ("10:00:10", Some("21:40:00")),
            ("09:59:59", None),
            ("10:00:11", None),
        ] {
            let at = time(&format!("2026-11-21T{at}Z"));
            let was = was.map(|was| time(&format!("2006-06-26T{was}Z")));
            assert_eq!(replay.was(at), was, "{at}");
        }
        let none = Replay::from_toml("").unwrap();
        assert_eq!((none.was(Time::MAX), none), (None, Replay::default()));
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named() {
        let error = |text: &str| Replay::from_toml(text).unwrap_err().to_string();
        let back = error(&PASSES.replace("21:40:00", "20:10:00"));
        assert!(back.starts_with("moment 3: `at` and `was`"), "{back}");
        let back = error(&PASSES.replace("10:00:05", "09:00:05"));
        assert!(back.starts_with("moment 2:"), "{back}");
        let key = error(&PASSES.replace("was", "is"));
        assert!(key.starts_with("unknown key `is` at line 3"), "{key}");
        let bytes = Replay::MAX_TEXT + 1;
        assert_eq!(
            Replay::from_toml(&" ".repeat(bytes)),
            Err(ReplayError::TooLong { bytes })
        );
    }

    proptest! {
        #[test]
        fn it_never_goes_back(
            steps in prop::collection::vec((1..1_000_000_000i64, 1..1i64 << 50), 1..9),
            asked in 0..9_000_000_000i64,
            more in 0..1_000_000_000i64,
        ) {
            let mut moments = vec![(Time::from_unix_micros(0), Time::from_unix_micros(-1 << 50))];
            for (at, was) in steps {
                let (before, then) = moments[moments.len() - 1];
                moments.push((
                    Time::from_unix_micros(before.unix_micros() + at),
                    Time::from_unix_micros(then.unix_micros() + was),
                ));
            }
            let replay = Replay { moments };
            let [one, other] = [asked, asked + more].map(Time::from_unix_micros);
            if let (Some(one), Some(other)) = (replay.was(one), replay.was(other)) {
                prop_assert!(one <= other);
            }
        }
    }
}
