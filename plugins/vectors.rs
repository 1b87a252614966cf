//! Sums over rows of numbers, in a form of which compilers make vector instructions. Crates take this file in by its path.

/// Adds `share` times a row. Both are of one length.
pub(crate) fn add(sum: &mut [f32], row: &[f32], share: f32) {
    sum.iter_mut()
        .zip(row)
        .for_each(|(sum, value)| *sum += share * value);
}

/// The sum of products. Both are of one length.
pub(crate) fn dot(one: &[f32], other: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 8];
    let ((one, rest), (other, other_rest)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    for (one, other) in one.iter().zip(other) {
        (0..8).for_each(|lane| lanes[lane] += one[lane] * other[lane]);
    }
    let rest: f32 = rest.iter().zip(other_rest).map(|(one, other)| one * other).sum();
    lanes.iter().sum::<f32>() + rest
}
