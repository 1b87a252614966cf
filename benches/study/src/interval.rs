//! Intervals by the bootstrap: of 95 % where nothing else is said.

const RESAMPLES: usize = 2_000;
/// Per mille of resamples between the ends of an interval.
const USUAL: usize = 950;

/// A value with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Estimate {
    /// The statistic of what was measured.
    pub value: f64,
    /// Where the interval begins.
    pub lo: f64,
    /// Where it ends.
    pub hi: f64,
}

impl Estimate {
    /// A value that has no interval: it was counted or computed, not sampled.
    pub const fn exact(value: f64) -> Self {
        Self {
            value,
            lo: value,
            hi: value,
        }
    }
}

/// The mean: no number for no values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// A statistic of the items and its percentile interval over 2,000 resamples of them with a fixed seed. Items are what was
/// drawn independently: paired blocks or paired seeds, not the requests in them.
pub fn bootstrap<T: Clone>(items: &[T], statistic: impl Fn(&[T]) -> f64) -> Estimate {
    resampled(items, statistic, USUAL)
}

/// [`bootstrap`] with the interval of 90 %: two one-sided tests at 5 % find two things equal within a bound where both of its
/// ends are.
pub fn bootstrap_for_equality<T: Clone>(items: &[T], statistic: impl Fn(&[T]) -> f64) -> Estimate {
    resampled(items, statistic, 900)
}

fn resampled<T: Clone>(items: &[T], statistic: impl Fn(&[T]) -> f64, within: usize) -> Estimate {
    let mut random = fastrand::Rng::with_seed(7);
    let mut resampled = items.to_vec();
    let mut values: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            for place in &mut resampled {
                *place = items[random.usize(..items.len())].clone();
            }
            statistic(&resampled)
        })
        .collect();
    values.sort_by(f64::total_cmp);
    Estimate {
        value: statistic(items),
        lo: values[RESAMPLES * ((1000 - within) / 2) / 1000],
        hi: values[RESAMPLES * ((1000 + within) / 2) / 1000],
    }
}
