use karman_types::Instant;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How far a wall clock may run away from the monotonic one before tasks are looked at again for it.
const SLACK: Duration = Duration::from_secs(1);

/// Milliseconds since 1970: what expiry is judged by.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct UnixMs(pub u64);

impl UnixMs {
    /// This much later.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }

    /// The time from `earlier` to here; zero when that lies ahead.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// What the node knows of the wall clock at one moment. Boards without a battery-backed clock boot in the past.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Reading {
    /// What the clock shows.
    pub wall: UnixMs,
    /// Whether it can be believed: set by a time server, a satellite receiver or a battery-backed clock.
    pub trusted: bool,
    /// It is no earlier than this: the later of build time and the newest signed time seen.
    pub floor: UnixMs,
}

/// Whether a moment of the wall clock has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expiry {
    /// It lies ahead.
    Ahead,
    /// It is over.
    Past,
    /// Nobody can tell: the clock is not trusted, and the moment lies after the floor.
    Unknown,
}

/// The wall clock between two readings, carried on by the monotonic one.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Clock {
    read_at: Instant,
    reading: Reading,
}

impl Clock {
    /// The clock as of this reading.
    pub const fn new(now: Instant, reading: Reading) -> Self {
        Self {
            read_at: now,
            reading,
        }
    }

    /// Whether a reading says what is known without it: the clock is believed as before, and shows the time that was to be expected.
    pub fn expects(&self, now: Instant, reading: Reading) -> bool {
        let (known, read) = (self.floor(now), Self::new(now, reading).floor(now));
        let is_no_later = read.since(known) <= SLACK;
        let is_no_earlier = !reading.trusted || known.since(read) <= SLACK;
        reading.trusted == self.reading.trusted && is_no_later && is_no_earlier
    }

    /// Takes a newer reading. The floor never sinks.
    pub fn set(&mut self, now: Instant, reading: Reading) {
        let floor = self.floor(now).max(reading.floor);
        *self = Self::new(now, Reading { floor, ..reading });
    }

    /// It is no earlier than this: a moment that was written down when the clock was trusted.
    pub fn raise_floor(&mut self, now: Instant, moment: UnixMs) {
        let wall = self.reading.wall.after(now.since(self.read_at));
        self.set(
            now,
            Reading {
                wall,
                floor: moment,
                ..self.reading
            },
        );
    }

    /// The time of day, when it can be believed.
    pub fn wall(&self, now: Instant) -> Option<UnixMs> {
        let wall = self.reading.wall.after(now.since(self.read_at));
        self.reading.trusted.then(|| wall.max(self.reading.floor))
    }

    /// It is no earlier than this.
    pub fn floor(&self, now: Instant) -> UnixMs {
        // The floor was reached when it was set, and time has gone on since.
        let floor = self.reading.floor.after(now.since(self.read_at));
        self.wall(now).map_or(floor, |wall| wall.max(floor))
    }

    /// Whether this moment has come. A floor that lies past it says so even when the clock is not trusted.
    pub fn judge(&self, now: Instant, moment: UnixMs) -> Expiry {
        match self.wall(now) {
            _ if self.floor(now) >= moment => Expiry::Past,
            Some(_) => Expiry::Ahead,
            None => Expiry::Unknown,
        }
    }

    /// From when on [`Clock::judge`] says that the moment is past, if no reading comes before.
    pub fn instant_of(&self, now: Instant, moment: UnixMs) -> Instant {
        now.after(moment.since(self.floor(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant(0);

    #[test]
    fn doubt_leaves_only_the_floor() {
        let mut clock = Clock::new(
            START,
            Reading {
                wall: UnixMs(0),
                trusted: false,
                floor: UnixMs(1_000),
            },
        );
        assert_eq!(clock.judge(START, UnixMs(900)), Expiry::Past);
        assert_eq!(clock.judge(START, UnixMs(1_100)), Expiry::Unknown);
        assert_eq!(clock.judge(Instant(100), UnixMs(1_100)), Expiry::Past);

        let trusted = Reading {
            wall: UnixMs(5_000),
            trusted: true,
            floor: UnixMs(0),
        };
        clock.set(Instant(200), trusted);
        assert_eq!(clock.judge(Instant(300), UnixMs(5_200)), Expiry::Ahead);
        assert_eq!(clock.instant_of(Instant(300), UnixMs(5_200)), Instant(400));
        assert_eq!(clock.judge(Instant(400), UnixMs(5_200)), Expiry::Past);
    }

    #[test]
    fn a_reading_is_news_where_the_clock_was_set_or_is_believed_from_now_on() {
        let reading = |wall, trusted| Reading {
            wall: UnixMs(wall),
            trusted,
            floor: UnixMs(2_000),
        };
        let clock = Clock::new(START, reading(10_000, true));
        let expects = |wall, trusted| clock.expects(Instant(5_000), reading(wall, trusted));
        assert!(expects(15_000, true) && expects(14_000, true) && expects(16_000, true));
        assert!(!expects(13_999, true) && !expects(16_001, true) && !expects(15_000, false));
        // What a clock in doubt shows tells nothing.
        let doubt = Clock::new(START, reading(0, false));
        assert!(doubt.expects(Instant(5_000), reading(1_000_000, false)));
        let later = Reading {
            floor: UnixMs(9_000),
            ..reading(0, false)
        };
        assert!(!doubt.expects(Instant(5_000), later));
    }

    #[test]
    fn the_floor_never_sinks() {
        let mut clock = Clock::new(
            START,
            Reading {
                wall: UnixMs(5_000),
                trusted: true,
                floor: UnixMs(0),
            },
        );
        clock.set(Instant(1_000), Reading::default());
        assert_eq!(clock.floor(Instant(1_000)), UnixMs(6_000));
        assert_eq!(clock.wall(Instant(1_000)), None);
    }
}
