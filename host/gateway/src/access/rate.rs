use std::time::Duration;

/// How many requests a caller has left at a rate: a bucket that fills steadily, and holds a second's worth.
#[derive(Debug)]
pub(super) struct Bucket {
    left: f64,
    /// When it was filled last.
    at: Duration,
}

impl Bucket {
    /// A full one.
    pub(super) fn full(rate: u32, now: Duration) -> Self {
        Self {
            left: f64::from(rate),
            at: now,
        }
    }

    /// Takes one out; else how long until there is one.
    pub(super) fn take(&mut self, rate: u32, now: Duration) -> Result<(), Duration> {
        self.left = self.filled(rate, now);
        self.at = self.at.max(now);
        self.has(rate, now)?;
        self.left -= 1.0;
        Ok(())
    }

    /// Whether there is one; else how long until then.
    pub(super) fn has(&self, rate: u32, now: Duration) -> Result<(), Duration> {
        let left = self.filled(rate, now);
        match left < 1.0 {
            true => Err(Duration::from_secs_f64((1.0 - left) / f64::from(rate.max(1)))),
            false => Ok(()),
        }
    }

    /// Whether it holds as much as a new one.
    pub(super) fn is_full(&self, rate: u32, now: Duration) -> bool {
        self.filled(rate, now) >= f64::from(rate)
    }

    fn filled(&self, rate: u32, now: Duration) -> f64 {
        let rate = f64::from(rate.max(1));
        let passed = now.saturating_sub(self.at).as_secs_f64();
        (self.left + passed * rate).min(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Over any time, no more pass than the rate allows and what the bucket held.
        #[test]
        fn no_more_pass_than_the_rate(rate in 1u32..20, steps in prop::collection::vec(0u64..500, 1..200)) {
            let mut bucket = Bucket::full(rate, Duration::ZERO);
            let (mut now, mut passed) = (Duration::ZERO, 0u32);
            for step in steps {
                now += Duration::from_millis(step);
                match bucket.take(rate, now) {
                    Ok(()) => passed += 1,
                    Err(wait) => {
                        prop_assert!(wait <= Duration::from_secs(1));
                        let then = now + wait + Duration::from_micros(1);
                        let mut later = Bucket { left: bucket.left, at: bucket.at };
                        prop_assert!(later.take(rate, then).is_ok());
                    }
                }
            }
            let most = f64::from(rate) * (1.0 + now.as_secs_f64());
            prop_assert!(f64::from(passed) <= most + 1e-6);
        }
    }
}
