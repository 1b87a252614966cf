use crate::Instant;
use std::time::Duration;

/// A count that changes over time, and its integral: how long the queue was on average, how many servers were busy.
#[derive(Clone, Copy, Debug, Default)]
pub struct OverTime {
    value: u64,
    since: Instant,
    /// Count times nanoseconds; exact, so that it does not depend on how often it is looked at.
    area: u128,
    from: Instant,
}

impl OverTime {
    /// This value since this instant.
    pub const fn new(value: u64, now: Instant) -> Self {
        Self {
            value,
            since: now,
            area: 0,
            from: now,
        }
    }

    /// Another value from now on.
    pub fn set(&mut self, now: Instant, value: u64) {
        self.area += u128::from(self.value) * now.since(self.since).as_nanos();
        self.since = self.since.max(now);
        self.value = value;
    }

    /// The value now.
    pub const fn value(&self) -> u64 {
        self.value
    }

    /// The integral until now, in seconds.
    pub fn seconds(&self, now: Instant) -> f64 {
        let area = self.area + u128::from(self.value) * now.since(self.since).as_nanos();
        area as f64 / 1e9
    }

    /// The mean until now; the value itself when no time has passed.
    pub fn mean(&self, now: Instant) -> f64 {
        match now.since(self.from) {
            Duration::ZERO => self.value as f64,
            time => self.seconds(now) / time.as_secs_f64(),
        }
    }

    /// Forgets what was before now: the end of the warm-up.
    pub const fn restart(&mut self, now: Instant) {
        *self = Self::new(self.value, now);
    }
}

/// Values of a kind, all kept: their mean and percentiles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    values: Vec<f64>,
}

impl Samples {
    /// One more.
    pub fn push(&mut self, value: f64) {
        self.values.push(value);
    }

    /// Every one, in the order in which they came.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The mean; nothing of none.
    pub fn mean(&self) -> Option<f64> {
        (!self.values.is_empty()).then(|| self.values.iter().sum::<f64>() / self.values.len() as f64)
    }

    /// The smallest value at or below which this share of them lies (nearest rank); nothing of none.
    pub fn percentile(&self, share: f64) -> Option<f64> {
        let last = self.values.len().checked_sub(1)?;
        let rank = (share.clamp(0.0, 1.0) * self.values.len() as f64).ceil() as usize;
        let mut values = self.values.clone();
        let (_, value, _) = values.select_nth_unstable_by(rank.saturating_sub(1).min(last), f64::total_cmp);
        Some(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_integral_is_exact() {
        let mut count = OverTime::new(2, Instant::START);
        count.set(Instant(3_000_000_000), 5);
        assert_eq!(count.seconds(Instant(4_000_000_000)), 11.0);
        assert_eq!(count.mean(Instant(4_000_000_000)), 2.75);
        count.restart(Instant(4_000_000_000));
        assert_eq!(count.mean(Instant(4_000_000_000)), 5.0);
        assert_eq!(count.seconds(Instant(5_000_000_000)), 5.0);
    }

    #[test]
    fn percentiles_are_values() {
        let mut samples = Samples::default();
        assert_eq!((samples.mean(), samples.percentile(0.5)), (None, None));
        (1..=100).rev().for_each(|n| samples.push(f64::from(n)));
        assert_eq!(samples.mean(), Some(50.5));
        let at = |share| samples.percentile(share).unwrap();
        assert_eq!(
            (at(0.0), at(0.5), at(0.95), at(0.951), at(1.0)),
            (1.0, 50.0, 95.0, 96.0, 100.0)
        );
    }
}
