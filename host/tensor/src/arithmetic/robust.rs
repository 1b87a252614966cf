/// The squared Euclidean distance of each two arrays, row-major: `distances[i * n + j]`. The arrays must be equally long; of two
/// that are not, the longer one's rest does not count.
pub fn squared_distances(arrays: &[&[f32]]) -> Vec<f64> {
    let count = arrays.len();
    let mut distances = vec![0.0; count * count];
    for i in 0..count {
        for j in 0..i {
            let distance = squared_distance(arrays[i], arrays[j]);
            distances[i * count + j] = distance;
            distances[j * count + i] = distance;
        }
    }
    distances
}

/// Added up in `f32` over short stretches, which a processor does eight at a time, and in `f64` over these.
fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
    const LANES: usize = 16;
    let stretch = |a: &[f32], b: &[f32]| {
        let mut lanes = [0.0f32; LANES];
        let (a, rest_a) = a.as_chunks::<LANES>();
        let (b, rest_b) = b.as_chunks::<LANES>();
        for (a, b) in a.iter().zip(b) {
            for lane in 0..LANES {
                lanes[lane] += (a[lane] - b[lane]) * (a[lane] - b[lane]);
            }
        }
        let rest = rest_a
            .iter()
            .zip(rest_b)
            .map(|(a, b)| f64::from((a - b) * (a - b)));
        lanes.iter().map(|lane| f64::from(*lane)).sum::<f64>() + rest.sum::<f64>()
    };
    a.chunks(1024)
        .zip(b.chunks(1024))
        .map(|(a, b)| stretch(a, b))
        .sum()
}

/// Per coordinate the mean of what is left when the `drop` smallest and the `drop` largest are gone. At least one is left: with
/// half or more to be dropped it is the median. Weights play no part: they would give a liar his influence back.
///
/// The arrays must be equally long; none of them, no coordinates.
pub fn trimmed_mean(arrays: &[&[f32]], drop: usize) -> Vec<f32> {
    let drop = drop.min(arrays.len().saturating_sub(1) / 2);
    by_coordinate(arrays, |sorted| mean(&sorted[drop..sorted.len() - drop]))
}

/// Per coordinate the mean of the `keep` values nearest to the median (at least one), as Bulyan ends.
///
/// The arrays must be equally long; none of them, no coordinates.
pub fn mean_around_median(arrays: &[&[f32]], keep: usize) -> Vec<f32> {
    let keep = keep.clamp(1, arrays.len().max(1));
    by_coordinate(arrays, |sorted| {
        let median = median(sorted);
        // The nearest ones lie side by side: the window whose farther end is nearest.
        let farther = |window: &&[f32]| {
            let (low, high) = (window[0], window[window.len() - 1]);
            (median - low).max(high - median)
        };
        let nearest = sorted
            .windows(keep)
            .min_by(|a, b| farther(a).total_cmp(&farther(b)));
        mean(nearest.unwrap_or(sorted))
    })
}

/// Computes one number from the sorted values of each coordinate, so that the order of the arrays does not matter.
fn by_coordinate(arrays: &[&[f32]], number: impl Fn(&[f32]) -> f32) -> Vec<f32> {
    let length = arrays.iter().map(|array| array.len()).min().unwrap_or(0);
    let mut column = vec![0.0; arrays.len()];
    let coordinate = |i: usize| {
        for (value, array) in column.iter_mut().zip(arrays) {
            *value = array[i];
        }
        column.sort_unstable_by(f32::total_cmp);
        number(&column)
    };
    (0..length).map(coordinate).collect()
}

fn mean(values: &[f32]) -> f32 {
    (values.iter().map(|value| f64::from(*value)).sum::<f64>() / values.len() as f64) as f32
}

fn median(sorted: &[f32]) -> f32 {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => mean(&sorted[middle - 1..=middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arrays() -> impl Strategy<Value = Vec<Vec<f32>>> {
        (1usize..8, 1usize..12).prop_flat_map(|(length, count)| {
            prop::collection::vec(prop::collection::vec(-10.0f32..10.0, length), count)
        })
    }

    fn views(arrays: &[Vec<f32>]) -> Vec<&[f32]> {
        arrays.iter().map(Vec::as_slice).collect()
    }

    proptest! {
        #[test]
        fn the_order_of_the_arrays_does_not_matter(arrays in arrays(), drop in 0usize..6, turn in 0usize..12) {
            let mut turned = arrays.clone();
            turned.rotate_left(turn % arrays.len());
            turned.reverse();
            let (arrays, turned) = (views(&arrays), views(&turned));
            prop_assert_eq!(trimmed_mean(&arrays, drop), trimmed_mean(&turned, drop));
            prop_assert_eq!(mean_around_median(&arrays, drop), mean_around_median(&turned, drop));
        }

        #[test]
        fn as_many_liars_as_are_dropped_on_a_side_stay_within_the_honest_range(
            honest in prop::collection::vec(prop::collection::vec(-1.0f32..1.0, 4), 5..9),
            lies in prop::collection::vec(prop::collection::vec(-1e6f32..1e6, 4), 0..3),
        ) {
            let all: Vec<&[f32]> = honest.iter().chain(&lies).map(Vec::as_slice).collect();
            for (i, x) in trimmed_mean(&all, lies.len()).iter().enumerate() {
                let honest = honest.iter().map(|array| array[i]);
                let (least, most) = honest.fold((2.0f32, -2.0f32), |(a, b), y| (a.min(y), b.max(y)));
                prop_assert!((least..=most).contains(x), "{x} is not in {least}..{most}");
            }
        }

        /// Against the definition: sort by distance from the median, take the first ones.
        #[test]
        fn the_window_holds_the_nearest(column in prop::collection::vec(-10.0f32..10.0, 1..12), keep in 1usize..12) {
            let keep = keep.min(column.len());
            let arrays: Vec<&[f32]> = column.iter().map(std::slice::from_ref).collect();
            let mut sorted = column.clone();
            sorted.sort_by(f32::total_cmp);
            let median = median(&sorted);
            sorted.sort_by(|a, b| (a - median).abs().total_cmp(&(b - median).abs()));
            let farthest = (sorted[keep - 1] - median).abs();
            // Where two lie equally far on both sides, either may count.
            let tied = sorted.get(keep).is_some_and(|x| (x - median).abs() <= farthest + 1e-6);
            prop_assume!(!tied);
            let expected = mean(&sorted[..keep]);
            prop_assert!((mean_around_median(&arrays, keep)[0] - expected).abs() < 1e-5);
        }

        #[test]
        fn distances_are_those_of_the_definition(arrays in arrays()) {
            let count = arrays.len();
            let distances = squared_distances(&views(&arrays));
            for (i, a) in arrays.iter().enumerate() {
                for (j, b) in arrays.iter().enumerate() {
                    let exact: f64 = a.iter().zip(b).map(|(x, y)| f64::from(x - y).powi(2)).sum();
                    prop_assert!((distances[i * count + j] - exact).abs() <= 1e-5 * exact);
                }
            }
        }
    }

    #[test]
    fn with_half_to_drop_it_is_the_median() {
        let arrays: [&[f32]; 4] = [&[1.0], &[9.0], &[3.0], &[2.0]];
        assert_eq!(trimmed_mean(&arrays, 2), [2.5]);
        assert_eq!(trimmed_mean(&arrays[..3], usize::MAX), [3.0]);
        assert!(trimmed_mean(&[], 1).is_empty() && mean_around_median(&[], 1).is_empty());
    }
}
