use super::accountant::{Accountant, AccountantError, Adjacency, Spent};
use super::clip::{Bound, ClipError, Clipped};
use super::noise;
use super::participants::Participants;
use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// How updates are clipped.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub enum Clipping {
    /// Always to this norm.
    Fixed {
        /// The norm.
        norm: f64,
    },
    /// To a norm that follows a quantile of the updates' norms (Andrew et al., NeurIPS 2021): after each round it is multiplied by
    /// exp(-rate (share - quantile)), the share being that of the updates within it, with noise.
    Adaptive {
        /// The first norm. 0.1 is a good start.
        first: f64,
        /// The quantile, e.g. 0.5.
        quantile: f64,
        /// How fast it follows, e.g. 0.2.
        rate: f64,
    },
}

/// What central privacy is set to.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CentralSettings {
    /// The standard deviation of the noise over the norm that updates are clipped to; at most 64.
    pub noise_multiplier: f64,
    /// How updates are clipped.
    pub clipping: Clipping,
    /// Participants to be expected in a round. Sums are divided by this, not by how many came: their number is private too.
    pub expected: f64,
    /// δ of what is reported.
    pub delta: f64,
}

/// Central differential privacy of a run: clipping, noise and the account. It is part of what the coordinator checkpoints.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Central {
    settings: CentralSettings,
    bound: Bound,
    accountant: Accountant,
}

/// A sum of clipped updates, not yet private.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ClippedSum {
    units: Vec<i64>,
    /// Updates within the bound minus those that were not.
    within: i64,
}

/// What may be seen of a round.
#[derive(Clone, Debug, PartialEq)]
pub struct Released {
    /// The mean update, with noise.
    pub mean: Vec<f64>,
    /// The noise's standard deviation in each number.
    pub deviation: f64,
    /// What the run has given away up to now.
    pub spent: Spent,
}

/// Why no private mean comes out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CentralError {
    /// A bound or an update that is none.
    #[error(transparent)]
    Clip(#[from] ClipError),
    /// Noise or δ that are none.
    #[error(transparent)]
    Account(#[from] AccountantError),
    /// A number of participants that is none.
    #[error("the expected number of participants is at least 1, not {0}")]
    Expected(f64),
    /// More noise than there is.
    #[error("a noise multiplier is at most {most}, not {0}", most = Central::MOST_NOISE)]
    TooMuchNoise(f64),
    /// A quantile or rate that is none.
    #[error("the {what} of adaptive clipping is between 0 and 1, not {number}")]
    Adaptive {
        /// Which.
        what: &'static str,
        /// What it is.
        number: f64,
    },
    /// The noise on the share of clipped updates takes all of the budget.
    #[error(
        "{expected} participants are too few to adapt the clipping under a noise multiplier of {noise_multiplier}"
    )]
    TooFewToAdapt {
        /// Participants.
        expected: f64,
        /// The noise.
        noise_multiplier: f64,
    },
    /// An update of another shape.
    #[error("an update has {have} numbers instead of {need}")]
    Length {
        /// Its length.
        have: usize,
        /// The length of the sum.
        need: usize,
    },
}

impl Central {
    /// The largest noise multiplier.
    pub const MOST_NOISE: f64 = (noise::LARGEST / Bound::UNITS) as f64;

    /// Before the first round.
    ///
    /// # Errors
    ///
    /// A setting is impossible.
    pub fn new(settings: CentralSettings) -> Result<Self, CentralError> {
        let CentralSettings {
            noise_multiplier,
            clipping,
            expected,
            delta,
        } = settings;
        if !(expected.is_finite() && expected >= 1.0) {
            return Err(CentralError::Expected(expected));
        }
        let first = match clipping {
            Clipping::Fixed { norm } => norm,
            Clipping::Adaptive {
                first,
                quantile,
                rate,
            } => {
                for (what, number) in [("quantile", quantile), ("rate", rate)] {
                    if !(number > 0.0 && number < 1.0) {
                        return Err(CentralError::Adaptive { what, number });
                    }
                }
                first
            }
        };
        let central = Self {
            settings,
            bound: Bound::new(first)?,
            accountant: Accountant::new(Adjacency::AddOrRemoveClient),
        };
        // What the account would refuse later is refused now.
        let mut trial = central.accountant.clone();
        trial.add(noise_multiplier, &Participants::chosen(Vec::new()))?;
        trial.spent(delta)?;
        if central.update_noise()? > Self::MOST_NOISE {
            return Err(CentralError::TooMuchNoise(noise_multiplier));
        }
        Ok(central)
    }

    /// What clients clip their updates to in this round.
    pub const fn bound(&self) -> Bound {
        self.bound
    }

