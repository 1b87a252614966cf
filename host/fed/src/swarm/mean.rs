use karman_tensor::arithmetic::{FixedSum, Grid, SumError, Term};
use serde::{Deserialize, Serialize};

/// The weighted mean of the updates that a client could rebuild. Sums are in double precision in the order in which updates are added;
/// everybody adds them in the order of their descriptors, so those who have the same updates get the same mean, bit by bit. With a
/// [`MeanRule`] they are in fixed point, where the order has no influence.
#[derive(Clone, Debug, PartialEq)]
pub struct Mean {
    sum: Sum,
    weight: f64,
}

/// What a mean is made by that is to be the one that a run makes of the same updates elsewhere.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MeanRule {
    /// What updates, each multiplied by its weight, are added up on.
    pub grid: Grid,
    /// The largest magnitude of a number: an update with a larger one is left out, by everybody alike.
    pub magnitude: f32,
}

#[derive(Clone, Debug, PartialEq)]
enum Sum {
    Double(Vec<f64>),
    Fixed(FixedSum, f32),
}

/// What has no mean.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MeanError {
    /// An update of another length.
    #[error("an update has {have} numbers instead of {need}")]
    Length {
        /// Its length.
        have: usize,
        /// The length of the others.
        need: usize,
    },
    /// A number that is none.
    #[error("number {place} of an update is {number}")]
    NotFinite {
        /// Which.
        place: usize,
        /// What it is.
        number: f32,
    },
    /// A number beyond the limit.
    #[error("number {place} of an update is {number}: the limit `magnitude` is {most}")]
    Magnitude {
        /// Which.
        place: usize,
        /// What it is.
        number: f32,
        /// The limit.
        most: f32,
    },
    /// More updates than the grid was made for.
    #[error(transparent)]
    Sum(#[from] SumError),
    /// No update was added.
    #[error("there is no update to take the mean of")]
    Nothing,
}

impl Mean {
    /// Of nothing yet.
    pub fn of_length(numbers: usize) -> Self {
        Self {
            sum: Sum::Double(vec![0.0; numbers]),
            weight: 0.0,
        }
    }

    /// Of nothing yet, by a rule.
    pub fn by_rule(numbers: usize, rule: MeanRule) -> Self {
        Self {
            sum: Sum::Fixed(FixedSum::new(numbers, rule.grid), rule.magnitude),
            weight: 0.0,
        }
    }

    /// Adds an update.
    ///
    /// # Errors
    ///
    /// It has another length, or a number that is not finite or beyond the rule: it is left out.
    pub fn add(&mut self, update: &[f32], weight: u32) -> Result<(), MeanError> {
        let need = match &self.sum {
            Sum::Double(sum) => sum.len(),
            Sum::Fixed(sum, _) => sum.parts().len(),
        };
        if update.len() != need {
            let have = update.len();
            return Err(MeanError::Length { have, need });
        }
        if let Some(place) = update.iter().position(|number| !number.is_finite()) {
            return Err(MeanError::NotFinite {
                place,
                number: update[place],
            });
        }
        let factor = f64::from(weight);
        match &mut self.sum {
            Sum::Double(sum) => {
                for (sum, number) in sum.iter_mut().zip(update) {
                    *sum += factor * f64::from(*number);
                }
            }
            Sum::Fixed(sum, most) => {
                let most = *most;
                if let Some(place) = update.iter().position(|number| number.abs() > most) {
                    let number = update[place];
                    return Err(MeanError::Magnitude { place, number, most });
                }
                let values = update;
                sum.add(&[Term { values, factor }])?;
            }
        }
        self.weight += factor;
        Ok(())
    }

    /// The mean.
    ///
    /// # Errors
    ///
    /// Nothing was added.
    pub fn finish(self) -> Result<Vec<f32>, MeanError> {
        if self.weight <= 0.0 {
            return Err(MeanError::Nothing);
        }
        Ok(match self.sum {
            Sum::Double(sum) => sum.iter().map(|sum| (sum / self.weight) as f32).collect(),
            Sum::Fixed(sum, _) => sum.divided_by(self.weight),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_weighted_and_leaves_bad_updates_out() {
        let mut mean = Mean::of_length(2);
        mean.add(&[1.0, 2.0], 1).unwrap();
        mean.add(&[4.0, 8.0], 2).unwrap();
        assert!(matches!(
            mean.add(&[f32::NAN, 0.0], 1),
            Err(MeanError::NotFinite { place: 0, .. })
        ));
        assert_eq!(mean.add(&[1.0], 1), Err(MeanError::Length { have: 1, need: 2 }));
        assert_eq!(mean.finish(), Ok(vec![3.0, 6.0]));
        assert_eq!(Mean::of_length(2).finish(), Err(MeanError::Nothing));
    }

    #[test]
    fn by_a_rule_the_order_does_not_matter_and_what_is_too_large_is_left_out() {
        let rule = MeanRule {
            grid: Grid::new(500.0, 3).unwrap(),
            magnitude: 5.0,
        };
        let updates: [([f32; 2], u32); 3] = [([0.1, 3.0], 7), ([0.3, -4.9], 90), ([1e-7, 0.7], 33)];
        let mean = |order: [usize; 3]| {
            let mut mean = Mean::by_rule(2, rule);
            for place in order {
                let (update, weight) = updates[place];
                mean.add(&update, weight).unwrap();
            }
            let wild = mean.add(&[5.5, 0.0], 1);
            assert!(matches!(wild, Err(MeanError::Magnitude { place: 0, .. })));
            mean.finish().unwrap()
        };
        let bits = |mean: Vec<f32>| mean.into_iter().map(f32::to_bits).collect::<Vec<u32>>();
        assert_eq!(bits(mean([0, 1, 2])), bits(mean([2, 0, 1])));
        let exact = (0.1 * 7.0 + 0.3 * 90.0 + 1e-7 * 33.0) / 130.0;
        assert!((f64::from(mean([0, 1, 2])[0]) - exact).abs() < 1e-7);
        assert_eq!(Mean::by_rule(2, rule).finish(), Err(MeanError::Nothing));
    }
}
