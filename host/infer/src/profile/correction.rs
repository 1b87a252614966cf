use serde::{Deserialize, Serialize};

/// How much slower (above 1) or faster a machine runs than its profile says: heat, load, another clock. A moving mean of
/// measured over predicted, in which the latest counts a fifth.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Correction {
    ratio: f64,
}

/// A time that is none.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{which} is {seconds} s: it must be above 0 and finite")]
pub struct CorrectionError {
    /// Which of the two.
    pub which: &'static str,
    /// As given.
    pub seconds: f64,
}

impl Default for Correction {
    fn default() -> Self {
        Self { ratio: 1.0 }
    }
}

impl Correction {
    /// The weight of the latest observation.
    pub const LATEST: f64 = 0.2;

    /// Notes how long something took that the profile, uncorrected, says takes `predicted` seconds. What moved a thousandfold
    /// is counted as a thousandfold: a clock that jumped must not spoil the mean for good.
    ///
    /// # Errors
    /// [`CorrectionError`]; nothing changes then.
    pub fn observe(&mut self, measured: f64, predicted: f64) -> Result<(), CorrectionError> {
        for (which, seconds) in [("the measured time", measured), ("the predicted time", predicted)] {
            if !(seconds.is_finite() && seconds > 0.0) {
                return Err(CorrectionError { which, seconds });
            }
        }
        let ratio = (measured / predicted).clamp(1e-3, 1e3);
        self.ratio += Self::LATEST * (ratio - self.ratio);
        Ok(())
    }

    /// Measured over predicted, as it is now.
    pub fn ratio(self) -> f64 {
        self.ratio
    }

    /// A time of the profile as it would be now, in the same unit.
    pub fn apply(self, predicted: f64) -> f64 {
        predicted * self.ratio
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A machine that stays `ratio` times slower is soon known to be, whatever was seen before.
        #[test]
        fn it_finds_the_ratio(before in 0.01f64..100.0, ratio in 0.01f64..100.0, predicted in 1e-6f64..10.0) {
            let mut correction = Correction::default();
            correction.observe(before, 1.0).unwrap();
            for _ in 0..100 {
                correction.observe(ratio * predicted, predicted).unwrap();
            }
            prop_assert!((correction.ratio() / ratio - 1.0).abs() < 1e-3);
            prop_assert!((correction.apply(2.0) - 2.0 * correction.ratio()).abs() < 1e-9);
        }
    }

    #[test]
    fn times_that_are_none_change_nothing() {
        let mut correction = Correction::default();
        for (measured, predicted) in [
            (0.0, 1.0),
            (-1.0, 1.0),
            (f64::NAN, 1.0),
            (1.0, f64::INFINITY),
            (1.0, 0.0),
        ] {
            assert!(correction.observe(measured, predicted).is_err());
        }
        assert_eq!(correction, Correction::default());
    }
}
