//! Paired blocks: ours and theirs measured side by side in random order, the ratio of medians with its bootstrap interval.

/// One block: the same thing measured for both.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Pair {
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
}

/// A ratio ours/theirs with its 95 % interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    pub(crate) value: f64,
    pub(crate) lo: f64,
    pub(crate) hi: f64,
}

const RESAMPLES: usize = 2_000;

/// Measures `blocks` pairs; which of the two goes first is drawn for each block.
pub(crate) fn measure(
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

/// Median of the paired ratios, bootstrapped over pairs with a fixed seed.
pub(crate) fn ratio(pairs: &[Pair]) -> Ratio {
    let ratios: Vec<f64> = pairs.iter().map(|pair| pair.ours / pair.theirs).collect();
    let mut random = fastrand::Rng::with_seed(7);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            median(
                (0..ratios.len())
                    .map(|_| ratios[random.usize(..ratios.len())])
                    .collect(),
            )
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Ratio {
        value: median(ratios),
        lo: medians[RESAMPLES * 25 / 1000],
        hi: medians[RESAMPLES * 975 / 1000],
    }
}

/// The value below which this share of the values lies.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values
        .get((last as f64 * share).round() as usize)
        .copied()
        .unwrap_or(f64::NAN)
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
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
