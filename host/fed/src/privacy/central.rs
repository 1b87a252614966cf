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
    /// So little noise that it hides nobody, and that no account of it is kept in reasonable time.
    #[error("a noise multiplier is at least {least}, not {0}", least = Central::LEAST_NOISE)]
    TooLittleNoise(f64),
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

    /// The least noise multiplier.
    pub const LEAST_NOISE: f64 = 0.05;

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
        if noise_multiplier < Self::LEAST_NOISE {
            return Err(CentralError::TooLittleNoise(noise_multiplier));
        }
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
mod tests;
