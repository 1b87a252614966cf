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
    /// The largest noise multiplier: two updates can be two norms apart.
    pub const MOST_NOISE: f64 = Central::MOST_NOISE / 2.0;

    /// Updates clipped to `norm`, with noise of `noise_multiplier` times the distance that two of them can have, which is twice that.
    /// [`super::noise_multiplier_for`] finds the multiplier for an ε, at a rate of 1. It is at most 32.
    ///
    /// # Errors
    ///
    /// A number is impossible.
    pub fn new(norm: f64, noise_multiplier: f64, delta: f64) -> Result<Self, CentralError> {
        let accountant = Accountant::new(Adjacency::AnyTwoUpdates);
        let local = Self {
            bound: Bound::new(norm)?,
            noise_multiplier,
            delta,
            accountant,
        };
        // What the account would refuse later is refused now.
        local.spent_after(1, delta)?;
        if noise_multiplier > Self::MOST_NOISE {
            return Err(CentralError::TooMuchNoise(2.0 * noise_multiplier));
        }
        Ok(local)
    }

    /// The same before its first update.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self {
            accountant: Accountant::new(Adjacency::AnyTwoUpdates),
            ..self.clone()
        }
    }

    /// The standard deviation of the noise in each number.
    pub fn deviation(&self) -> f64 {
        2.0 * self.noise_multiplier * self.bound.norm()
    }

    /// What was given away up to now.
    ///
    /// # Errors
    ///
    /// None that [`Local::new`] has not refused.
    pub fn spent(&self) -> Result<Spent, CentralError> {
        Ok(self.accountant.spent(self.delta)?)
    }

    /// What will have been given away after so many more updates, at this δ.
    ///
    /// # Errors
    ///
    /// δ is not above 0 and below 1.
    pub fn spent_after(&self, updates: u64, delta: f64) -> Result<Spent, CentralError> {
        let mut trial = self.accountant.clone();
        trial.add_rounds(self.noise_multiplier, None, updates)?;
        Ok(trial.spent(delta)?)
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
        Ok((released, self.spent()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn what_updates_will_cost_is_what_they_cost_and_only_the_noise_is_beyond_the_norm(
            update in prop::collection::vec(-1e3_f32..1e3, 1..40), norm in 1e-3_f64..1e3, noise in 0.1_f64..8.0,
            updates in 1_u64..5, delta in 1e-9_f64..1e-2, entropy: [u8; 32],
        ) {
            let mut local = Local::new(norm, noise, delta).unwrap();
            let foretold = local.spent_after(updates, delta).unwrap();
            for _ in 0..updates {
                let (released, _) = local.release(&update, entropy).unwrap();
                // A number has at most the norm, and ten deviations of noise: more comes up once in 10^22 times.
                let most = norm + 10.0 * local.deviation();
                prop_assert!(released.iter().all(|number| f64::from(number.abs()) <= most), "{:?}", released);
            }
            prop_assert_eq!(local.spent().unwrap(), foretold);
            prop_assert_eq!(local.anew(), Local::new(norm, noise, delta).unwrap());
        }
    }

    #[test]
    fn bad_numbers_are_refused() {
        assert!(Local::new(f64::NAN, 1.0, 1e-5).is_err());
        assert!(Local::new(1.0, 0.0, 1e-5).is_err());
        assert!(Local::new(1.0, 32.0, 1e-5).is_ok() && Local::new(1.0, 33.0, 1e-5).is_err());
        assert!(Local::new(1.0, 1.0, 0.0).is_err());
        assert!(
            Local::new(1.0, 1.0, 1e-5)
                .unwrap()
                .release(&[f32::INFINITY], [1; 32])
                .is_err()
        );
    }
}
