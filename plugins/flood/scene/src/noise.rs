//! Randomness that belongs to a place: the same seed and place give the same value.

/// From 0 to 1, by a place on a grid.
pub(crate) fn grain(seed: u32, column: u32, row: u32) -> f32 {
    let mut mixed = seed
        .wrapping_mul(0x9e37_79b1)
        .wrapping_add(column.wrapping_mul(0x85eb_ca77))
        .wrapping_add(row.wrapping_mul(0xc2b2_ae3d));
    for _ in 0..2 {
        mixed ^= mixed >> 15;
        mixed = mixed.wrapping_mul(0x2c1b_3c6d);
        mixed ^= mixed >> 12;
        mixed = mixed.wrapping_mul(0x297a_2d39);
    }
    (mixed >> 8) as f32 / (1 << 24) as f32
}

/// From 0 to 1, smooth, with hills about so many pixels wide.
fn hills(seed: u32, column: f32, row: f32, wide: f32) -> f32 {
    let (across, down) = (column / wide, row / wide);
    let (west, north) = (across as u32, down as u32);
    let ease = |at: f32| at * at * (3.0 - 2.0 * at);
    let (x, y) = (ease(across - west as f32), ease(down - north as f32));
    let at = |dx: u32, dy: u32| grain(seed, west + dx, north + dy);
    let upper = at(0, 0) + x * (at(1, 0) - at(0, 0));
    let lower = at(0, 1) + x * (at(1, 1) - at(0, 1));
    upper + y * (lower - upper)
}

/// From 0 to 1: hills with smaller ones on them.
pub(crate) fn rough(seed: u32, column: f32, row: f32, wide: f32) -> f32 {
    let (mut sum, mut weight, mut all, mut wide) = (0.0, 1.0, 0.0, wide);
    for octave in 0..4 {
        sum += weight * hills(seed.wrapping_add(octave * 7919), column, row, wide);
        all += weight;
        (weight, wide) = (weight / 2.0, wide / 2.0);
    }
    sum / all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fills_its_range_evenly() {
        let grains: Vec<f32> = (0..10_000).map(|at| grain(3, at % 100, at / 100)).collect();
        let mean = grains.iter().sum::<f32>() / grains.len() as f32;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        assert!(grains.iter().all(|grain| (0.0..1.0).contains(grain)));
    }

    #[test]
    fn neighbours_are_alike() {
        let steps = (0..500u16).map(|at| {
            let value = |column: u16| rough(5, f32::from(column), 9.0, 40.0);
            (value(at) - value(at + 1)).abs()
        });
        let most = steps.fold(0.0, f32::max);
        assert!(most < 0.12, "{most}");
    }
}
