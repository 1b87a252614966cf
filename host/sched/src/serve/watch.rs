use std::time::Duration;

/// The weight of the latest run in the moving mean.
const LATEST: f64 = 0.1;

/// Runs before anything is said of them.
const LEAST_RUNS: u32 = 16;

/// Times the least wait that a model waits at most, however often measuring it again changed nothing.
const MOST_WAITS: u32 = 64;

/// How far a model may drift from what was measured, and how often it is measured again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchTuning {
    /// How many times slower or faster than measured its runs may become. Above 1. Default 1.5.
    pub drift: f64,
    /// The least time from one measurement to the next. Each that changes nothing doubles it, up to 64 times as long. Default 1 min.
    pub every: Duration,
}

/// Whether a model still runs as fast where it does as when that place was chosen: measured once, a choice between two devices stays
/// right only as long as neither of them gets other work, or hot.
///
/// It is told of each run, and keeps the moving (geometric) mean of measured over expected. Who asks it tells the time since some start.
///
/// ```
/// use karman_sched::serve::{Watch, WatchTuning};
/// use std::time::Duration;
///
/// let (ms, second) = (Duration::from_millis, Duration::from_secs);
/// let mut watch = Watch::new(WatchTuning::default(), second(0), ms(10));
/// // As measured; then another program takes half of the device.
/// assert!((0..100).all(|at| !watch.ran(second(at), ms(10))));
/// let mut later = 100..200;
/// assert!(later.any(|at| watch.ran(second(at), ms(20))));
/// // It is measured again, and has some time before it may be once more.
/// let watch = watch.again(second(200), ms(20), true);
/// assert_eq!(watch.wait(), second(120));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watch {
    tuning: WatchTuning,
    expected: Duration,
    /// The natural logarithm of measured over expected.
    drift: f64,
    runs: u32,
    /// When it was measured, or had to be.
    measured: Duration,
    wait: Duration,
}

impl Default for WatchTuning {
    fn default() -> Self {
        Self {
            drift: 1.5,
            every: Duration::from_secs(60),
        }
    }
}

impl Watch {
    /// Watches a model that was measured now to run so long.
    pub const fn new(tuning: WatchTuning, now: Duration, expected: Duration) -> Self {
        Self {
            tuning,
            expected,
            drift: 0.0,
            runs: 0,
            measured: now,
            wait: tuning.every,
        }
    }

    /// A run took so long: whether it is time to measure again. Said once, it is not said again before the next wait is over, whatever
    /// becomes of the measurement.
    pub fn ran(&mut self, now: Duration, took: Duration) -> bool {
        let seconds = |time: Duration| time.as_secs_f64().max(1e-9);
        // A clock that jumped must not spoil the mean for good.
        let ratio = (seconds(took) / seconds(self.expected)).clamp(1e-3, 1e3);
        self.drift += LATEST * (ratio.ln() - self.drift);
        self.runs = self.runs.saturating_add(1);
        let is_due = self.runs >= LEAST_RUNS
            && self.drift.abs() > self.tuning.drift.max(1.0).ln()
            && now >= self.measured.saturating_add(self.wait);
        if is_due {
            self.measured = now;
            self.wait = self.longer();
            self.runs = 0;
        }
        is_due
    }

    /// It was measured again now, to run so long where it runs from now on; whether that is where it ran before.
    pub fn again(&self, now: Duration, expected: Duration, stays: bool) -> Self {
        let first = Self::new(self.tuning, now, expected);
        // What `ran` has said has doubled the wait already.
        match stays {
            true => Self {
                wait: self.wait.max(self.tuning.every),
                ..first
            },
            false => first,
        }
    }

    /// Measured over expected, as it is now.
    pub fn ratio(&self) -> f64 {
        self.drift.exp()
    }

    /// For how long after a measurement there is none.
    pub const fn wait(&self) -> Duration {
        self.wait
    }

    fn longer(&self) -> Duration {
        let most = self.tuning.every.saturating_mul(MOST_WAITS);
        self.wait.saturating_mul(2).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);
    const S: Duration = Duration::from_secs(1);

    fn watch() -> Watch {
        Watch::new(WatchTuning::default(), Duration::ZERO, 10 * MS)
    }

    #[test]
    fn one_run_that_takes_long_says_nothing() {
        let mut watch = watch();
        for at in 0..1000 {
            let took = if at % 100 == 50 { 100 * MS } else { 10 * MS };
            assert!(!watch.ran(at * S, took), "{at}");
        }
        assert!(watch.ratio() < 1.1, "{}", watch.ratio());
    }

    #[test]
    fn it_is_measured_again_where_it_has_become_slower_or_faster() {
        for (took, drifts) in [(10, false), (14, false), (16, true), (6, true), (8, false)] {
            let mut watch = watch();
            let said = (0..500).any(|at| watch.ran(at * S, took * MS));
            assert_eq!(said, drifts, "{took} ms");
        }
    }

    #[test]
    fn few_runs_say_nothing_and_neither_do_many_right_after_a_measurement() {
        let mut few = watch();
        assert!((0..15).all(|_| !few.ran(1000 * S, 50 * MS)));
        assert!(few.ran(1000 * S, 50 * MS));
        let mut early = watch();
        assert!((0..1000).all(|_| !early.ran(59 * S, 50 * MS)));
        assert!(early.ran(60 * S, 50 * MS));
    }

    #[test]
    fn what_changes_nothing_is_done_less_and_less_often() {
        let mut watch = watch();
        let (mut now, mut waits) = (Duration::ZERO, Vec::new());
        for _ in 0..9 {
            let from = now;
            while !watch.ran(now, 50 * MS) {
                now += S;
            }
            waits.push((now - from).as_secs());
            watch = watch.again(now, 10 * MS, true);
        }
        assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3840, 3840, 3840]);
        assert_eq!(watch.again(now, 10 * MS, false).wait(), 60 * S);
    }

    proptest! {
        /// Whatever runs take, no two measurements are asked for within the least time.
        #[test]
        fn it_is_never_asked_for_too_often(runs in prop::collection::vec((0u32..40, 0u32..1000), 0..400)) {
            let (mut watch, mut now, mut last) = (watch(), Duration::ZERO, Duration::ZERO);
            for (later, took) in runs {
                now += later * S;
                if watch.ran(now, took * MS) {
                    prop_assert!(now - last >= 60 * S);
                    last = now;
                }
            }
        }
    }
}
