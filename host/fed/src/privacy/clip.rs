use serde::{Deserialize, Serialize};

/// The norm (L2) that an update is clipped to.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Bound(f64);

/// An update that was clipped: integers of which [`Bound::UNITS`] make the bound.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Clipped {
    /// The update; its norm is at most [`Bound::UNITS`], exactly.
    pub units: Vec<i32>,
    /// Whether it was within the bound before.
    pub within: bool,
}

/// What cannot be clipped.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClipError {
    /// A bound that is none.
    #[error("an update's norm is bounded by a positive finite number, not {0}")]
    Bound(f64),
    /// A number that is none.
    #[error("number {place} of an update is {number}")]
    NotFinite {
        /// Which.
        place: usize,
        /// What it is.
        number: f32,
    },
    /// A message that claims to be clipped and is not.
    #[error("an update of norm {norm} units came instead of one of at most {most}", most = Bound::UNITS)]
    TooLong {
        /// Its norm, rounded down.
        norm: u128,
    },
}

impl Bound {
    /// What the bound is in an update's integers. Noise is many thousands of them: that they are integers costs no accuracy.
    pub const UNITS: u32 = 1 << 18;

    /// A bound.
    ///
    /// # Errors
    ///
    /// It is not positive and finite.
    pub fn new(norm: f64) -> Result<Self, ClipError> {
        match norm.is_normal() && norm > 0.0 {
            true => Ok(Self(norm)),
            false => Err(ClipError::Bound(norm)),
        }
    }

    /// As a number.
    pub const fn norm(self) -> f64 {
        self.0
    }

    /// What one unit stands for.
    pub fn unit(self) -> f64 {
        self.0 / f64::from(Self::UNITS)
    }

    /// Scales an update down to the bound where it is longer, and rounds it towards zero, which makes nothing longer.
    ///
    /// # Errors
    ///
    /// A number is not finite.
    pub fn clip(self, update: &[f32]) -> Result<Clipped, ClipError> {
        if let Some(place) = update.iter().position(|number| !number.is_finite()) {
            return Err(ClipError::NotFinite {
                place,
                number: update[place],
            });
        }
        let norm = update
            .iter()
            .map(|number| f64::from(*number).powi(2))
            .sum::<f64>()
            .sqrt();
        let scale = (self.0 / norm).min(1.0) / self.unit();
        let mut units: Vec<_> = update
            .iter()
            .map(|number| (f64::from(*number) * scale) as i32)
            .collect();
        // Floating point may have let it be a hair too long.
        while norm_squared(&units) > u128::from(Self::UNITS).pow(2) {
            units.iter_mut().for_each(|unit| *unit -= unit.signum());
        }
        Ok(Clipped {
            units,
            within: norm <= self.0,
        })
    }
}

impl Clipped {
    /// That it keeps to the bound: it may have come from elsewhere.
    ///
    /// # Errors
    ///
    /// It does not.
    pub fn check(&self) -> Result<(), ClipError> {
        let squared = norm_squared(&self.units);
        match squared <= u128::from(Bound::UNITS).pow(2) {
            true => Ok(()),
            false => Err(ClipError::TooLong {
                norm: squared.isqrt(),
            }),
        }
    }
}

fn norm_squared(units: &[i32]) -> u128 {
    units
        .iter()
        .map(|unit| u128::from(unit.unsigned_abs()).pow(2))
        .sum()
}

impl TryFrom<f64> for Bound {
    type Error = ClipError;

    fn try_from(norm: f64) -> Result<Self, ClipError> {
        Self::new(norm)
    }
}

impl From<Bound> for f64 {
    fn from(bound: Bound) -> Self {
        bound.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_longer_than_the_bound_and_short_updates_stay(
            update in prop::collection::vec(-1e6_f32..1e6, 1..40), norm in 1e-3_f64..1e7,
        ) {
            let bound = Bound::new(norm).unwrap();
            let clipped = bound.clip(&update).unwrap();
            prop_assert_eq!(clipped.check(), Ok(()));
            if clipped.within {
                for (unit, number) in clipped.units.iter().zip(&update) {
                    prop_assert!((f64::from(*unit) * bound.unit() - f64::from(*number)).abs() <= 3.0 * bound.unit());
                }
            }
        }
    }

    #[test]
    fn long_updates_keep_their_direction() {
        let clipped = Bound::new(1.0).unwrap().clip(&[30.0, -40.0]).unwrap();
        assert!(!clipped.within);
        let expected = [0.6, -0.8].map(|share| (share * f64::from(Bound::UNITS)) as i32);
        for (unit, expected) in clipped.units.iter().zip(expected) {
            assert!((unit - expected).abs() <= 1, "{clipped:?}");
        }
    }

    #[test]
    fn nothing_else_is_clipped() {
        let bound = Bound::new(1.0).unwrap();
        assert!(matches!(
            bound.clip(&[1.0, f32::NAN]),
            Err(ClipError::NotFinite { place: 1, .. })
        ));
        assert!(bound.clip(&[]).unwrap().units.is_empty());
        assert_eq!(bound.clip(&[0.0]).unwrap().units, [0]);
        for norm in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            assert!(Bound::new(norm).is_err());
        }
        let lie = Clipped {
            units: vec![i32::MIN, 0],
            within: true,
        };
        assert_eq!(lie.check(), Err(ClipError::TooLong { norm: 1 << 31 }));
    }
}
