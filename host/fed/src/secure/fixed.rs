use super::ring::Ring;
use serde::{Deserialize, Serialize};

/// Numbers as elements of a ring, so that sums of them are exact and in any order the same.
///
/// A client's vector is its numbers times its weight, and the weight itself as a last element. What comes out of a sum is the
/// weighted mean and the weights' sum. Numbers are clipped to ±`clip` and rounded to the nearest multiple of 2^-`fraction`.
///
/// ```
/// use karman_fed::secure::{FixedPoint, Ring};
///
/// let fixed = FixedPoint::new(Ring::BITS_32, 16, 8.0, 10, 100)?;
/// let mut sum = fixed.encode(&[0.5, -1.0], 1)?;
/// for (element, other) in sum.iter_mut().zip(fixed.encode(&[0.25, 3.0], 3)?) {
///     *element = Ring::BITS_32.wrap(element.wrapping_add(other));
/// }
/// let mean = fixed.decode(&sum)?;
/// assert_eq!((mean.values, mean.weight), (vec![0.3125, 2.0], 4));
/// # Ok::<(), karman_fed::secure::FixedPointError>(())
/// ```
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", try_from = "Unchecked")]
pub struct FixedPoint {
    ring: Ring,
    fraction: u32,
    clip: f64,
    weight: u32,
    clients: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Unchecked {
    ring: Ring,
    fraction: u32,
    clip: f64,
    weight: u32,
    clients: u32,
}

impl TryFrom<Unchecked> for FixedPoint {
    type Error = FixedPointError;

    fn try_from(from: Unchecked) -> Result<Self, FixedPointError> {
        Self::new(from.ring, from.fraction, from.clip, from.weight, from.clients)
    }
}

/// The weighted mean that a sum stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedMean {
    /// The mean of each number.
    pub values: Vec<f64>,
    /// The sum of the weights.
    pub weight: u64,
}

/// A number that has no fixed-point form, or a form that sums do not fit into.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FixedPointError {
    /// Nothing to clip to.
    #[error("numbers are clipped to a positive finite bound, not {0}")]
    Clip(f64),
    /// No weight, or no client.
    #[error("the largest weight and the number of clients are at least 1")]
    Zero,
    /// A sum would wrap around.
    #[error(
        "a sum of {clients} clients of weight {weight} with numbers up to {clip} at 2^-{fraction} \
         does not fit {bits} bits"
    )]
    TooWide {
        /// Clients.
        clients: u32,
        /// The largest weight of each.
        weight: u32,
        /// The largest number.
        clip: f64,
        /// Bits after the point.
        fraction: u32,
        /// Bits of the ring.
        bits: u32,
    },
    /// A number that is none.
    #[error("number {place} is {number}")]
    NotFinite {
        /// Which.
        place: usize,
        /// What it is.
        number: f32,
    },
    /// A weight beyond what was agreed on.
    #[error("a weight is from 1 to {most}, not {weight}")]
    Weight {
        /// The weight.
        weight: u32,
        /// The largest.
        most: u32,
    },
    /// A sum without weight, or of more weight than all clients have.
    #[error("the weights' sum is {0}")]
    Sum(i64),
    /// A sum of nothing.
    #[error("a sum has a weight and at least one number")]
    Empty,
}

impl FixedPoint {
    /// Numbers up to `clip`, with `fraction` bits after the point, from at most `clients` clients of at most `weight` each.
    ///
    /// # Errors
    ///
    /// A sum could wrap around, or a bound is none.
    pub fn new(
        ring: Ring,
        fraction: u32,
        clip: f64,
        weight: u32,
        clients: u32,
    ) -> Result<Self, FixedPointError> {
        if !clip.is_finite() || clip <= 0.0 {
            return Err(FixedPointError::Clip(clip));
        }
        if weight == 0 || clients == 0 {
            return Err(FixedPointError::Zero);
        }
        let bits = ring.bits();
        let weights = f64::from(weight) * f64::from(clients);
        let largest = (clip * f64::from(fraction).exp2()).ceil() * weights;
        if largest.max(weights) >= f64::from(bits - 1).exp2() || fraction > 52 {
            return Err(FixedPointError::TooWide {
                clients,
                weight,
                clip,
                fraction,
                bits,
            });
        }
        Ok(Self {
            ring,
            fraction,
            clip,
            weight,
            clients,
        })
    }

    /// The elements of a vector of so many numbers: one more, for the weight.
    pub const fn length(&self, numbers: usize) -> usize {
        numbers + 1
    }

