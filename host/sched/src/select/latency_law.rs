use karman_types::Profile;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

/// How long the calls of a candidate take, from three quantiles of its profile: log-normal through p50 and p95, above p95 a
/// Pareto tail through p99. Milliseconds.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct LatencyLaw {
    p50: f64,
    p95: f64,
    /// Of the logarithm, below p95; 0 where p95 is p50.
    deviation: f64,
    /// Of the tail; infinite where p99 is p95, and nothing is above.
    tail: f64,
}

/// The share of calls above p95.
const TAIL_SHARE: f64 = 0.05;
/// The 95th percentile of the standard normal distribution.
const Z95: f64 = 1.644_853_626_951_472_2;

impl LatencyLaw {
    /// The law of a profile.
    pub fn of(profile: &Profile) -> Self {
        let [p50, p95, p99] = [profile.p50, profile.p95, profile.p99].map(|time| time.as_secs_f64() * 1e3);
        Self {
            p50,
            p95,
            deviation: (p95 / p50).ln().max(0.0) / Z95,
            // A fifth of the tail lies above p99.
            tail: match p99 > p95 {
                true => 5f64.ln() / (p99 / p95).ln(),
                false => f64::INFINITY,
            },
        }
    }

    /// The share of calls that take longer than this.
    pub fn share_over(&self, limit: f64) -> f64 {
        if limit >= self.p95 {
            // The infinite tail: 1 to its power is 1, but p95 itself is not above p95.
            return match limit > self.p95 && self.tail.is_infinite() {
                true => 0.0,
                false => TAIL_SHARE * (self.p95 / limit).powf(self.tail),
            };
        }
        if limit <= 0.0 {
            return 1.0;
        }
        match self.deviation > 0.0 {
            true => 1.0 - Normal::standard().cdf((limit / self.p50).ln() / self.deviation),
            false => 1.0,
        }
    }

    /// The latency below which this share of calls lies, from 0 to 1 without either end.
    pub fn quantile(&self, share: f64) -> f64 {
        let share = share.clamp(1e-9, 1.0 - 1e-9);
        if share > 1.0 - TAIL_SHARE {
            return self.p95 * (TAIL_SHARE / (1.0 - share)).powf(1.0 / self.tail);
        }
        self.p50 * (self.deviation * Normal::standard().inverse_cdf(share)).exp()
    }

    /// Its mean; infinite where the tail has none. It may differ from the profile's: three quantiles do not say all.
    pub fn mean(&self) -> f64 {
        let body = self.p50
            * (self.deviation * self.deviation / 2.0).exp()
            * Normal::standard().cdf(Z95 - self.deviation);
        let tail = match self.tail {
            tail if tail.is_infinite() => self.p95,
            tail if tail > 1.0 => self.p95 * tail / (tail - 1.0),
            _ => f64::INFINITY,
        };
        body + TAIL_SHARE * tail
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::testing::{candidate, millis};
    use proptest::prelude::*;

    #[test]
    fn it_goes_through_its_quantiles() {
        let law = LatencyLaw::of(&candidate("m", 0.9, 200.0, 0.0).profile);
        for (limit, share) in [(100.0, 0.5), (200.0, 0.05), (300.0, 0.01)] {
            assert!((law.share_over(limit) - share).abs() < 1e-9, "{limit}");
            assert!((law.quantile(1.0 - share) - limit).abs() < 1e-6, "{share}");
        }
    }

    #[test]
    fn its_mean_is_that_of_its_draws() {
        let law = LatencyLaw::of(&candidate("m", 0.9, 200.0, 0.0).profile);
        let steps = 200_000;
        let mean = (0..steps)
            .map(|n| law.quantile((f64::from(n) + 0.5) / f64::from(steps)))
            .sum::<f64>();
        assert!((mean / f64::from(steps) / law.mean() - 1.0).abs() < 1e-3);
    }

    #[test]
    fn a_constant_is_a_law_too() {
        let mut profile = candidate("m", 0.9, 200.0, 0.0).profile;
        profile.p50 = millis(200.0);
        profile.p99 = millis(200.0);
        let law = LatencyLaw::of(&profile);
        assert_eq!((law.share_over(199.0), law.share_over(201.0)), (1.0, 0.0));
        assert_eq!((law.quantile(0.3), law.quantile(0.99)), (200.0, 200.0));
        assert!((law.mean() - 200.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn longer_limits_are_passed_by_fewer(p50 in 1.0f64..1e3, up in 1.0f64..5.0, on in 1.0f64..5.0, limit in 0.0f64..1e4) {
            let mut profile = candidate("m", 0.9, 200.0, 0.0).profile;
            (profile.p50, profile.p95, profile.p99) = (millis(p50), millis(p50 * up), millis(p50 * up * on));
            let law = LatencyLaw::of(&profile);
            let (near, far) = (law.share_over(limit), law.share_over(limit * 1.1));
            prop_assert!((0.0..=1.0).contains(&near) && far <= near, "{near} {far}");
        }
    }
}
