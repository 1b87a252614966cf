use super::adapter::check;
use super::{Adapter, LoraError, Weighted};

/// Adapters whose ranks are nested prefixes, averaged segment by segment (the form of PreLort, Waseem et al. 2026): each rank is the mean over those
/// clients that have it. Those below are left out, not counted as zeros. `levels` are the ranks there are, growing; the result has the
/// largest that any adapter has, and each client gets the [`Adapter::prefix`] of its rank.
///
/// Within a segment it is a mean of factors, not of their products.
///
/// # Errors
/// When there is no adapter, one's rank is no level, they are for different weights, or one counts nothing.
pub fn segment_mean(adapters: &[Weighted<'_>], levels: &[usize]) -> Result<Adapter, LoraError> {
    let ((rows, columns), _) = check(adapters)?;
    let segments = segments(adapters, levels)?;
    let rank = segments.last().map_or(0, |segment| segment.1);
    let (mut b, mut a) = (vec![0.0f32; rows * rank], vec![0.0f32; rank * columns]);
    for (from, until) in segments {
        let having: Vec<&Weighted<'_>> = adapters.iter().filter(|it| it.adapter.rank() >= until).collect();
        let total: f64 = having.iter().map(|it| it.weight).sum();
        let mean = |number: &dyn Fn(&Adapter) -> f32| {
            having
                .iter()
                .map(|it| it.weight / total * f64::from(number(it.adapter)))
                .sum::<f64>() as f32
        };
        for k in from..until {
            for i in 0..rows {
                b[i * rank + k] = mean(&|adapter| adapter.b()[i * adapter.rank() + k]);
            }
            for j in 0..columns {
                a[k * columns + j] = mean(&|adapter| adapter.a()[k * columns + j]);
            }
        }
    }
    Adapter::new(rows, columns, rank, b, a)
}

/// The ranks from one level to the next, as far as any adapter goes.
fn segments(adapters: &[Weighted<'_>], levels: &[usize]) -> Result<Vec<(usize, usize)>, LoraError> {
    let growing =
        levels.first().is_some_and(|first| *first > 0) && levels.windows(2).all(|pair| pair[0] < pair[1]);
    let known = |it: &Weighted<'_>| levels.contains(&it.adapter.rank());
    if !growing || !adapters.iter().all(known) {
        return Err(LoraError::Levels);
    }
    let most = adapters.iter().map(|it| it.adapter.rank()).max().unwrap_or(0);
    let starts = std::iter::once(0).chain(levels.iter().copied());
    Ok(starts
        .zip(levels.iter().copied())
        .filter(|(_, until)| *until <= most)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEVELS: [usize; 3] = [1, 2, 4];

    fn drawn(ranks: &[usize], seed: u64) -> Vec<Adapter> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut draw = |count: usize| (0..count).map(|_| random.f32() - 0.5).collect::<Vec<f32>>();
        ranks
            .iter()
            .map(|rank| Adapter::new(5, 6, *rank, draw(5 * rank), draw(rank * 6)).unwrap())
            .collect()
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

        /// Each rank is the mean over those who have it, whatever the others count.
        #[test]
        fn whoever_lacks_a_rank_has_no_say_in_it(seed: u64, weight in 0.1..1000.0f64) {
            let adapters = drawn(&[1, 4, 4], seed);
            let global = segment_mean(&weighted(&adapters, &[weight, 1.0, 3.0]), &LEVELS).unwrap();
            for k in 1..4 {
                for j in 0..6 {
                    let of = |client: usize| f64::from(adapters[client].a()[k * 6 + j]);
                    let mean = (of(1) + 3.0 * of(2)) / 4.0;
                    prop_assert!((f64::from(global.a()[k * 6 + j]) - mean).abs() < 1e-6);
                }
                for i in 0..5 {
                    let of = |client: usize| f64::from(adapters[client].b()[i * 4 + k]);
                    let mean = (of(1) + 3.0 * of(2)) / 4.0;
                    prop_assert!((f64::from(global.b()[i * 4 + k]) - mean).abs() < 1e-6);
                }
            }
        }

        /// Of equal adapters it is that adapter, as far as what it adds is concerned.
        #[test]
        fn of_equal_adapters_it_is_that_adapter(seed: u64, count in 1usize..5) {
            let one = drawn(&[4], seed).remove(0);
            let adapters = vec![one.clone(); count];
            let adapters = weighted(&adapters, &[1.0, 2.0, 3.0, 4.0]);
            let product = one.product();
            let global = segment_mean(&adapters, &LEVELS).unwrap();
            for (x, y) in global.product().iter().zip(&product) {
                prop_assert!((x - y).abs() < 1e-5, "{x} instead of {y}");
            }
        }
    }

    #[test]
    fn a_prefix_is_the_first_ranks() {
        let whole = Adapter::new(2, 2, 2, vec![1.0, 2.0, 3.0, 4.0], vec![5.0, 6.0, 7.0, 8.0]).unwrap();
        let prefix = whole.prefix(1);
        assert_eq!((prefix.b(), prefix.a()), (&[1.0, 3.0][..], &[5.0, 6.0][..]));
        assert_eq!(whole.prefix(9), whole);
    }

    #[test]
    fn a_rank_that_is_no_level_is_an_error() {
        let adapters = drawn(&[3], 1);
        for levels in [&[1, 2][..], &[], &[0, 3], &[3, 3]] {
            assert_eq!(
                segment_mean(&weighted(&adapters, &[1.0]), levels),
                Err(LoraError::Levels)
            );
        }
    }
}
