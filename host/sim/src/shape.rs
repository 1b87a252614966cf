use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// How something varies around its mean: a distribution of positive factors whose mean is 1.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Shape {
    /// Not at all.
    Constant,
    /// Without memory: times between the arrivals of a Poisson process.
    #[default]
    Exponential,
    /// Every value from `1 - half` to `1 + half` is as likely as any other.
    Uniform {
        /// Half the width, from 0 to 1.
        half: f64,
    },
    /// The logarithm is normal: measured times of one and the same work.
    LogNormal {
        /// The standard deviation of the logarithm, from 0 to 3; for small values the coefficient of variation.
        sigma: f64,
    },
    /// Many short ones and a few very long ones: bursts (the bounded Pareto distribution).
    BoundedPareto {
        /// The exponent of the tail, from 0.1 to 10, not 1. The smaller, the heavier.
        exponent: f64,
        /// The largest value, in means, above 1 and up to 1,000,000.
        most: f64,
    },
}

/// A shape that is none.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{field}` of a distribution is {value}, but must be {must}")]
pub struct ShapeError {
    /// Which number.
    pub field: &'static str,
    /// What was given.
    pub value: f64,
    /// What it can be.
    pub must: &'static str,
}

/// A shape from which factors are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    shape: Shape,
    /// Of a bounded Pareto distribution, the least value that makes its mean 1.
    least: f64,
}

impl Shape {
    /// Gets ready to draw.
    ///
    /// # Errors
    /// [`ShapeError`] names the number that is out of its bounds.
    pub fn sampler(self) -> Result<Sampler, ShapeError> {
        let within = |field, value, fits, must| match fits {
            true => Ok(()),
            false => Err(ShapeError { field, value, must }),
        };
        let mut least = 1.0;
        match self {
            Self::Constant | Self::Exponential => {}
            Self::Uniform { half } => within("half", half, (0.0..=1.0).contains(&half), "from 0 to 1")?,
            Self::LogNormal { sigma } => {
                within("sigma", sigma, (0.0..=3.0).contains(&sigma), "from 0 to 3")?;
            }
            Self::BoundedPareto { exponent, most } => {
                let fits = (0.1..=10.0).contains(&exponent) && exponent != 1.0;
                within("exponent", exponent, fits, "from 0.1 to 10 and not 1")?;
                let fits = most > 1.0 && most <= 1e6;
                within("most", most, fits, "above 1 and at most 1,000,000")?;
                least = least_for_mean_one(exponent, most);
            }
        }
        Ok(Sampler { shape: self, least })
    }
}

impl Sampler {
    /// Draws a factor: positive, 1 on average.
    pub fn draw(&self, random: &mut fastrand::Rng) -> f64 {
        match self.shape {
            Shape::Constant => 1.0,
            // `f64` may be 0 and is never 1.
            Shape::Exponential => -(1.0 - random.f64()).ln(),
            Shape::Uniform { half } => 1.0 + half * (2.0 * random.f64() - 1.0),
            Shape::LogNormal { sigma } => (sigma * normal(random) - sigma * sigma / 2.0).exp(),
            Shape::BoundedPareto { exponent, most } => {
                bounded_pareto(self.least, most, exponent, random.f64())
            }
        }
    }
}

impl Sampler {
    /// The factor that 95 of 100 draws do not exceed.
    pub fn percentile_95(&self) -> f64 {
        match self.shape {
            Shape::Constant => 1.0,
            Shape::Exponential => -0.05_f64.ln(),
            Shape::Uniform { half } => 1.0 + 0.9 * half,
            Shape::LogNormal { sigma } => (sigma * NORMAL_95 - sigma * sigma / 2.0).exp(),
            Shape::BoundedPareto { exponent, most } => bounded_pareto(self.least, most, exponent, 0.95),
        }
    }
}

/// The 95th percentile of the standard normal distribution.
const NORMAL_95: f64 = 1.644_853_626_951_472_2;

/// The value that this share of draws does not exceed.
fn bounded_pareto(least: f64, most: f64, exponent: f64, share: f64) -> f64 {
    let (low, high) = (least.powf(-exponent), most.powf(-exponent));
    (low - share * (low - high)).powf(-1.0 / exponent)
}

