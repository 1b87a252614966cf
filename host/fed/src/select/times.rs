use super::{Candidate, quantile};

/// How long clients take that were never asked, by those that were: a line through the logarithms of their samples and seconds.
///
/// Clients with twice the data take twice as long, if all else is equal. Where it is not, because those with most data have the best
/// machines or the worst, the line turns with what was measured.
pub(super) struct Times {
    /// Means of the logarithms of samples and seconds.
    middle: (f64, f64),
    slope: f64,
    /// What is added, so that no more than the others lie above it.
    above: f64,
}

/// The line starts out as straight as if one client had been measured that lies on it, this far from the middle.
const BELIEF: f64 = 1.0;
/// Nobody is taken to be faster for having more data, nor slower than by its cube.
const SLOPES: (f64, f64) = (0.0, 3.0);

impl Times {
    /// From those whose time is known; nothing where there are none. This share of them takes no longer than the line says.
    pub(super) fn learnt(candidates: &[Candidate], share: f64) -> Option<Self> {
        let point = |it: &Candidate| Some((samples(it), it.seconds?.max(1e-3).ln()));
        let points: Vec<(f64, f64)> = candidates.iter().filter_map(point).collect();
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let middle = (mean(|point| point.0), mean(|point| point.1));
        let from_middle = || points.iter().map(|(x, y)| (x - middle.0, y - middle.1));
        let spread: f64 = from_middle().map(|(x, _)| x * x).sum();
        let together: f64 = from_middle().map(|(x, y)| x * y).sum();
        let slope = ((together + BELIEF) / (spread + BELIEF)).clamp(SLOPES.0, SLOPES.1);
        let above = quantile(from_middle().map(|(x, y)| y - slope * x), share)?;
        Some(Self { middle, slope, above })
    }

    /// What was measured of it, or else what is to be expected, in seconds.
    pub(super) fn of(&self, candidate: &Candidate) -> f64 {
        let expected = || self.middle.1 + self.slope * (samples(candidate) - self.middle.0) + self.above;
        candidate.seconds.unwrap_or_else(|| expected().exp())
    }
}

fn samples(candidate: &Candidate) -> f64 {
    (candidate.samples.max(1) as f64).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidate(samples: u64, seconds: Option<f64>) -> Candidate {
        Candidate {
            samples,
            seconds,
            ..Candidate::default()
        }
    }

    #[test]
    fn more_data_take_longer_as_far_as_was_seen() {
        let known = |second| [candidate(10, Some(2.0)), candidate(1000, Some(second))];
        let expected = |second| {
            Times::learnt(&known(second), 0.5)
                .unwrap()
                .of(&candidate(100, None))
        };
        assert!(Times::learnt(&[candidate(10, None)], 0.5).is_none());
        // In proportion; and where those with most data are the fastest, all alike.
        assert!((expected(200.0) - 20.0).abs() < 0.5, "{}", expected(200.0));
        assert!(expected(0.2) < 2.1, "{}", expected(0.2));
        let times = Times::learnt(&known(200.0), 0.5).unwrap();
        assert_eq!(times.of(&candidate(1000, Some(7.0))), 7.0, "measured");
    }

    proptest! {
        #[test]
        fn the_share_takes_no_longer_than_expected(
            all in prop::collection::vec((1u64..1000, 0.01..100.0f64), 1..40), share in 0.0..=1.0f64,
        ) {
            let known: Vec<Candidate> = all.iter().map(|(samples, seconds)| candidate(*samples, Some(*seconds))).collect();
            let times = Times::learnt(&known, share).unwrap();
            let within = all.iter().filter(|(samples, seconds)| {
                *seconds <= times.of(&candidate(*samples, None)) * (1.0 + 1e-9)
            });
            prop_assert!(within.count() as f64 >= (share * (all.len() - 1) as f64).round());
        }
    }
}
