use serde::{Deserialize, Serialize};

/// The grid of a fixed-point sum: multiples of 2^-shift, chosen so that no sum can overflow.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Grid {
    shift: i32,
    most_terms: u32,
}

/// Bounds for which there is no grid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "there is no fixed-point grid for {terms} terms of up to {largest}: both must be positive and finite"
)]
pub struct GridError {
    /// The largest magnitude of one term.
    pub largest: f64,
    /// How many there may be.
    pub terms: u32,
}

/// Why arrays cannot be added.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SumError {
    /// More terms than the grid was made for.
    #[error("the sum was made for {most} terms: make its grid for more")]
    Terms {
        /// How many it holds at most.
        most: u32,
    },
    /// An array of another length.
    #[error("an array of {given} numbers cannot be added to a sum of {length}")]
    Length {
        /// What the sum has.
        length: usize,
        /// What the array has.
        given: usize,
    },
    /// A number that this many terms never come to.
    #[error("number {place} of the sum is more than {terms} terms can come to")]
    Range {
        /// Which.
        place: usize,
        /// How many there are said to be.
        terms: u32,
    },
}

/// The bits of one term: adding 1.5 · 2⁵² to a double leaves its nearest whole number in the low bits of the sum.
const TERM_BITS: i32 = 51;
const MAGIC: f64 = (3u64 << 51) as f64;
const LARGEST_TERM: f64 = ((1u64 << TERM_BITS) - 1) as f64;

/// A stretch of the sum that stays in the nearest cache while all terms of a batch are added to it.
const STRETCH: usize = 2048;

impl Grid {
    /// The finest grid on which `terms` terms with magnitudes up to `largest` add up without overflow.
    ///
    /// # Errors
    /// When a bound is zero, negative or not finite.
    pub fn new(largest: f64, terms: u32) -> Result<Self, GridError> {
        if !(largest > 0.0 && largest.is_finite() && terms > 0) {
            return Err(GridError { largest, terms });
        }
        // `largest` lies below 2^magnitude, the number of terms is at most 2^count.
        let magnitude = largest.log2().floor() as i32 + 1;
        let count = u32::BITS as i32 - (terms - 1).leading_zeros() as i32;
        Ok(Self {
            shift: TERM_BITS.min(62 - count) - 1 - magnitude,
            most_terms: terms,
        })
    }

    /// The distance between two neighbours: a term is rounded by half of it at most.
    pub fn step(self) -> f64 {
        // It may be anything where it came from outside.
        2f64.powi(self.shift.saturating_neg())
    }
}

/// One array with the factor it counts by.
#[derive(Clone, Copy, Debug)]
pub struct Term<'a> {
    /// The numbers.
    pub values: &'a [f32],
    /// What each is multiplied by.
    pub factor: f64,
}

/// A sum of arrays in 64-bit fixed point. Whole numbers add up in any order to the same, so two holders that have seen the same terms hold
/// the same bits.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FixedSum {
    grid: Grid,
    terms: u32,
    parts: Vec<i64>,
}

impl FixedSum {
    /// A sum of nothing.
    pub fn new(length: usize, grid: Grid) -> Self {
        Self {
            grid,
            terms: 0,
            parts: vec![0; length],
        }
    }

    /// A sum that was made elsewhere, on the same grid: of this many arrays, these numbers in steps of it.
    ///
    /// # Errors
    /// When there are too many for the grid, or a number is more than this many can come to.
    pub fn of_parts(grid: Grid, terms: u32, parts: Vec<i64>) -> Result<Self, SumError> {
        let most = grid.most_terms;
        if terms > most {
            return Err(SumError::Terms { most });
        }
        let largest = u128::from(terms) << TERM_BITS;
        let beyond = |part: &i64| u128::from(part.unsigned_abs()) > largest;
        match parts.iter().position(beyond) {
            Some(place) => Err(SumError::Range { place, terms }),
            None => Ok(Self { grid, terms, parts }),
        }
    }

