//! The product of two matrices: four rows and eight columns of it at a time, so that its sums stay in registers.

use crate::lanes::Four;

/// Columns of one panel.
pub(crate) const WIDE: usize = 8;

/// Rows of the left matrix that share what is read of the right one.
const TALL: usize = 4;

/// A matrix in panels of [`WIDE`] columns, each with its rows one after the other; the last one is filled up.
pub(crate) struct Panels {
    inner: usize,
    columns: usize,
    lines: Vec<[Four; 2]>,
}

impl Panels {
    /// One in which so many rows and columns, each at least 1, find room.
    #[cfg_attr(target_arch = "wasm32", target_feature(enable = "simd128"))]
    pub(crate) fn new(inner: usize, columns: usize) -> Self {
        let lines = vec![[Four::splat(0.0); 2]; inner * columns.div_ceil(WIDE)];
        Self {
            inner,
            columns,
            lines,
        }
    }

    /// This matrix, row by row.
    #[cfg_attr(target_arch = "wasm32", target_feature(enable = "simd128"))]
    pub(crate) fn pack(matrix: &[f32], inner: usize, columns: usize) -> Self {
        let mut panels = Self::new(inner, columns);
        for (at, panel) in panels.lines.chunks_exact_mut(inner).enumerate() {
            let first = at * WIDE;
            let end = columns.min(first + WIDE);
            for (line, row) in panel.iter_mut().zip(matrix.chunks_exact(columns)) {
                let mut numbers = [0.0; WIDE];
                numbers[..end - first].copy_from_slice(&row[first..end]);
                *line = halves(&numbers);
            }
        }
        panels
    }

    /// Writes one panel, row by row.
    #[cfg_attr(target_arch = "wasm32", target_feature(enable = "simd128"))]
    pub(crate) fn fill(&mut self, at: usize, rows: impl Iterator<Item = [f32; WIDE]>) {
        let panel = &mut self.lines[at * self.inner..][..self.inner];
        for (line, numbers) in panel.iter_mut().zip(rows) {
            *line = halves(&numbers);
        }
    }

    /// How many panels there are.
    pub(crate) fn count(&self) -> usize {
        self.columns.div_ceil(WIDE)
    }
}

/// Rows of `inner` numbers times the matrix, into rows of `columns` numbers.
#[cfg_attr(target_arch = "wasm32", target_feature(enable = "simd128"))]
pub(crate) fn multiply(left: &[f32], right: &Panels, out: &mut [f32]) {
    let (inner, columns) = (right.inner, right.columns);
    for (at, panel) in right.lines.chunks_exact(inner).enumerate() {
        let first = at * WIDE;
        let end = columns.min(first + WIDE);
        let blocks = left.chunks(TALL * inner).zip(out.chunks_mut(TALL * columns));
        for (left, out) in blocks {
            if left.len() == TALL * inner {
                let sums = four(left, panel);
                for row in 0..TALL {
                    put(sums[row], &mut out[row * columns + first..row * columns + end]);
                }
            } else {
                for (left, out) in left.chunks_exact(inner).zip(out.chunks_exact_mut(columns)) {
                    put(one(left, panel), &mut out[first..end]);
                }
            }
        }
    }
}

#[inline]
#[cfg_attr(target_arch = "wasm32", target_feature(enable = "simd128"))]
fn four(left: &[f32], panel: &[[Four; 2]]) -> [[Four; 2]; TALL] {
    let inner = panel.len();
    let (first, rest) = left.split_at(inner);
    let (second, rest) = rest.split_at(inner);
    let (third, fourth) = rest.split_at(inner);
    let mut sums = [[Four::splat(0.0); 2]; TALL];
    let rows = first.iter().zip(second).zip(third).zip(fourth);
    for ((((a, b), c), d), right) in rows.zip(panel) {
        let left = [*a, *b, *c, *d];
        for row in 0..TALL {
            let factor = Four::splat(left[row]);
            sums[row][0] = sums[row][0].plus(factor.times(right[0]));
            sums[row][1] = sums[row][1].plus(factor.times(right[1]));
        }
    }
    sums
}

#[inline]
#[cfg_attr(target_arch = "wasm32", target_feature(enable = "simd128"))]
fn one(left: &[f32], panel: &[[Four; 2]]) -> [Four; 2] {
    let mut sums = [Four::splat(0.0); 2];
    for (left, right) in left.iter().zip(panel) {
        let factor = Four::splat(*left);
        sums[0] = sums[0].plus(factor.times(right[0]));
        sums[1] = sums[1].plus(factor.times(right[1]));
    }
    sums
}

#[inline]
#[cfg_attr(target_arch = "wasm32", target_feature(enable = "simd128"))]
fn halves(numbers: &[f32; WIDE]) -> [Four; 2] {
    let (halves, _) = numbers.as_chunks::<4>();
    [Four::load(&halves[0]), Four::load(&halves[1])]
}

/// What of the eight sums still belongs to the matrix.
#[inline]
#[cfg_attr(target_arch = "wasm32", target_feature(enable = "simd128"))]
fn put(sums: [Four; 2], out: &mut [f32]) {
    let numbers = [sums[0].store(), sums[1].store()];
    let numbers = numbers.as_flattened();
    match out.first_chunk_mut::<WIDE>() {
        Some(whole) => whole.copy_from_slice(numbers),
        None => out.copy_from_slice(&numbers[..out.len()]),
    }
}
