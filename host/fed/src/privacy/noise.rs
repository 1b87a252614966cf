//! The discrete Gaussian, exactly: P(x) in proportion to exp(-x² / 2σ²) on the integers (Canonne, Kamath, Steinke, NeurIPS 2020,
//! algorithms 1 to 3). Only integers are computed with, and every random decision is one of a rational chance.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{CryptoRng, SeedableRng};

/// The largest standard deviation, in units.
pub const LARGEST: u32 = 1 << 24;

/// Adds independent discrete Gaussian noise of this standard deviation to each number. `sigma` above [`LARGEST`] counts as that.
///
/// `entropy` has to be fresh from the operating system and be used once: whoever knows it takes the noise off again, and noise that is
/// there twice cancels.
pub fn add(numbers: &mut [i64], sigma: u32, entropy: [u8; 32]) {
    let mut random = ChaCha20Rng::from_seed(entropy);
    let gaussian = DiscreteGaussian::new(sigma);
    for number in numbers {
        *number = number.saturating_add(gaussian.sample(&mut random));
    }
}

struct DiscreteGaussian {
    variance: u128,
    /// The scale of the Laplace distribution that candidates come from.
    scale: u128,
}

impl DiscreteGaussian {
    fn new(sigma: u32) -> Self {
        let sigma = u128::from(sigma.min(LARGEST));
        Self {
            variance: sigma * sigma,
            scale: sigma + 1,
        }
    }

    fn sample(&self, random: &mut impl CryptoRng) -> i64 {
        if self.variance == 0 {
            return 0;
        }
        loop {
            let (candidate, negative) = laplace(self.scale, random);
            // A candidate further out than a thousand scales is kept with a chance below e^-499000: never.
            if candidate > 1_000 * self.scale {
                continue;
            }
            // exp(-(|x| - σ²/t)² / 2σ²)
            let distance = (candidate * self.scale).abs_diff(self.variance);
            let below = 2 * self.variance * self.scale * self.scale;
            if exp_minus(distance * distance, below, random) {
                let magnitude = candidate as i64;
                return if negative { -magnitude } else { magnitude };
            }
        }
    }
}

/// P(x) in proportion to exp(-|x| / scale), as magnitude and sign.
fn laplace(scale: u128, random: &mut impl CryptoRng) -> (u128, bool) {
    loop {
        let rest = uniform(scale, random);
        if !exp_minus(rest, scale, random) {
            continue;
        }
        let mut scales = 0;
        while exp_minus(1, 1, random) {
            scales += 1;
        }
        let magnitude = rest + scale * scales;
        let negative = uniform(2, random) == 1;
        // Zero has no sign, and would come up twice as often.
        if magnitude > 0 || !negative {
            return (magnitude, negative);
        }
    }
}

/// True with chance exp(-over / below).
fn exp_minus(over: u128, below: u128, random: &mut impl CryptoRng) -> bool {
    (0..over / below).all(|_| exp_minus_fraction(1, 1, random))
        && exp_minus_fraction(over % below, below, random)
}

/// The same for a fraction of at most one: the length of the longest run of events of chance γ/1, γ/2, γ/3, … is even with chance
/// exp(-γ) (von Neumann's method).
fn exp_minus_fraction(over: u128, below: u128, random: &mut impl CryptoRng) -> bool {
    let mut turn = 1;
    while uniform(below * turn, random) < over {
        turn += 1;
    }
    turn % 2 == 1
}

/// Uniform below a bound.
fn uniform(bound: u128, random: &mut impl CryptoRng) -> u128 {
    let bits = 128 - (bound - 1).leading_zeros();
    loop {
        let drawn = match bits {
            0 => 0,
            1..=64 => u128::from(random.next_u64() >> (64 - bits)),
            _ => (u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())) >> (128 - bits),
        };
        if drawn < bound {
            return drawn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(sigma: u32, count: usize) -> Vec<i64> {
        let mut numbers = vec![0; count];
        add(&mut numbers, sigma, [5; 32]);
        numbers
    }

    /// Pearson's χ² against the exact probabilities.
    #[test]
    fn small_deviations_have_the_exact_distribution() {
        for sigma in [1_u32, 2, 3] {
            let count = 40_000;
            let weight = |x: i64| (-(x * x) as f64 / (2.0 * f64::from(sigma * sigma))).exp();
            let total: f64 = (-60..=60).map(weight).sum();
            let reach = 2 * i64::from(sigma) + 1;
            let numbers = samples(sigma, count);
            let mut statistic = 0.0;
            for x in -reach..=reach {
                let expected = weight(x) / total * count as f64;
                let seen = numbers.iter().filter(|number| **number == x).count() as f64;
                statistic += (seen - expected).powi(2) / expected;
            }
            // The 99.99th percentile of χ² with 15 degrees of freedom is 44; there are at most 15 cells.
            assert!(statistic < 44.0, "σ {sigma}: χ² {statistic}");
        }
    }

    #[test]
    fn large_deviations_have_the_right_moments() {
        let sigma = f64::from(1 << 18);
        let numbers = samples(1 << 18, 20_000);
        let moment = |power: i32| {
            numbers
                .iter()
                .map(|number| (*number as f64 / sigma).powi(power))
                .sum::<f64>()
                / numbers.len() as f64
        };
        // Within five standard errors of 0, 1, 0 and 3.
        for (power, exact, error) in [
            (1, 0.0, 1.0),
            (2, 1.0, 2_f64.sqrt()),
            (3, 0.0, 15_f64.sqrt()),
            (4, 3.0, 96_f64.sqrt()),
        ] {
            let off = (moment(power) - exact).abs();
            assert!(
                off < 5.0 * error / (numbers.len() as f64).sqrt(),
                "moment {power} is off by {off}"
            );
        }
    }

    #[test]
    fn no_deviation_is_no_noise_and_the_largest_does_not_overflow() {
        assert_eq!(samples(0, 3), [0; 3]);
        let far = samples(LARGEST, 2_000);
        assert!(
            far.iter()
                .all(|number| number.unsigned_abs() < 20 * u64::from(LARGEST))
        );
        assert!(
            far.iter()
                .any(|number| number.unsigned_abs() > u64::from(LARGEST))
        );
        assert_ne!(samples(9, 8), {
            let mut other = vec![0; 8];
            add(&mut other, 9, [6; 32]);
            other
        });
    }

    /// Large products must stay below 2^128.
    #[test]
    fn the_largest_chance_fits() {
        let gaussian = DiscreteGaussian::new(LARGEST);
        let distance = 1_000 * gaussian.scale * gaussian.scale;
        assert!(distance.checked_mul(distance).is_some());
        assert!(
            (2 * gaussian.variance * gaussian.scale * gaussian.scale)
                .checked_mul(1 << 20)
                .is_some()
        );
    }
}
