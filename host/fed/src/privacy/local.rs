use super::accountant::{Accountant, Adjacency, Spent};
use super::central::{Central, CentralError};
use super::clip::Bound;
use super::noise;
use super::participants::Participants;
use serde::{Deserialize, Serialize};

/// Local differential privacy of one client: it adds so much noise to its own update that whoever sees it, the coordinator too, learns
/// little. The account is the client's own, one round for each update that it sends; that nobody knows whether it took part does not
/// count, since the update shows it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Local {
    bound: Bound,
    noise_multiplier: f64,
    delta: f64,
    accountant: Accountant,
}

impl Local {
    /// Updates clipped to `norm`, with noise of `noise_multiplier` times the distance that two of them can have, which is twice that.
    /// [`super::noise_multiplier_for`] finds the multiplier for an ε. It is at most 32.
    ///
    /// # Errors
    ///
    /// A number is impossible.
    pub fn new(norm: f64, noise_multiplier: f64, delta: f64) -> Result<Self, CentralError> {
        let mut trial = Accountant::new(Adjacency::AnyTwoUpdates);
        trial.add(noise_multiplier, &Participants::chosen(Vec::new()))?;
        trial.spent(delta)?;
        if 2.0 * noise_multiplier > Central::MOST_NOISE {
            return Err(CentralError::TooMuchNoise(2.0 * noise_multiplier));
        }
        let accountant = Accountant::new(Adjacency::AnyTwoUpdates);
        Ok(Self {
            bound: Bound::new(norm)?,
            noise_multiplier,
            delta,
            accountant,
        })
    }

    /// An update that may be seen, and what the client has given away with it and those before.
    ///
    /// `entropy` has to be fresh from the operating system and never be used again.
    ///
    /// # Errors
    ///
    /// A number of the update is not finite.
    pub fn release(&mut self, update: &[f32], entropy: [u8; 32]) -> Result<(Vec<f32>, Spent), CentralError> {
        let clipped = self.bound.clip(update)?;
        self.accountant
            .add(self.noise_multiplier, &Participants::chosen(Vec::new()))?;
        let mut units: Vec<_> = clipped.units.iter().map(|unit| i64::from(*unit)).collect();
        let sigma = (self.noise_multiplier * f64::from(2 * Bound::UNITS)).ceil() as u32;
        noise::add(&mut units, sigma, entropy);
        let released = units
            .iter()
            .map(|unit| (*unit as f64 * self.bound.unit()) as f32)
            .collect();
        Ok((released, self.accountant.spent(self.delta)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_covers_the_distance_of_any_two_updates() {
        let mut local = Local::new(0.5, 1.0, 1e-5).unwrap();
        let (released, spent) = local.release(&vec![0.0; 4_000], [4; 32]).unwrap();
        let deviation = (released
            .iter()
            .map(|value| f64::from(*value).powi(2))
            .sum::<f64>()
            / 4_000.0)
            .sqrt();
        assert!((deviation - 1.0).abs() < 0.06, "{deviation}");
        assert_eq!(
            (spent.rounds, spent.drawn, spent.adjacency),
            (1, 0, Adjacency::AnyTwoUpdates)
        );
        let (_, more) = local.release(&[0.0], [5; 32]).unwrap();
        assert!(more.epsilon > spent.epsilon);
    }

    #[test]
    fn bad_numbers_are_refused() {
        assert!(Local::new(f64::NAN, 1.0, 1e-5).is_err());
        assert!(Local::new(1.0, 0.0, 1e-5).is_err());
        assert!(Local::new(1.0, 33.0, 1e-5).is_err());
        assert!(Local::new(1.0, 1.0, 0.0).is_err());
        assert!(
            Local::new(1.0, 1.0, 1e-5)
                .unwrap()
                .release(&[f32::INFINITY], [1; 32])
                .is_err()
        );
    }
}