    /// What was given away up to now.
    ///
    /// # Errors
    ///
    /// None that [`Central::new`] has not refused.
    pub fn spent(&self) -> Result<Spent, CentralError> {
        Ok(self.accountant.spent(self.settings.delta)?)
    }

    /// What will have been given away after one more round with these participants.
    ///
    /// # Errors
    ///
    /// None that [`Central::new`] has not refused.
    pub fn spent_after(&self, participants: &Participants) -> Result<Spent, CentralError> {
        let mut trial = self.accountant.clone();
        trial.add(self.settings.noise_multiplier, participants)?;
        Ok(trial.spent(self.settings.delta)?)
    }

    /// A sum of nothing yet.
    pub fn sum(&self, length: usize) -> ClippedSum {
        ClippedSum::nothing(length)
    }

    /// Adds noise, divides by the expected number, and adds the round to the account. The bound moves on, if it is adaptive.
    ///
    /// `entropy` has to be fresh from the operating system and never be used again.
    ///
    /// # Errors
    ///
    /// None that [`Central::new`] has not refused.
    pub fn release(
        &mut self,
        sum: ClippedSum,
        participants: &Participants,
        entropy: [u8; 32],
    ) -> Result<Released, CentralError> {
        self.accountant
            .add(self.settings.noise_multiplier, participants)?;
        let mut seeds = ChaCha20Rng::from_seed(entropy);
        let mut seed = || {
            let mut seed = [0; 32];
            seeds.fill_bytes(&mut seed);
            seed
        };
        let ClippedSum { mut units, within } = sum;
        let sigma = in_units(self.update_noise()?, Bound::UNITS);
        noise::add(&mut units, sigma, seed());
        let scale = self.bound.unit() / self.settings.expected;
        let released = Released {
            mean: units.iter().map(|unit| *unit as f64 * scale).collect(),
            deviation: f64::from(sigma) * scale,
            spent: self.spent()?,
        };
        if let Clipping::Adaptive { quantile, rate, .. } = self.settings.clipping {
            let mut within = [within];
            noise::add(&mut within, in_units(self.count_noise(), 1), seed());
            let share = 0.5 + within[0] as f64 / (2.0 * self.settings.expected);
            let norm = self.bound.norm() * (-rate * (share.clamp(0.0, 1.0) - quantile)).exp();
            self.bound = Bound::new(norm.clamp(f64::MIN_POSITIVE, f64::MAX))?;
        }
        Ok(released)
    }

    /// The noise on the sum, over the bound. With adaptive clipping the count of those within the bound is released too, and both
    /// together have to give away what the noise multiplier says: z_sum = (z^-2 - z_count^-2)^(-1/2).
    fn update_noise(&self) -> Result<f64, CentralError> {
        let CentralSettings {
            noise_multiplier,
            clipping,
            expected,
            ..
        } = self.settings;
        if matches!(clipping, Clipping::Fixed { .. }) {
            return Ok(noise_multiplier);
        }
        let rest = noise_multiplier.powi(-2) - self.count_noise().powi(-2);
        match rest > 0.0 {
            true => Ok(rest.powf(-0.5)),
            false => Err(CentralError::TooFewToAdapt {
                expected,
                noise_multiplier,
            }),
        }
    }

    /// The noise on the count of those within the bound minus those without, which one client changes by one: a tenth of the
    /// participants, rounded up (a standard deviation of a twentieth on the count itself, as in the paper).
    fn count_noise(&self) -> f64 {
        (self.settings.expected / 10.0).ceil()
    }
}

/// Rounded up: never less noise than is accounted for.
fn in_units(noise: f64, units: u32) -> u32 {
    (noise * f64::from(units)).ceil() as u32
}

impl ClippedSum {
    pub(crate) fn nothing(length: usize) -> Self {
        Self {
            units: vec![0; length],
            within: 0,
        }
    }

    /// Adds an update. It may have come from elsewhere: one that is longer than the bound is refused.
    ///
    /// # Errors
    ///
    /// It is too long, or of another shape; the sum is as it was.
    pub fn add(&mut self, update: &Clipped) -> Result<(), CentralError> {
        if update.units.len() != self.units.len() {
            return Err(CentralError::Length {
                have: update.units.len(),
                need: self.units.len(),
            });
        }
        update.check()?;
        for (sum, unit) in self.units.iter_mut().zip(&update.units) {
            *sum += i64::from(*unit);
        }
        self.within += if update.within { 1 } else { -1 };
        Ok(())
    }

