/// The weighted mean of the updates that a client could rebuild. Sums are in double precision in the order in which updates are added;
/// everybody adds them in the order of their descriptors, so those who have the same updates get the same mean, bit by bit.
#[derive(Clone, Debug, PartialEq)]
pub struct Mean {
    sum: Vec<f64>,
    weight: f64,
}

/// What has no mean.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
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
    /// No update was added.
    #[error("there is no update to take the mean of")]
    Nothing,
}

impl Mean {
    /// Of nothing yet.
    pub fn of_length(numbers: usize) -> Self {
        Self {
            sum: vec![0.0; numbers],
            weight: 0.0,
        }
    }

    /// Adds an update.
    ///
    /// # Errors
    ///
    /// It has another length, or a number that is not finite: it is left out.
    pub fn add(&mut self, update: &[f32], weight: u32) -> Result<(), MeanError> {
        if update.len() != self.sum.len() {
            return Err(MeanError::Length {
                have: update.len(),
                need: self.sum.len(),
            });
        }
        if let Some(place) = update.iter().position(|number| !number.is_finite()) {
            return Err(MeanError::NotFinite {
                place,
                number: update[place],
            });
        }
        for (sum, number) in self.sum.iter_mut().zip(update) {
            *sum += f64::from(weight) * f64::from(*number);
        }
        self.weight += f64::from(weight);
        Ok(())
    }

    /// The mean.
    ///
    /// # Errors
    ///
    /// Nothing was added.
    pub fn finish(self) -> Result<Vec<f32>, MeanError> {
        match self.weight > 0.0 {
            true => Ok(self.sum.iter().map(|sum| (sum / self.weight) as f32).collect()),
            false => Err(MeanError::Nothing),
        }
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
}
