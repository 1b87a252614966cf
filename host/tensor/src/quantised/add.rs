use super::{QuantisedError, Range8};
use serde::{Deserialize, Serialize};

/// The factors of a sum of two activations.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Add {
    /// Of 2^20.
    factors: [i32; 2],
    zeros: [i8; 2],
    output: Range8,
}

impl Add {
    const SHIFT: u32 = 20;

    /// Each factor is an input's scale over the output's, less than 1,024; the first input is the layer before.
    ///
    /// # Errors
    /// [`QuantisedError`] when a factor or the bounds are impossible.
    pub fn new(factors: [f64; 2], zeros: [i8; 2], output: Range8) -> Result<Self, QuantisedError> {
        for factor in factors {
            if !(f64::from(1 << Self::SHIFT).recip()..1024.0).contains(&factor) {
                return Err(QuantisedError::Factor { factor });
            }
        }
        Ok(Self {
            factors: factors.map(|factor| (factor * f64::from(1 << Self::SHIFT)).round() as i32),
            zeros,
            output: output.check()?,
        })
    }

    /// Where the values of the output lie.
    pub const fn output(&self) -> Range8 {
        self.output
    }

    /// The sum of two values, rounded once.
    pub(crate) fn sum(&self, one: i8, other: i8) -> i8 {
        let scaled = |at: usize, value: i8| {
            i64::from(i32::from(value) - i32::from(self.zeros[at])) * i64::from(self.factors[at])
        };
        let sum = scaled(0, one) + scaled(1, other);
        self.output.place((sum + (1 << (Self::SHIFT - 1))) >> Self::SHIFT)
    }
}
