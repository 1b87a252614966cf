//! The valley of the Clinch river above Norris, Tennessee: heights that the space shuttle measured (SRTM, 3 arc seconds), and water
//! in it.

use crate::SIDE;
use std::collections::VecDeque;

/// Heights in metres, row by row from the north: a 16-bit PGM. NASA and USGS, in the public domain.
const HEIGHTS: &[u8] = include_bytes!("../norris.pgm");
/// The length of its header.
const HEADER: usize = b"P5\n192 192\n65535\n".len();
/// Measured heights from side to side.
const MEASURED: usize = 192;

/// Pixels of the terrain from west to east: one on each measured height, and one between any two.
pub const COLUMNS: usize = 2 * MEASURED - 1;
/// Pixels from north to south.
pub const ROWS: usize = COLUMNS;
/// What a pixel covers, in square metres: 1.5 by 1.5 arc seconds at 36.55 degrees north.
pub const PIXEL_AREA: f32 = 37.2 * 46.3;

fn measured(column: usize, row: usize) -> f32 {
    let at = HEADER + 2 * (row * MEASURED + column);
    f32::from(u16::from_be_bytes([HEIGHTS[at], HEIGHTS[at + 1]]))
}

/// The height of a pixel: measured, or between those beside it.
fn height(column: usize, row: usize) -> f32 {
    let (west, north) = (column / 2, row / 2);
    let (east, south) = (column.div_ceil(2), row.div_ceil(2));
    let above = measured(west, north) + measured(east, north);
    let below = measured(west, south) + measured(east, south);
    (above + below) / 4.0
}

/// The heights of a picture, in metres.
pub(crate) fn window(column: usize, row: usize) -> Vec<f32> {
    let of = |at: usize| height(column + at % SIDE, row + at / SIDE);
    (0..SIDE * SIDE).map(of).collect()
}

/// How deep the water is in each pixel when it stands so high over the lowest one; 0 where it does not come to.
pub(crate) fn fill(heights: &[f32], level: f32) -> Vec<f32> {
    let lowest = (0..heights.len()).min_by(|one, other| heights[*one].total_cmp(&heights[*other]));
    let Some(lowest) = lowest else { return Vec::new() };
    let surface = heights[lowest] + level;
    let mut depth = vec![0.0; heights.len()];
    let mut reached = VecDeque::new();
    let reach = |at: usize, depth: &mut Vec<f32>, reached: &mut VecDeque<usize>| {
        if depth[at] == 0.0 && heights[at] < surface {
            depth[at] = surface - heights[at];
            reached.push_back(at);
        }
    };
    reach(lowest, &mut depth, &mut reached);
    while let Some(at) = reached.pop_front() {
        let (column, row) = (at % SIDE, at / SIDE);
        if column > 0 {
            reach(at - 1, &mut depth, &mut reached);
        }
        if column + 1 < SIDE {
            reach(at + 1, &mut depth, &mut reached);
        }
        if row > 0 {
            reach(at - SIDE, &mut depth, &mut reached);
        }
        if row + 1 < SIDE {
            reach(at + SIDE, &mut depth, &mut reached);
        }
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_what_it_says() {
        assert!(HEIGHTS.starts_with(b"P5\n192 192\n65535\n"));
        assert_eq!(HEIGHTS.len(), HEADER + 2 * MEASURED * MEASURED);
        let (mut least, mut most) = (f32::MAX, f32::MIN);
        for at in 0..MEASURED * MEASURED {
            let height = measured(at % MEASURED, at / MEASURED);
            (least, most) = (least.min(height), most.max(height));
        }
        assert!(
            (200.0..300.0).contains(&least) && (800.0..1200.0).contains(&most),
            "{least} {most}"
        );
    }

    #[test]
    fn water_does_not_cross_a_ridge() {
        let mut heights = vec![10.0; SIDE * SIDE];
        for row in 0..SIDE {
            heights[row * SIDE + 50] = 100.0;
        }
        heights[0] = 5.0;
        let depth = fill(&heights, 20.0);
        assert_eq!(
            (depth[0], depth[49], depth[50], depth[51]),
            (20.0, 15.0, 0.0, 0.0)
        );
    }
}