    /// A sum that was formed elsewhere, by [`crate::secure`] for example: of all updates' units, and of 1 for each update within the
    /// bound and -1 for each that was not.
    pub const fn of(units: Vec<i64>, within: i64) -> Self {
        Self { units, within }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::Rate;
    use karman_types::NodeId;

    fn settings(clipping: Clipping) -> CentralSettings {
        CentralSettings {
            noise_multiplier: 0.5,
            clipping,
            expected: 100.0,
            delta: 1e-5,
        }
    }

    fn everybody() -> Participants {
        let population: Vec<_> = (0..100_u8).map(|n| NodeId::of_key(&[n])).collect();
        Participants::poisson(&population, Rate::new(1.0).unwrap(), &[1; 32], 1)
    }

    #[test]
    fn the_mean_has_the_noise_it_says() {
        let mut central = Central::new(settings(Clipping::Fixed { norm: 2.0 })).unwrap();
        let mut sum = central.sum(4_000);
        let update = central.bound().clip(&vec![0.01; 4_000]).unwrap();
        (0..100).for_each(|_| sum.add(&update).unwrap());
        let released = central.release(sum, &everybody(), [3; 32]).unwrap();
        assert!((released.deviation - 0.5 * 2.0 / 100.0).abs() < 1e-6);
        let mean = released.mean.iter().sum::<f64>() / 4_000.0;
        let deviation = (released
            .mean
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / 4_000.0)
            .sqrt();
        assert!(
            (mean - 0.01).abs() < 5.0 * released.deviation / 4_000_f64.sqrt(),
            "{mean}"
        );
        assert!((deviation / released.deviation - 1.0).abs() < 0.06, "{deviation}");
        assert_eq!(released.spent, central.spent().unwrap());
    }

    #[test]
    fn an_adaptive_bound_finds_the_quantile() {
        let adaptive = Clipping::Adaptive {
            first: 0.1,
            quantile: 0.5,
            rate: 0.2,
        };
        let mut central = Central::new(settings(adaptive)).unwrap();
        // Norms are spread evenly from 0 to 10: the median is 5.
        for round in 0..120_u8 {
            let mut sum = central.sum(1);
            for client in 0..100_u8 {
                let norm = f32::from(client) / 10.0;
                sum.add(&central.bound().clip(&[norm]).unwrap()).unwrap();
            }
            central.release(sum, &everybody(), [round; 32]).unwrap();
        }
        assert!(
            (4.0..6.0).contains(&central.bound().norm()),
            "{:?}",
            central.bound()
        );
        assert_eq!(central.spent().unwrap().rounds, 120);
    }

    #[test]
    fn two_noises_cost_as_much_as_one() {
        let adaptive = Clipping::Adaptive {
            first: 0.1,
            quantile: 0.5,
            rate: 0.2,
        };
        let central = Central::new(settings(adaptive)).unwrap();
        let (sum, count) = (central.update_noise().unwrap(), central.count_noise());
        assert!((sum.powi(-2) + count.powi(-2) - 4.0).abs() < 1e-12);
        let few = CentralSettings {
            noise_multiplier: 3.0,
            expected: 20.0,
            ..settings(adaptive)
        };
        assert!(matches!(
            Central::new(few),
            Err(CentralError::TooFewToAdapt { .. })
        ));
    }

    #[test]
    fn what_cannot_be_private_is_refused() {
        let fixed = settings(Clipping::Fixed { norm: 1.0 });
        let bad = [
            CentralSettings {
                noise_multiplier: 0.0,
                ..fixed
            },
            CentralSettings {
                noise_multiplier: f64::NAN,
                ..fixed
            },
            CentralSettings {
                noise_multiplier: 65.0,
                ..fixed
            },
            CentralSettings {
                expected: 0.5,
                ..fixed
            },
            CentralSettings { delta: 1.0, ..fixed },
            CentralSettings {
                clipping: Clipping::Fixed { norm: -1.0 },
                ..fixed
            },
            CentralSettings {
                clipping: Clipping::Adaptive {
                    first: 1.0,
                    quantile: 1.5,
                    rate: 0.2,
                },
                ..fixed
            },
        ];
        for bad in bad {
            assert!(Central::new(bad).is_err(), "{bad:?}");
        }
        let central = Central::new(fixed).unwrap();
        let mut sum = central.sum(2);
        let long = Clipped {
            units: vec![i32::MAX, 0],
            within: true,
        };
        assert!(matches!(
            sum.add(&long),
            Err(CentralError::Clip(ClipError::TooLong { .. }))
        ));
        let short = Clipped {
            units: vec![1],
            within: true,
        };
        assert_eq!(sum.add(&short), Err(CentralError::Length { have: 1, need: 2 }));
        assert_eq!(sum, central.sum(2));
    }
}
