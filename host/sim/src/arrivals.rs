use crate::{Instant, Sampler};

/// When requests come: a renewal process whose rate changes at given instants.
///
/// Gaps are drawn for a rate of one and stretched by the rate in between, so a change of the rate acts at once, and whatever
/// the [`Shape`](crate::Shape) of the gaps, the expected number of arrivals is the integral of the rate. Exponential gaps give a
/// Poisson process.
#[derive(Clone, Debug)]
pub struct Arrivals {
    gaps: Sampler,
    /// From when on, how many in a second; by time.
    steps: Vec<(Instant, f64)>,
}

/// Rates that are none.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrivalsError {
    /// Not a number of arrivals.
    #[error("a rate of arrivals is {0} each second, but must be a number from 0 to {most:e}", most = Arrivals::MAX_RATE)]
    Rate(f64),
    /// The steps are not in order, or do not begin at the start.
    #[error(
        "the rates of arrivals must begin at the start and then change ever later, but one is set at {0}"
    )]
    Order(Instant),
}

impl Arrivals {
    /// The most arrivals in a second: one each nanosecond.
    pub const MAX_RATE: f64 = 1e9;

    /// This many in a second on average, all the time.
    ///
    /// # Errors
    /// [`ArrivalsError::Rate`].
    pub fn new(per_second: f64, gaps: Sampler) -> Result<Self, ArrivalsError> {
        Self::varying(vec![(Instant::START, per_second)], gaps)
    }

    /// This many in a second from each of these instants on; the first is the start.
    ///
    /// # Errors
    /// [`ArrivalsError`] names what does not fit.
    pub fn varying(steps: Vec<(Instant, f64)>, gaps: Sampler) -> Result<Self, ArrivalsError> {
        let first = steps.first().map_or(Instant::MAX, |(at, _)| *at);
        if first != Instant::START {
            return Err(ArrivalsError::Order(first));
        }
        if let Some(pair) = steps.windows(2).find(|pair| pair[1].0 <= pair[0].0) {
            return Err(ArrivalsError::Order(pair[1].0));
        }
        match steps
            .iter()
            .find(|(_, rate)| !(0.0..=Self::MAX_RATE).contains(rate))
        {
            Some((_, rate)) => Err(ArrivalsError::Rate(*rate)),
            None => Ok(Self { gaps, steps }),
        }
    }

    /// When the next one comes after one at this instant; nothing when no more come.
    pub fn next(&self, now: Instant, random: &mut fastrand::Rng) -> Option<Instant> {
        let mut gap = self.gaps.draw(random);
        let mut step = self.steps.partition_point(|(at, _)| *at <= now) - 1;
        let mut from = now;
        loop {
            let (rate, until) = (self.steps[step].1, self.steps.get(step + 1).map(|(at, _)| *at));
            let Some(until) = until else {
                return (rate > 0.0).then(|| from + crate::seconds(gap / rate));
            };
            let expected = rate * until.since(from).as_secs_f64();
            if rate > 0.0 && gap <= expected {
                return Some(from + crate::seconds(gap / rate));
            }
            gap -= expected;
            from = until;
            step += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;

    fn count(arrivals: &Arrivals, from: f64, to: f64) -> usize {
        let mut random = fastrand::Rng::with_seed(3);
        let next = |at: &Instant| arrivals.next(*at, &mut random);
        std::iter::successors(Some(Instant::START), next)
            .skip(1)
            .take_while(|at| *at <= Instant::from_secs_f64(to))
            .filter(|at| *at > Instant::from_secs_f64(from))
            .count()
    }

    #[test]
    fn as_many_come_as_the_rate_says() {
        let at = Instant::from_secs_f64;
        let steps = vec![
            (at(0.0), 100.0),
            (at(100.0), 0.0),
            (at(150.0), 300.0),
            (at(200.0), 0.0),
        ];
        let exact = Arrivals::varying(steps.clone(), Shape::Constant.sampler().unwrap()).unwrap();
        assert_eq!(count(&exact, 0.0, 100.0), 10_000);
        assert_eq!(count(&exact, 100.0, 150.0), 0);
        assert_eq!(count(&exact, 150.0, 1_000.0), 15_000);
        let poisson = Arrivals::varying(steps, Shape::Exponential.sampler().unwrap()).unwrap();
        // Four standard deviations.
        assert!(count(&poisson, 0.0, 100.0).abs_diff(10_000) < 400);
        assert!(count(&poisson, 150.0, 1_000.0).abs_diff(15_000) < 490);
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        let gaps = Shape::Constant.sampler().unwrap();
        for rate in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(Arrivals::new(rate, gaps), Err(ArrivalsError::Rate(_))));
        }
        for steps in [
            vec![],
            vec![(Instant(1), 1.0)],
            vec![(Instant(0), 1.0), (Instant(0), 2.0)],
        ] {
            assert!(matches!(
                Arrivals::varying(steps, gaps),
                Err(ArrivalsError::Order(_))
            ));
        }
        assert_eq!(
            Arrivals::new(0.0, gaps)
                .unwrap()
                .next(Instant(5), &mut fastrand::Rng::with_seed(1)),
            None
        );
    }
}
