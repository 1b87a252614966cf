use super::QuantisedError;
use serde::{Deserialize, Serialize};

/// A factor as an integer and a shift, for integers only: `value * multiplier / 2^shift`, rounded to nearest, halves up.
///
/// It is the fixed-point requantisation of Jacob et al. (2018, arXiv 1712.05877, section 2.2), rounded once.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "(i32, u8)", into = "(i32, u8)")]
pub struct Rescale {
    multiplier: i32,
    shift: u8,
}

impl Rescale {
    /// The nearest to a factor between 2^-31 and 2^30.
    ///
    /// # Errors
    /// [`QuantisedError::Factor`] when it lies outside, or is no number.
    pub fn new(factor: f64) -> Result<Self, QuantisedError> {
        let error = QuantisedError::Factor { factor };
        if !factor.is_finite() || factor <= 0.0 {
            return Err(error);
        }
        // `factor * 2^shift` shall lie between 2^30 and 2^31. Powers of two keep the digits of a float.
        let mut shift = 30 - factor.log2().floor() as i32;
        let mut multiplier = (factor * 2f64.powi(shift)).round();
        if multiplier >= 2f64.powi(31) {
            shift -= 1;
            multiplier = (factor * 2f64.powi(shift)).round();
        }
        if !(1..=61).contains(&shift) {
            return Err(error);
        }
        Ok(Self {
            multiplier: multiplier as i32,
            shift: shift as u8,
        })
    }

    /// From its two numbers, as they travel.
    ///
    /// # Errors
    /// [`QuantisedError::Size`] when the multiplier is not positive or the shift not between 1 and 61.
    pub fn from_parts(multiplier: i32, shift: u8) -> Result<Self, QuantisedError> {
        let positive = usize::try_from(multiplier).unwrap_or(0);
        super::error::size("multiplier", positive, 1, i32::MAX as usize)?;
        super::error::size("shift", shift.into(), 1, 61)?;
        Ok(Self { multiplier, shift })
    }

    /// The multiplier and the shift.
    pub const fn parts(self) -> (i32, u8) {
        (self.multiplier, self.shift)
    }

    /// The rescaled value.
    pub const fn apply(self, value: i32) -> i64 {
        (value as i64 * self.multiplier as i64 + (1 << (self.shift - 1))) >> self.shift
    }
}

impl TryFrom<(i32, u8)> for Rescale {
    type Error = QuantisedError;

    fn try_from((multiplier, shift): (i32, u8)) -> Result<Self, QuantisedError> {
        Self::from_parts(multiplier, shift)
    }
}

impl From<Rescale> for (i32, u8) {
    fn from(rescale: Rescale) -> Self {
        rescale.parts()
    }
}

/// Where the values of an output lie: its zero point, and the bounds that an activation function sets.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Range8 {
    /// What stands for 0.
    pub zero: i8,
    /// The least value: that of 0 for ReLU.
    pub low: i8,
    /// The largest value: that of 6 for ReLU6.
    pub high: i8,
}

impl Range8 {
    /// All 8 bits, around a zero point.
    pub const fn full(zero: i8) -> Self {
        Self {
            zero,
            low: i8::MIN,
            high: i8::MAX,
        }
    }

    /// From 0 to 6 on all 8 bits.
    pub const RELU6: Self = Self {
        zero: i8::MIN,
        low: i8::MIN,
        high: i8::MAX,
    };

    /// Checks the order of the bounds.
    ///
    /// # Errors
    /// [`QuantisedError::Bounds`] when the lower one is the larger.
    pub const fn check(self) -> Result<Self, QuantisedError> {
        let Self { low, high, .. } = self;
        match low <= high {
            true => Ok(self),
            false => Err(QuantisedError::Bounds { low, high }),
        }
    }

    /// A value counted from the zero point, brought into the bounds. `low <= high` was checked.
    pub(super) fn place(self, value: i64) -> i8 {
        let value = value + i64::from(self.zero);
        value.max(self.low.into()).min(self.high.into()) as i8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_rounds_like_the_real_product(factor in 1e-9f64..1e3, value in any::<i32>()) {
            let rescale = Rescale::new(factor).unwrap();
            let exact = factor * f64::from(value);
            // The multiplier has 31 bits, the rounding half a unit.
            let bound = 0.5 + exact.abs() * 2f64.powi(-30);
            prop_assert!((rescale.apply(value) as f64 - exact).abs() <= bound, "{rescale:?}");
        }
    }

    #[test]
    fn factors_out_of_reach_are_refused() {
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-10, 2e9] {
            assert!(Rescale::new(factor).is_err(), "{factor}");
        }
        assert_eq!(Rescale::new(0.5).unwrap().apply(3), 2);
        assert_eq!(Rescale::new(0.5).unwrap().apply(-3), -1);
        assert!(Rescale::from_parts(-1, 3).is_err() && Rescale::from_parts(1, 62).is_err());
    }
}