    /// A client's numbers as elements.
    ///
    /// # Errors
    ///
    /// A number is not finite, or the weight is beyond what was agreed on.
    pub fn encode(&self, numbers: &[f32], weight: u32) -> Result<Vec<u64>, FixedPointError> {
        if !(1..=self.weight).contains(&weight) {
            return Err(FixedPointError::Weight {
                weight,
                most: self.weight,
            });
        }
        let scale = f64::from(self.fraction).exp2();
        let element = |(place, number): (usize, &f32)| match number.is_finite() {
            true => {
                let clipped = f64::from(*number).clamp(-self.clip, self.clip);
                let fixed = (clipped * scale).round_ties_even() as i64 * i64::from(weight);
                Ok(self.ring.wrap(fixed as u64))
            }
            false => Err(FixedPointError::NotFinite {
                place,
                number: *number,
            }),
        };
        let mut elements: Vec<_> = numbers
            .iter()
            .enumerate()
            .map(element)
            .collect::<Result<_, _>>()?;
        elements.push(u64::from(weight));
        Ok(elements)
    }

    /// The weighted mean that a sum stands for.
    ///
    /// # Errors
    ///
    /// The sum of the weights is impossible: somebody's vector was not an encoded one.
    pub fn decode(&self, sum: &[u64]) -> Result<WeightedMean, FixedPointError> {
        let Some((weight, numbers @ [_, ..])) = sum.split_last() else {
            return Err(FixedPointError::Empty);
        };
        let weight = self.ring.centred(*weight);
        if !(1..=i64::from(self.weight) * i64::from(self.clients)).contains(&weight) {
            return Err(FixedPointError::Sum(weight));
        }
        let scale = f64::from(self.fraction).exp2() * weight as f64;
        let value = |element: &u64| self.ring.centred(*element) as f64 / scale;
        Ok(WeightedMean {
            values: numbers.iter().map(value).collect(),
            weight: weight as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_mean_is_within_half_a_unit(
            clients in prop::collection::vec((prop::collection::vec(-9.0_f32..9.0, 3), 1_u32..50), 1..20),
        ) {
            let fixed = FixedPoint::new(Ring::BITS_32, 16, 8.0, 50, 20).unwrap();
            let mut sum = vec![0_u64; 4];
            for (numbers, weight) in &clients {
                for (element, other) in sum.iter_mut().zip(fixed.encode(numbers, *weight).unwrap()) {
                    *element = element.wrapping_add(other);
                }
            }
            let sum: Vec<_> = sum.into_iter().map(|element| Ring::BITS_32.wrap(element)).collect();
            let mean = fixed.decode(&sum).unwrap();
            let weights: f64 = clients.iter().map(|(_, weight)| f64::from(*weight)).sum();
            for place in 0..3 {
                let exact: f64 = clients
                    .iter()
                    .map(|(numbers, weight)| f64::from(numbers[place].clamp(-8.0, 8.0)) * f64::from(*weight))
                    .sum();
                prop_assert!((mean.values[place] - exact / weights).abs() <= 0.5 / 65_536.0);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let wide = FixedPoint::new(Ring::BITS_32, 22, 8.0, 1_000, 100);
        assert!(matches!(wide, Err(FixedPointError::TooWide { bits: 32, .. })));
        assert!(FixedPoint::new(Ring::BITS_64, 22, 8.0, 1_000, 100).is_ok());
        assert!(matches!(
            FixedPoint::new(Ring::BITS_32, 8, f64::NAN, 1, 1),
            Err(FixedPointError::Clip(_))
        ));
        assert_eq!(
            FixedPoint::new(Ring::BITS_32, 8, 1.0, 1, 0),
            Err(FixedPointError::Zero)
        );

        let fixed = FixedPoint::new(Ring::BITS_32, 8, 1.0, 10, 10).unwrap();
        let nan = fixed.encode(&[0.0, f32::NAN], 1);
        assert!(matches!(nan, Err(FixedPointError::NotFinite { place: 1, .. })));
        assert_eq!(
            fixed.encode(&[0.0], 11),
            Err(FixedPointError::Weight { weight: 11, most: 10 })
        );
        assert_eq!(fixed.decode(&[0, 101]), Err(FixedPointError::Sum(101)));
        assert_eq!(fixed.decode(&[0, 0]), Err(FixedPointError::Sum(0)));
        assert_eq!(fixed.decode(&[1]), Err(FixedPointError::Empty));
    }
}
