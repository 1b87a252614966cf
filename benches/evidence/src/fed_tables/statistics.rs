//! The signed-rank test, and Holm's correction for many of them.

/// The two-sided p-value of Wilcoxon's signed-rank test, exact: by the distribution of the rank sum over all signs, with middle ranks where
/// differences tie. Differences of zero say nothing and are left out; with none left the value is 1.
pub(super) fn signed_rank(differences: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    sorted.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    // Twice the rank, so that middle ranks are whole.
    let mut ranks = vec![0usize; sorted.len()];
    let mut from = 0;
    while from < sorted.len() {
        let tied = sorted[from..]
            .iter()
            .take_while(|d| d.abs() == sorted[from].abs())
            .count();
        ranks[from..from + tied].fill(2 * from + tied + 1);
        from += tied;
    }
    let total: usize = ranks.iter().sum();
    let mut ways = vec![0.0f64; total + 1];
    ways[0] = 1.0;
    for rank in &ranks {
        for sum in (*rank..=total).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let positive: usize = ranks
        .iter()
        .zip(&sorted)
        .filter(|(_, d)| **d > 0.0)
        .map(|(rank, _)| rank)
        .sum();
    let smaller = positive.min(total - positive);
    let tail: f64 = ways[..=smaller].iter().sum();
    (2.0 * tail / 2f64.powi(sorted.len() as i32)).min(1.0)
}

/// Holm's correction: the k-th smallest of n p-values is multiplied by n − k + 1, and none is smaller than one before it.
pub(super) fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut corrected = vec![1.0; p_values.len()];
    let mut least = 0.0f64;
    for (place, i) in order.iter().enumerate() {
        least = least.max(p_values[*i] * (p_values.len() - place) as f64).min(1.0);
        corrected[*i] = least;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_pairs_cannot_reach_significance() {
        assert_eq!(signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0]), 0.0625);
        assert_eq!(signed_rank(&[0.0, 0.0]), 1.0);
        assert_eq!(signed_rank(&[1.0, -1.0]), 1.0);
    }

    #[test]
    fn a_known_table_value() {
        // n = 10, rank sum 8: p = 0.0488.
        let differences = [-1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -7.0, 8.0, 9.0, 10.0];
        assert!((signed_rank(&differences) - 0.048_828).abs() < 1e-5);
    }

    #[test]
    fn holm_never_corrects_downwards() {
        let corrected = holm(&[0.01, 0.04, 0.03]);
        assert!(
            corrected
                .iter()
                .zip([0.03, 0.06, 0.06])
                .all(|(a, b): (&f64, f64)| (a - b).abs() < 1e-12)
        );
    }
}
