//! Distributions that a generator of uniform numbers does not have.

use fastrand::Rng;
use karman_sim::normal;

/// Log-normal with median 1.
pub(super) fn log_normal(sigma: f64, random: &mut Rng) -> f64 {
    (sigma * normal(random)).exp()
}

/// Shares that sum to one.
pub(super) fn dirichlet(alpha: f64, count: usize, random: &mut Rng) -> Vec<f64> {
    let drawn: Vec<f64> = (0..count).map(|_| gamma(alpha, random)).collect();
    let sum: f64 = drawn.iter().sum();
    drawn.iter().map(|x| x / sum).collect()
}

/// Gamma with scale 1 (Marsaglia and Tsang 2000).
fn gamma(shape: f64, random: &mut Rng) -> f64 {
    if shape < 1.0 {
        let boost = (1.0 - random.f64()).powf(1.0 / shape);
        return gamma(shape + 1.0, random) * boost;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(random);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - random.f64()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}
