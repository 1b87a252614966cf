use serde::{Deserialize, Serialize};

const BUCKETS: usize = 256;

/// A count sketch (Charikar et al. 2002): each number is added to one of 256 buckets with a sign, both decided by its position. Inner products
/// of sketches are those of the arrays up to a relative error of about 1/16, so an update can be compared with an aggregate that is known only
/// when the update is gone.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Sketch(Vec<f64>);

impl Sketch {
    pub(crate) fn zero() -> Self {
        Self(vec![0.0; BUCKETS])
    }

    pub(crate) fn of(values: &[f32]) -> Self {
        let mut buckets = vec![0.0; BUCKETS];
        for (i, value) in values.iter().enumerate() {
            // Multiplicative hashing: the high bits depend on all bits of the position.
            let hash = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let hash = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
            buckets[(hash >> 40) as usize % BUCKETS] += sign * f64::from(*value);
        }
        Self(buckets)
    }

    pub(crate) fn add(&mut self, factor: f64, other: &Self) {
        self.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(sum, x)| *sum += factor * x);
    }

    fn dot(&self, other: &Self) -> f64 {
        self.0.iter().zip(&other.0).map(|(x, y)| x * y).sum()
    }

    /// The cosine between the two arrays, about; 0 where one of them is zero.
    pub(crate) fn cosine(&self, other: &Self) -> f64 {
        let norms = (self.dot(self) * other.dot(other)).sqrt();
        match norms > 0.0 {
            true => (self.dot(other) / norms).clamp(-1.0, 1.0),
            false => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosines_survive() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut noise = || -> Vec<f32> { (0..5000).map(|_| random.f32() - 0.5).collect() };
        let (a, b) = (noise(), noise());
        for share in [0.0, 0.3, 0.7, 1.0f32] {
            let mixed: Vec<f32> = a
                .iter()
                .zip(&b)
                .map(|(x, y)| share * x + (1.0 - share) * y)
                .collect();
            let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(x * y)).sum::<f64>();
            let exact = dot(&a, &mixed) / (dot(&a, &a) * dot(&mixed, &mixed)).sqrt();
            let sketched = Sketch::of(&a).cosine(&Sketch::of(&mixed));
            assert!((exact - sketched).abs() < 0.2, "{exact} was taken for {sketched}");
        }
        assert_eq!(Sketch::of(&a).cosine(&Sketch::zero()), 0.0);
    }
}
