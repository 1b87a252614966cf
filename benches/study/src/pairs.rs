//! Paired blocks: ours and theirs measured side by side in random order, the ratio of medians with its bootstrap interval.

use crate::interval::{Estimate, bootstrap};

/// One block: the same thing measured for both.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Pair {
    /// Ours.
    pub ours: f64,
    /// The contender's, in the same block.
    pub theirs: f64,
}

/// Measures `blocks` pairs; which of the two goes first is drawn for each block.
///
/// # Errors
///
/// The first error of either.
pub fn measure(
    blocks: usize,
    mut ours: impl FnMut() -> anyhow::Result<f64>,
    mut theirs: impl FnMut() -> anyhow::Result<f64>,
) -> anyhow::Result<Vec<Pair>> {
    (0..blocks)
        .map(|_| {
            if fastrand::bool() {
                let ours = ours()?;
                Ok(Pair {
                    ours,
                    theirs: theirs()?,
                })
            } else {
                let theirs = theirs()?;
                Ok(Pair {
                    ours: ours()?,
                    theirs,
                })
            }
        })
        .collect()
}

/// Median of the paired ratios ours/theirs, bootstrapped over pairs.
pub fn ratio(pairs: &[Pair]) -> Estimate {
    let ratios: Vec<f64> = pairs.iter().map(|pair| pair.ours / pair.theirs).collect();
    bootstrap(&ratios, |ratios| median(ratios.to_vec()))
}

/// The value below which this share of the values lies.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values
        .get((last as f64 * share).round() as usize)
        .copied()
        .unwrap_or(f64::NAN)
}

/// The middle value, the mean of the two in the middle of an even number, NaN of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_contenders_have_a_ratio_of_one() {
        let pairs = vec![
            Pair {
                ours: 3.0,
                theirs: 3.0
            };
            30
        ];
        let ratio = ratio(&pairs);
        assert_eq!((ratio.value, ratio.lo, ratio.hi), (1.0, 1.0, 1.0));
    }

    #[test]
    fn the_interval_holds_the_median() {
        let pairs: Vec<Pair> = (1..=31)
            .map(|n| Pair {
                ours: f64::from(n),
                theirs: 16.0,
            })
            .collect();
        let ratio = ratio(&pairs);
        assert!(ratio.lo < ratio.value && ratio.value < ratio.hi, "{ratio:?}");
        assert_eq!(ratio.value, 1.0);
    }
}
