use std::collections::VecDeque;
use std::time::Duration;

/// What one request counts at most.
pub(super) const MOST: f64 = 10.0;

/// After how many powers of e the weights are computed anew: what rounding has left in the sum grows by as much until then.
const RANGE: f64 = 4.0;

/// The most that one weighs: with that it counts the most in any case, and sums of it are numbers.
const MOST_WEIGHT: f64 = 1e100;

/// How urgent the waiting requests of one model are together: the sum of `min(10, exp(sharpness (waited/slo - 1)))`.
///
/// All waits grow alike, so the sum at another time is the sum now times one factor: it costs the same for any length of the
/// queue. Only those that reach the most that one counts in between are looked at.
#[derive(Clone, Debug)]
pub(super) struct Urgency {
    /// Sharpness over the SLO in seconds.
    rate: f64,
    sharpness: f64,
    /// The moment for which the weights hold.
    epoch: Duration,
    /// When each came, and `exp(rate (epoch - came))`.
    waiting: VecDeque<(Duration, f64)>,
    /// This many of the oldest count the most there is; the others are in the sum of weights.
    full: usize,
    sum: f64,
}

impl Urgency {
    pub(super) fn new(slo: Duration, sharpness: f64) -> Self {
        Self {
            rate: sharpness / slo.as_secs_f64(),
            sharpness,
            epoch: Duration::ZERO,
            waiting: VecDeque::new(),
            full: 0,
            sum: 0.0,
        }
    }

    /// What comes from now on is due so long after it came. Nothing may wait.
    pub(super) fn restart(&mut self, slo: Duration) {
        self.rate = self.sharpness / slo.as_secs_f64();
    }

    pub(super) fn arrived(&mut self, at: Duration) {
        if self.waiting.is_empty() {
            self.epoch = at;
        }
        let weight = weight(self.rate, at, self.epoch);
        self.waiting.push_back((at, weight));
        self.sum += weight;
    }

    pub(super) fn left(&mut self, count: usize) {
        for (index, (_, weight)) in self.waiting.drain(..count).enumerate() {
            if index >= self.full {
                self.sum -= weight;
            }
        }
        self.full = self.full.saturating_sub(count);
        if self.waiting.is_empty() {
            self.sum = 0.0;
        }
    }

    /// Takes note of the time. To be called before [`Urgency::after`].
    pub(super) fn settle(&mut self, now: Duration) {
        if self.rate * seconds_between(self.epoch, now) > RANGE {
            self.epoch = now;
            self.sum = 0.0;
            for (index, (at, known)) in self.waiting.iter_mut().enumerate() {
                *known = weight(self.rate, *at, now);
                self.sum += if index >= self.full { *known } else { 0.0 };
            }
        }
        let factor = self.factor(now, 0.0);
        while let Some((_, weight)) = self.waiting.get(self.full).filter(|(_, w)| w * factor >= MOST) {
            self.sum -= weight;
            self.full += 1;
        }
    }

    /// The sum after this many seconds, without the `gone` oldest.
    pub(super) fn after(&self, now: Duration, seconds: f64, gone: usize) -> f64 {
        let factor = self.factor(now, seconds);
        let (mut full, mut sum) = (self.full.saturating_sub(gone), self.sum);
        for (_, weight) in self.waiting.range(self.full.min(gone)..gone) {
            sum -= weight;
        }
        let others = self.waiting.range(self.full.max(gone)..);
        for (_, weight) in others.take_while(|(_, weight)| weight * factor >= MOST) {
            sum -= weight;
            full += 1;
        }
        let others = match sum > 0.0 {
            // However long it takes, each counts no more than there is.
            true => (sum * factor).min(MOST * self.waiting.len() as f64),
            // What rounding has left is no request, and 0 times infinity no number.
            false => 0.0,
        };
        others + MOST * full as f64
    }

    fn factor(&self, now: Duration, seconds: f64) -> f64 {
        (self.rate * (seconds_between(self.epoch, now) + seconds) - self.sharpness).exp()
    }
}

/// `exp(rate (epoch - came))`.
fn weight(rate: f64, came: Duration, epoch: Duration) -> f64 {
    (rate * seconds_between(came, epoch)).exp().min(MOST_WEIGHT)
}

/// From one moment to another, negative if that is earlier.
fn seconds_between(from: Duration, to: Duration) -> f64 {
    match to.checked_sub(from) {
        Some(later) => later.as_secs_f64(),
        None => -(from - to).as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_takes_for_ever_counts_the_most_there_is_and_nothing_counts_nothing() {
        let mut urgency = Urgency::new(Duration::from_millis(1), 100.0);
        let now = Duration::from_secs(3);
        urgency.arrived(Duration::ZERO);
        urgency.arrived(now);
        urgency.settle(now);
        assert_eq!(urgency.after(now, 0.0, 0), MOST);
        let after = |gone| urgency.after(now, 1e9, gone);
        assert_eq!([0, 1, 2].map(after), [2.0 * MOST, MOST, 0.0]);
    }

    proptest! {
        /// The sum is what a look at every request finds.
        #[test]
        fn it_agrees_with_the_definition(
            sharpness in 0.5..12.0f64,
            steps in proptest::collection::vec((0..40u64, 0..3usize, 0..6usize, 0..30u64), 1..120),
        ) {
            let slo = Duration::from_millis(50);
            let mut urgency = Urgency::new(slo, sharpness);
            let (mut waiting, mut now) = (VecDeque::new(), Duration::ZERO);
            for (pause, come, go, ahead) in steps {
                now += Duration::from_millis(pause);
                for _ in 0..come {
                    urgency.arrived(now);
                    waiting.push_back(now);
                }
                urgency.settle(now);
                let (go, ahead) = (go.min(waiting.len()), ahead as f64 / 1e3);
                let counts = |at: &Duration| {
                    let waited = (now - *at).as_secs_f64() + ahead;
                    (sharpness * (waited / slo.as_secs_f64() - 1.0)).exp().min(MOST)
                };
                let expected: f64 = waiting.iter().skip(go).map(counts).sum();
                let found = urgency.after(now, ahead, go);
                // What is taken out of the sum leaves the rounding of what was largest in it.
                prop_assert!((found - expected).abs() <= 1e-6 * expected + 1e-7, "{found} {expected}");
                urgency.left(go);
                waiting.drain(..go);
            }
        }
    }
}