/// A draw from the standard normal distribution (Box and Muller, 1958).
pub fn normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (TAU * random.f64()).cos()
}

/// The least value of a bounded Pareto distribution with this exponent and largest value that has mean 1. The mean grows
/// with the least value, so it is found by halving.
fn least_for_mean_one(exponent: f64, most: f64) -> f64 {
    let mean = |least: f64| {
        let share = 1.0 - (least / most).powf(exponent);
        let tail = least.powf(1.0 - exponent) - most.powf(1.0 - exponent);
        least.powf(exponent) / share * exponent / (exponent - 1.0) * tail
    };
    let (mut low, mut high) = (0.0, 1.0);
    // More often than a double has bits.
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        match mean(middle) < 1.0 {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mean_and_most(shape: Shape, draws: u32) -> (f64, f64) {
        let (sampler, mut random) = (shape.sampler().unwrap(), fastrand::Rng::with_seed(1));
        let values = (0..draws).map(|_| sampler.draw(&mut random));
        let (sum, most) = values.fold((0.0, 0.0), |(sum, most): (f64, f64), x| (sum + x, most.max(x)));
        (sum / f64::from(draws), most)
    }

    #[test]
    fn the_mean_is_one() {
        for shape in [
            Shape::Constant,
            Shape::Exponential,
            Shape::Uniform { half: 0.5 },
            Shape::LogNormal { sigma: 0.5 },
            Shape::BoundedPareto {
                exponent: 1.5,
                most: 10.0,
            },
            Shape::BoundedPareto {
                exponent: 0.7,
                most: 10.0,
            },
        ] {
            let (mean, _) = mean_and_most(shape, 200_000);
            // Four standard errors of the widest of them.
            assert!((mean - 1.0).abs() < 0.015, "{shape:?}: {mean}");
        }
    }

    #[test]
    fn five_in_a_hundred_exceed_the_percentile() {
        for shape in [
            Shape::Exponential,
            Shape::Uniform { half: 0.5 },
            Shape::LogNormal { sigma: 0.5 },
            Shape::BoundedPareto {
                exponent: 1.5,
                most: 10.0,
            },
        ] {
            let (sampler, mut random) = (shape.sampler().unwrap(), fastrand::Rng::with_seed(1));
            let bound = sampler.percentile_95();
            let above = (0..100_000).filter(|_| sampler.draw(&mut random) > bound).count();
            // Four standard deviations.
            assert!(above.abs_diff(5_000) < 276, "{shape:?}: {above}");
        }
    }

    #[test]
    fn bounds_hold() {
        let burst = Shape::BoundedPareto {
            exponent: 1.5,
            most: 10.0,
        };
        let (_, most) = mean_and_most(burst, 200_000);
        assert!(most > 9.0 && most <= 10.0, "{most}");
        let uniform = Shape::Uniform { half: 0.25 };
        assert!(mean_and_most(uniform, 10_000).1 <= 1.25);
    }

    #[test]
    fn a_normal_draw_has_variance_one() {
        let mut random = fastrand::Rng::with_seed(2);
        let squares: f64 = (0..100_000).map(|_| normal(&mut random).powi(2)).sum();
        assert!((squares / 1e5 - 1.0).abs() < 0.02, "{squares}");
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        let refused = |shape: Shape| shape.sampler().unwrap_err().to_string();
        assert!(refused(Shape::Uniform { half: 2.0 }).contains("`half`"));
        assert!(refused(Shape::LogNormal { sigma: f64::NAN }).contains("NaN"));
        let pareto = |exponent, most| Shape::BoundedPareto { exponent, most };
        assert!(refused(pareto(1.0, 10.0)).contains("`exponent`"));
        assert!(refused(pareto(1.5, 1.0)).contains("`most`"));
    }

    proptest! {
        #[test]
        fn factors_are_positive(
            exponent in 0.1..10.0f64, most in 1.001..1e6f64, sigma in 0.0..3.0f64, seed in any::<u64>(),
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            for shape in [Shape::BoundedPareto { exponent, most }, Shape::LogNormal { sigma }, Shape::Exponential] {
                let factor = shape.sampler().unwrap().draw(&mut random);
                prop_assert!(factor >= 0.0 && factor.is_finite(), "{shape:?}: {factor}");
            }
        }
    }
}
