use crate::Instant;
use crate::shape::normal;
use std::collections::VecDeque;
use std::time::Duration;

/// What is known of something that is elsewhere: samples that come late, are imprecise, or do not come.
///
/// The model takes a sample every period; a policy reads only what has arrived, with its age.
#[derive(Clone, Debug)]
pub struct Telemetry<T> {
    quality: Quality,
    random: fastrand::Rng,
    /// On the way, and the newest that has arrived; by time.
    samples: VecDeque<(Instant, T)>,
}

/// How good telemetry is. The default is perfect.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quality {
    /// How long a sample is on its way.
    pub lag: Duration,
    /// The standard deviation of a reading, as a share of its value.
    pub noise: f64,
    /// The share of samples that are lost.
    pub dropped: f64,
}

/// What is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known<T> {
    /// The reading.
    pub value: T,
    /// How old it is.
    pub age: Duration,
}

/// The error of one sample's readings.
#[derive(Debug)]
pub struct Noise<'a> {
    deviation: f64,
    random: &'a mut fastrand::Rng,
}

impl Noise<'_> {
    /// A reading of this quantity, never below zero.
    pub fn of(&mut self, value: f64) -> f64 {
        match self.deviation > 0.0 {
            true => (value * (1.0 + self.deviation * normal(self.random))).max(0.0),
            false => value,
        }
    }
}

impl<T: Clone> Telemetry<T> {
    /// Nothing known yet.
    pub const fn new(quality: Quality, random: fastrand::Rng) -> Self {
        Self {
            quality,
            random,
            samples: VecDeque::new(),
        }
    }

    /// Takes a sample now; `read` makes each reading imprecise by [`Noise::of`].
    pub fn sample(&mut self, now: Instant, read: impl FnOnce(&mut Noise<'_>) -> T) {
        if self.random.f64() < self.quality.dropped {
            return;
        }
        let value = read(&mut Noise {
            deviation: self.quality.noise,
            random: &mut self.random,
        });
        // What a newer one that has arrived replaces is not needed any more.
        while self
            .samples
            .get(1)
            .is_some_and(|(taken, _)| *taken + self.quality.lag <= now)
        {
            self.samples.pop_front();
        }
        self.samples.push_back((now, value));
    }

    /// The newest sample that has arrived by now; `now` must not be before the last sample.
    pub fn known(&self, now: Instant) -> Option<Known<&T>> {
        let arrived = |(taken, _): &&(Instant, T)| *taken + self.quality.lag <= now;
        let (taken, value) = self.samples.iter().rev().find(arrived)?;
        Some(Known {
            value,
            age: now.since(*taken),
        })
    }

    /// How good it is.
    pub const fn quality(&self) -> Quality {
        self.quality
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn sampled(quality: Quality) -> Telemetry<f64> {
        let mut telemetry = Telemetry::new(quality, fastrand::Rng::with_seed(4));
        for second in 0..1_000 {
            telemetry.sample(Instant(second * SECOND), |noise| noise.of(second as f64));
        }
        telemetry
    }

    #[test]
    fn only_what_has_arrived_is_known() {
        let lag = Duration::from_millis(2_500);
        let mut telemetry = Telemetry::new(
            Quality {
                lag,
                ..Quality::default()
            },
            fastrand::Rng::with_seed(4),
        );
        for second in 0..100 {
            let now = Instant(second * SECOND);
            telemetry.sample(now, |_| second);
            let known = telemetry.known(now).map(|known| (*known.value, known.age));
            assert_eq!(
                known,
                second.checked_sub(3).map(|old| (old, Duration::from_secs(3)))
            );
            assert!(telemetry.samples.len() <= 5);
        }
    }

    #[test]
    fn noise_and_losses_are_as_said() {
        let perfect = sampled(Quality::default());
        assert_eq!(perfect.known(Instant(999 * SECOND)).unwrap().value, &999.0);
        let mut random = fastrand::Rng::with_seed(1);
        let mut noise = Noise {
            deviation: 0.3,
            random: &mut random,
        };
        let readings: Vec<f64> = (0..100_000).map(|_| noise.of(10.0)).collect();
        let mean = readings.iter().sum::<f64>() / 1e5;
        let variance = readings.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / 1e5;
        assert!(
            (mean - 10.0).abs() < 0.05 && (variance.sqrt() - 3.0).abs() < 0.05,
            "{mean} {variance}"
        );
        let mut lossy = Telemetry::new(
            Quality {
                dropped: 0.3,
                ..Quality::default()
            },
            fastrand::Rng::with_seed(4),
        );
        let fresh = (0..10_000).filter(|second| {
            let now = Instant(second * SECOND);
            lossy.sample(now, |_| ());
            lossy.known(now).is_some_and(|known| known.age == Duration::ZERO)
        });
        // Four standard deviations.
        assert!(fresh.count().abs_diff(7_000) < 184);
    }
}