    /// Adds some arrays in one pass over the sum: eight at a time cost little more memory traffic than one. What lies beyond the
    /// bound of the grid counts as the bound, and a NaN too: check arrays from outside for those first.
    ///
    /// # Errors
    /// When there are too many, or one has another length; then none is added.
    pub fn add(&mut self, terms: &[Term<'_>]) -> Result<(), SumError> {
        let length = self.parts.len();
        if let Some(odd) = terms.iter().find(|term| term.values.len() != length) {
            let given = odd.values.len();
            return Err(SumError::Length { length, given });
        }
        let count = self.terms as usize + terms.len();
        let most = self.grid.most_terms;
        if count > most as usize {
            return Err(SumError::Terms { most });
        }
        self.terms = count as u32;
        let scale = 2f64.powi(self.grid.shift);
        for (place, parts) in self.parts.chunks_mut(STRETCH).enumerate() {
            let from = place * STRETCH;
            for term in terms {
                let factor = term.factor * scale;
                let values = &term.values[from..from + parts.len()];
                for (part, value) in parts.iter_mut().zip(values) {
                    #[expect(clippy::manual_clamp, reason = "a clamp lets a NaN through")]
                    let exact = (f64::from(*value) * factor).max(-LARGEST_TERM).min(LARGEST_TERM);
                    *part += ((exact + MAGIC).to_bits() as i64).wrapping_sub(MAGIC.to_bits() as i64);
                }
            }
        }
        Ok(())
    }

    /// The sum divided by this, rounded once to `f64` and once to `f32`.
    pub fn divided_by(&self, divisor: f64) -> Vec<f32> {
        let step = self.grid.step();
        self.parts
            .iter()
            .map(|part| (*part as f64 * step / divisor) as f32)
            .collect()
    }

    /// How many arrays it holds.
    pub fn terms(&self) -> u32 {
        self.terms
    }

    /// Its numbers in steps of the grid.
    pub fn parts(&self) -> &[i64] {
        &self.parts
    }

    /// Its grid.
    pub fn grid(&self) -> Grid {
        self.grid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Arrays of equal length, their factors, and an order.
    fn terms() -> impl Strategy<Value = (Vec<(Vec<f32>, f64)>, Vec<usize>)> {
        (1usize..20, 1usize..40).prop_flat_map(|(length, count)| {
            let term = (prop::collection::vec(-100.0f32..100.0, length), 0.0..10.0f64);
            let order = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
            (prop::collection::vec(term, count), order)
        })
    }

    proptest! {
        #[test]
        fn neither_the_order_nor_the_batches_matter((terms, order) in terms(), batch in 1usize..9) {
            let grid = Grid::new(1000.0, terms.len() as u32).unwrap();
            let length = terms[0].0.len();
            let (mut one_by_one, mut batched) = (FixedSum::new(length, grid), FixedSum::new(length, grid));
            let term = |(values, factor): &'_ (Vec<f32>, f64)| (values.clone(), *factor);
            for (values, factor) in terms.iter().map(term) {
                one_by_one.add(&[Term { values: &values, factor }]).unwrap();
            }
            for batch in order.chunks(batch) {
                let batch: Vec<Term<'_>> = batch
                    .iter()
                    .map(|i| Term { values: &terms[*i].0, factor: terms[*i].1 })
                    .collect();
                batched.add(&batch).unwrap();
            }
            prop_assert_eq!(&one_by_one, &batched);
        }

        #[test]
        fn it_is_the_sum((terms, _) in terms()) {
            let grid = Grid::new(1000.0, terms.len() as u32).unwrap();
            let mut sum = FixedSum::new(terms[0].0.len(), grid);
            for (values, factor) in &terms {
                sum.add(&[Term { values, factor: *factor }]).unwrap();
            }
            for (i, part) in sum.parts().iter().enumerate() {
                let exact: f64 = terms.iter().map(|(values, factor)| f64::from(values[i]) * factor).sum();
                let most = grid.step() * terms.len() as f64;
                prop_assert!((*part as f64 * grid.step() - exact).abs() <= most);
            }
        }

        #[test]
        fn the_worst_sum_does_not_overflow(largest in 1e-6..1e6f64, count in 1u32..5000) {
            let grid = Grid::new(largest, count).unwrap();
            let mut sum = FixedSum::new(1, grid);
            for _ in 0..count {
                sum.add(&[Term { values: &[1.0], factor: largest }]).unwrap();
            }
            let mean = f64::from(sum.divided_by(f64::from(count))[0]);
            prop_assert!((mean / largest - 1.0).abs() < 1e-6, "{mean} instead of {largest}");
            prop_assert_eq!(
                sum.add(&[Term { values: &[1.0], factor: 1.0 }]),
                Err(SumError::Terms { most: count })
            );
        }
    }

    #[test]
    fn what_lies_beyond_the_bound_does_no_harm_to_the_rest() {
        let grid = Grid::new(1.0, 4).unwrap();
        let mut sum = FixedSum::new(2, grid);
        let wild = Term {
            values: &[f32::INFINITY, 0.5],
            factor: 1.0,
        };
        sum.add(&[
            wild,
            Term {
                values: &[-1.0, f32::NAN],
                factor: 1.0,
            },
        ])
        .unwrap();
        let mean = sum.divided_by(1.0);
        assert!(mean.iter().all(|x| x.is_finite() && x.abs() <= 4.0), "{mean:?}");
    }

    #[test]
    fn a_sum_made_elsewhere_is_taken_as_far_as_it_can_be_one() {
        let grid = Grid::new(1.0, 2).unwrap();
        let mut sum = FixedSum::new(2, grid);
        let values = &[1.0, -0.25];
        sum.add(&[Term { values, factor: 1.0 }]).unwrap();
        assert_eq!(FixedSum::of_parts(grid, 1, sum.parts().to_vec()), Ok(sum));
        let place = 1;
        let wild = FixedSum::of_parts(grid, 2, vec![0, i64::MIN]);
        assert_eq!(wild, Err(SumError::Range { place, terms: 2 }));
        assert_eq!(
            FixedSum::of_parts(grid, 3, vec![0]),
            Err(SumError::Terms { most: 2 })
        );
    }

    #[test]
    fn a_grid_needs_bounds() {
        for (largest, terms) in [(0.0, 1), (-1.0, 1), (f64::NAN, 1), (f64::INFINITY, 1), (1.0, 0)] {
            assert!(Grid::new(largest, terms).is_err());
        }
    }
}
