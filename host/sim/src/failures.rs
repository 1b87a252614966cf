use crate::{Instant, Sampler};
use std::time::Duration;

/// When something that fails and comes back does so: up and down in turn, drawn from their means and shapes.
#[derive(Clone, Debug)]
pub struct Failures {
    up: (Duration, Sampler),
    down: (Duration, Sampler),
    random: fastrand::Rng,
    at: Instant,
}

/// A time for which something is gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Failure {
    /// It stops.
    pub start: Instant,
    /// It works again.
    pub end: Instant,
}

impl Failures {
    /// Up for this long on average, then down for that long; the first failure comes after the first time up.
    pub const fn new(up: (Duration, Sampler), down: (Duration, Sampler), random: fastrand::Rng) -> Self {
        Self {
            up,
            down,
            random,
            at: Instant::START,
        }
    }
}

impl Iterator for Failures {
    type Item = Failure;

    /// The next failure; there is no last one before the end of time.
    fn next(&mut self) -> Option<Failure> {
        let mut draw = |(mean, shape): (Duration, Sampler)| {
            crate::seconds(mean.as_secs_f64() * shape.draw(&mut self.random))
        };
        let start = self.at + draw(self.up);
        let end = start + draw(self.down);
        self.at = end;
        (start < Instant::MAX).then_some(Failure { start, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;

    #[test]
    fn the_share_of_time_down_is_as_said() {
        let shape = Shape::Exponential.sampler().unwrap();
        let (up, down) = (Duration::from_secs(90), Duration::from_secs(10));
        let failures = Failures::new((up, shape), (down, shape), fastrand::Rng::with_seed(5));
        let many: Vec<Failure> = failures.take(10_000).collect();
        let gone: f64 = many
            .iter()
            .map(|failure| failure.end.since(failure.start).as_secs_f64())
            .sum();
        let share = gone / many[9_999].end.as_secs_f64();
        assert!((share - 0.1).abs() < 0.005, "{share}");
        assert!(many.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }
}
