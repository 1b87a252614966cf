use super::adapter::check;
use super::{Adapter, LoraError, Weighted};
use nalgebra::DMatrix;

/// Steps after which the decomposition gives up: far more than one of a few hundred columns takes.
const MOST_STEPS: usize = 100_000;

/// The weighted mean of what adapters add to a weight, in the factors of its singular value decomposition.
#[derive(Clone, Debug)]
pub struct Compressed {
    /// Left singular vectors, `rows × rank`.
    left: DMatrix<f64>,
    /// Right singular vectors, `columns × rank`.
    right: DMatrix<f64>,
    singular: Vec<f64>,
    kept: usize,
}

/// FLoRIST (Ramesh and Dass 2026): the stack of all B and the stack of all weighted A have the exact mean `Σ (n_k / n) B_k A_k` as their
/// product; of its singular values the first are kept whose squares make up `threshold` of the sum of all squares.
///
/// Here by two thin QR decompositions and one singular value decomposition as small as the sum of the ranks, in double precision: the weight
/// itself is never formed.
///
/// # Errors
/// When there is no adapter, they are for different weights, one counts nothing, or the threshold is not in (0, 1].
pub fn florist(adapters: &[Weighted<'_>], threshold: f64) -> Result<Compressed, LoraError> {
    let ((rows, columns), total) = check(adapters)?;
    if !(threshold > 0.0 && threshold <= 1.0) {
        return Err(LoraError::Threshold(threshold));
    }
    let stacked: usize = adapters.iter().map(|it| it.adapter.rank()).sum();
    let mut b = DMatrix::zeros(rows, stacked);
    let mut a_transposed = DMatrix::zeros(columns, stacked);
    let mut from = 0;
    for Weighted { adapter, weight } in adapters {
        let rank = adapter.rank();
        b.columns_mut(from, rank).copy_from(&adapter.b_matrix());
        let share = adapter.a_matrix().transpose() * (weight / total);
        a_transposed.columns_mut(from, rank).copy_from(&share);
        from += rank;
    }
    let (of_b, of_a) = (b.qr(), a_transposed.qr());
    let core = of_b.r() * of_a.r().transpose();
    let svd = core.try_svd(true, true, f64::EPSILON, MOST_STEPS);
    let svd = svd.ok_or(LoraError::NotConverged)?;
    let (Some(u), Some(v_transposed)) = (svd.u, svd.v_t) else {
        return Err(LoraError::NotConverged);
    };
    let singular: Vec<f64> = svd.singular_values.iter().copied().collect();
    Ok(Compressed {
        left: of_b.q() * u,
        right: of_a.q() * v_transposed.transpose(),
        kept: kept(&singular, threshold),
        singular,
    })
}

/// How many of the largest singular values make up the share of all squares; at least one.
fn kept(singular: &[f64], threshold: f64) -> usize {
    let all: f64 = singular.iter().map(|s| s * s).sum();
    // Everything means every value that is more than rounding: the stack may have more columns than rank.
    if threshold == 1.0 {
        let noise = singular.first().copied().unwrap_or(0.0) * 1e-14;
        return singular.iter().filter(|s| **s > noise).count().max(1);
    }
    let mut energy = 0.0;
    let enough = singular.iter().position(|s| {
        energy += s * s;
        energy >= threshold * all
    });
    enough.map_or(singular.len(), |last| last + 1).max(1)
}

impl Compressed {
    /// All singular values of the mean, the largest first.
    pub fn singular_values(&self) -> &[f64] {
        &self.singular
    }

    /// How many of them are kept.
    pub fn rank(&self) -> usize {
        self.kept
    }

    /// The share of the squares of all singular values that is kept: the relative error in the Frobenius norm is
    /// `√(1 − energy)` (Eckart and Young).
    pub fn energy(&self) -> f64 {
        let square = |values: &[f64]| values.iter().map(|s| s * s).sum::<f64>();
        let all = square(&self.singular);
        match all > 0.0 {
            true => square(&self.singular[..self.kept]) / all,
            false => 1.0,
        }
    }

    /// The pair that is broadcast: clients add its product to their weight and begin new adapters.
    pub fn adapter(&self) -> Adapter {
        self.split(self.kept, 1.0, 0.0)
    }

    /// The best pair of a rank, with the singular values shared evenly between both factors: a client of that rank trains on from it (as
    /// FlexLoRA does).
    pub fn for_rank(&self, rank: usize) -> Adapter {
        self.split(rank.clamp(1, self.singular.len()), 0.5, 0.5)
    }

    /// The first columns, with these powers of the singular values in B and in A.
    fn split(&self, rank: usize, in_b: f64, in_a: f64) -> Adapter {
        let b = DMatrix::from_fn(self.left.nrows(), rank, |i, j| {
            self.left[(i, j)] * self.singular[j].powf(in_b)
        });
        let a = DMatrix::from_fn(rank, self.right.nrows(), |i, j| {
            self.right[(j, i)] * self.singular[i].powf(in_a)
        });
        Adapter::of_matrices(&b, &a)
    }
}

#[cfg(test)]
mod tests {
    use super::super::factor_mean;
    use super::*;
    use proptest::prelude::*;

    fn adapter(rows: usize, columns: usize, rank: usize, random: &mut fastrand::Rng) -> Adapter {
        let mut draw = |count: usize| (0..count).map(|_| random.f32() - 0.5).collect::<Vec<f32>>();
        let (b, a) = (draw(rows * rank), draw(rank * columns));
        Adapter::new(rows, columns, rank, b, a).unwrap()
    }

    /// The mean of the products, by the definition.
    fn exact(adapters: &[Adapter], weights: &[f64]) -> Vec<f64> {
        let total: f64 = weights.iter().sum();
        let mut sum = vec![0.0; adapters[0].b().len() / adapters[0].rank() * adapters[0].shape().1];
        for (adapter, weight) in adapters.iter().zip(weights) {
            let (rows, columns) = adapter.shape();
            for i in 0..rows {
                for j in 0..columns {
                    let product: f64 = (0..adapter.rank())
                        .map(|k| {
                            f64::from(adapter.b()[i * adapter.rank() + k])
                                * f64::from(adapter.a()[k * columns + j])
                        })
                        .sum();
                    sum[i * columns + j] += weight / total * product;
                }
            }
        }
        sum
    }

    fn distance(a: &[f32], b: &[f64]) -> f64 {
        let square: f64 = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum();
        (square / b.iter().map(|b| b * b).sum::<f64>()).sqrt()
    }

    fn weighted<'a>(adapters: &'a [Adapter], weights: &[f64]) -> Vec<Weighted<'a>> {
        adapters
            .iter()
            .zip(weights)
            .map(|(adapter, weight)| Weighted {
                adapter,
                weight: *weight,
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn with_everything_kept_it_is_exact(
            rows in 1usize..12, columns in 1usize..12, seed: u64,
            clients in prop::collection::vec((1usize..6, 1.0..100.0f64), 1..6),
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let adapters: Vec<Adapter> =
                clients.iter().map(|(rank, _)| adapter(rows, columns, *rank, &mut random)).collect();
            let weights: Vec<f64> = clients.iter().map(|(_, weight)| *weight).collect();
            let compressed = florist(&weighted(&adapters, &weights), 1.0).unwrap();
            let error = distance(&compressed.adapter().product(), &exact(&adapters, &weights));
            prop_assert!(error < 1e-5, "{error}");
            prop_assert!(compressed.rank() <= rows.min(columns));
            let full = compressed.for_rank(usize::MAX).product();
            prop_assert!(distance(&full, &exact(&adapters, &weights)) < 1e-5);
        }

        /// Eckart and Young: what is lost is exactly what the dropped singular values hold.
        #[test]
        fn below_that_the_error_is_the_least_possible(seed: u64, threshold in 0.3..0.999f64) {
            let mut random = fastrand::Rng::with_seed(seed);
            let adapters: Vec<Adapter> = [2, 3, 5].map(|rank| adapter(10, 14, rank, &mut random)).into();
            let weights = [1.0, 2.0, 3.0];
            let compressed = florist(&weighted(&adapters, &weights), threshold).unwrap();
            let energy = compressed.energy();
            prop_assert!(energy >= threshold - 1e-12);
            let error = distance(&compressed.adapter().product(), &exact(&adapters, &weights));
            prop_assert!((error - (1.0 - energy).max(0.0).sqrt()).abs() < 1e-5, "{error}, energy {energy}");
            if compressed.rank() > 1 {
                let fewer: f64 = compressed.singular_values()[..compressed.rank() - 1].iter().map(|s| s * s).sum();
                let all: f64 = compressed.singular_values().iter().map(|s| s * s).sum();
                prop_assert!(fewer / all < threshold);
            }
        }

        /// With one and the same A, means of factors are exact too; else they are not.
        #[test]
        fn means_of_factors_are_exact_only_for_a_common_factor(seed: u64) {
            let mut random = fastrand::Rng::with_seed(seed);
            let (one, other) = (adapter(6, 7, 2, &mut random), adapter(6, 7, 2, &mut random));
            let shared = Adapter::new(6, 7, 2, other.b().to_vec(), one.a().to_vec()).unwrap();
            let weights = [1.0, 3.0];
            let same = [one.clone(), shared];
            let error = distance(&factor_mean(&weighted(&same, &weights)).unwrap().product(), &exact(&same, &weights));
            prop_assert!(error < 1e-5, "{error}");
            let apart = [one, other];
            let error = distance(&factor_mean(&weighted(&apart, &weights)).unwrap().product(), &exact(&apart, &weights));
            prop_assert!(error > 1e-3, "{error}");
        }
    }

    #[test]
    fn what_cannot_be_aggregated_is_named() {
        let mut random = fastrand::Rng::with_seed(1);
        let (one, other) = (adapter(3, 4, 1, &mut random), adapter(4, 3, 1, &mut random));
        assert_eq!(florist(&[], 1.0).unwrap_err(), LoraError::None);
        let mixed = [
            Weighted {
                adapter: &one,
                weight: 1.0,
            },
            Weighted {
                adapter: &other,
                weight: 1.0,
            },
        ];
        assert!(matches!(
            florist(&mixed, 1.0),
            Err(LoraError::Shape { index: 1, .. })
        ));
        let weightless = [Weighted {
            adapter: &one,
            weight: f64::NAN,
        }];
        assert!(matches!(
            florist(&weightless, 1.0),
            Err(LoraError::Weight { index: 0, .. })
        ));
        for threshold in [0.0, 1.1, f64::NAN] {
            assert!(matches!(
                florist(&mixed[..1], threshold),
                Err(LoraError::Threshold(_))
            ));
        }
        assert!(matches!(
            Adapter::new(1, 1, 0, vec![], vec![]),
            Err(LoraError::Empty { .. })
        ));
        assert!(matches!(
            Adapter::new(1, 1, 1, vec![f32::NAN], vec![1.0]),
            Err(LoraError::NotFinite { factor: "b" })
        ));
        assert!(matches!(
            Adapter::new(2, 1, 1, vec![1.0], vec![1.0]),
            Err(LoraError::Length { factor: "b", .. })
        ));
    }

    #[test]
    fn adapters_of_zeros_are_zero() {
        let zero = Adapter::new(3, 4, 2, vec![0.0; 6], vec![0.0; 8]).unwrap();
        let compressed = florist(
            &[Weighted {
                adapter: &zero,
                weight: 1.0,
            }],
            0.9,
        )
        .unwrap();
        assert_eq!((compressed.rank(), compressed.energy()), (1, 1.0));
        assert!(compressed.adapter().product().iter().all(|x| *x == 0.0));
    }
}
