//! The Rényi divergence of one round: a Gaussian mechanism on a Poisson sample (Mironov, Talwar, Zhang, arXiv 1908.10530).

/// The orders that are kept count of. Small ones decide where much is given away, large ones where little is.
pub(crate) fn orders() -> impl Iterator<Item = f64> {
    let small = (1..100).map(|tenth| 1.0 + f64::from(tenth) / 10.0);
    let large = (11..64).chain([128, 256, 512, 1024]).map(f64::from);
    small.chain(large)
}

/// What one round gives away at an order above 1. `sigma` is the noise's standard deviation over what one client can change; each
/// client is there with chance `rate`.
///
/// With μ0 = N(0, σ²) and μ = (1 - q) μ0 + q N(1, σ²) it is ln E[(μ/μ0)^α] / (α - 1) over μ0; the other direction is never larger.
pub(crate) fn divergence(order: f64, sigma: f64, rate: f64) -> f64 {
    let moment = if rate >= 1.0 {
        order * (order - 1.0) / (2.0 * sigma * sigma)
    } else if order.fract() == 0.0 {
        binomial_moment(order as u32, sigma, rate)
    } else {
        quadrature(order, sigma, rate)
    };
    // Rounding may leave a hair below zero.
    moment.max(0.0) / (order - 1.0)
}

/// ln Σ C(α, k) (1 - q)^(α - k) q^k exp((k² - k) / 2σ²).
fn binomial_moment(order: u32, sigma: f64, rate: f64) -> f64 {
    let factorial = |n: u32| libm::lgamma(f64::from(n) + 1.0);
    let term = |hits: u32| {
        let (all, hit) = (f64::from(order), f64::from(hits));
        let ways = factorial(order) - factorial(hits) - factorial(order - hits);
        ways + hit * rate.ln() + (all - hit) * (-rate).ln_1p() + (hit * hit - hit) / (2.0 * sigma * sigma)
    };
    ln_sum_exp((0..=order).map(term))
}

/// The same moment as an integral, for orders between integers. The trapezoidal rule on a smooth function that vanishes at both ends
/// is as exact as the arithmetic, if its step is small against both σ and the distance πσ² of the function's nearest singularity.
fn quadrature(order: f64, sigma: f64, rate: f64) -> f64 {
    let variance = sigma * sigma;
    let step = (sigma / 6.0).min(variance / 3.0);
    let (from, to) = (-12.0 * sigma, order + 12.0 * sigma);
    let points = ((to - from) / step).ceil() as u32;
    let term = |point: u32| {
        let x = from + f64::from(point) * step;
        let shifted = rate.ln() + (2.0 * x - 1.0) / (2.0 * variance);
        order * ln_add_exp((-rate).ln_1p(), shifted) - x * x / (2.0 * variance)
    };
    ln_sum_exp((0..=points).map(term)) + (step / (sigma * std::f64::consts::TAU.sqrt())).ln()
}

fn ln_add_exp(one: f64, other: f64) -> f64 {
    let (small, large) = (one.min(other), one.max(other));
    large + (small - large).exp().ln_1p()
}

fn ln_sum_exp(terms: impl Iterator<Item = f64>) -> f64 {
    let terms: Vec<_> = terms.collect();
    let largest = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    largest + terms.iter().map(|term| (term - largest).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_and_the_integral_agree() {
        for (sigma, rate) in [(0.4, 0.3), (1.0, 0.01), (1.0, 0.5), (5.0, 0.2), (40.0, 0.001)] {
            for order in [2_u32, 3, 7, 32] {
                let sum = binomial_moment(order, sigma, rate);
                let integral = quadrature(f64::from(order), sigma, rate);
                assert!(
                    (sum - integral).abs() < 1e-9 * sum.abs().max(1e-3),
                    "{sigma} {rate} {order}: {sum} {integral}"
                );
            }
        }
    }

    #[test]
    fn everybody_is_the_plain_mechanism_and_fewer_give_away_less() {
        for order in orders() {
            let all = divergence(order, 2.0, 1.0);
            assert!((all - order / 8.0).abs() < 1e-12);
            let nearly = divergence(order, 2.0, 1.0 - 1e-12);
            assert!((nearly - all).abs() < 1e-6 * all, "{order}: {nearly} {all}");
            assert!(divergence(order, 2.0, 0.1) < divergence(order, 2.0, 0.2));
            assert!(divergence(order, 3.0, 0.1) < divergence(order, 2.0, 0.1));
        }
    }
}
