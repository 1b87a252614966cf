//! Products of matrices on the processor.

use crate::device::Cpu;
use gemm::{Parallelism, gemm};
use ndarray::{ArrayView2, ArrayViewMut2, Axis, ShapeBuilder, s};

/// A row-major matrix with this many elements from one row to the next.
pub(crate) fn view(elements: &[f32], rows: u32, columns: u32, stride: u32) -> ArrayView2<'_, f32> {
    let shape = (rows as usize, columns as usize).strides((stride as usize, 1));
    ArrayView2::from_shape(shape, elements).expect("arguments() gives the length")
}

/// A row-major matrix to be written.
pub(crate) fn view_mut(elements: &mut [f32], rows: usize, columns: usize) -> ArrayViewMut2<'_, f32> {
    ArrayViewMut2::from_shape((rows, columns), elements).expect("arguments() gives the length")
}

/// `C = A B`, or that added to `C`, on this thread.
#[expect(unsafe_code, reason = "the library takes pointers")]
pub(crate) fn product(
    a: &ArrayView2<'_, f32>,
    b: &ArrayView2<'_, f32>,
    c: &mut ArrayViewMut2<'_, f32>,
    adds: bool,
) {
    let ((m, k), (depth, n)) = (a.dim(), b.dim());
    assert!(depth == k && c.dim() == (m, n), "the shapes of a product fit");
    let steps = |strides: &[isize]| (strides[1], strides[0]);
    let (of_a, of_b, of_c) = (steps(a.strides()), steps(b.strides()), steps(c.strides()));
    // SAFETY: the views are of these shapes, with these strides, and nobody else has what `c` is of.
    unsafe {
        gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            of_c.0,
            of_c.1,
            adds,
            a.as_ptr(),
            of_a.0,
            of_a.1,
            b.as_ptr(),
            of_b.0,
            of_b.1,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// `C = A B` over the threads of the processor: the longer side of `C` is cut between them, and into pieces of some tens of
/// milliseconds between which the time is looked at.
pub(crate) fn multiply(
    cpu: &Cpu,
    a: ArrayView2<'_, f32>,
    b: ArrayView2<'_, f32>,
    mut c: ArrayViewMut2<'_, f32>,
) {
    let (m, n) = c.dim();
    let (short, long) = (m.min(n), m.max(n));
    let multiplications = m.saturating_mul(n).saturating_mul(a.ncols());
    let is_short = multiplications < WORTH_A_THREAD || cpu.threads() == 1 && multiplications < PIECE;
    if is_short {
        return product(&a, &b, &mut c, false);
    }
    let (part, depth) = cut(short, long, a.ncols(), cpu.threads());
    let (mut pieces, mut rest) = (Vec::new(), c);
    for begin in (0..long).step_by(part) {
        let end = long.min(begin + part);
        let (a, b, axis) = match m >= n {
            true => (a.slice_move(s![begin..end, ..]), b, Axis(0)),
            false => (a, b.slice_move(s![.., begin..end]), Axis(1)),
        };
        let (piece, after) = rest.split_at(axis, end - begin);
        rest = after;
        pieces.push((a, b, piece));
    }
    cpu.pieces(pieces, |(a, b, piece)| in_depth(cpu, a, b, piece, depth));
}

/// One piece, so much of the inner dimension at a time, until time is over.
fn in_depth(
    cpu: &Cpu,
    a: ArrayView2<'_, f32>,
    b: ArrayView2<'_, f32>,
    mut c: ArrayViewMut2<'_, f32>,
    depth: usize,
) {
    let k = a.ncols();
    for begin in (0..k).step_by(depth) {
        if begin > 0 && cpu.is_late() {
            return;
        }
        let end = k.min(begin + depth);
        let (a, b) = (a.slice(s![.., begin..end]), b.slice(s![begin..end, ..]));
        product(&a, &b, &mut c, begin > 0);
    }
}

/// Rows or columns along the longer side of a piece, and how much of the inner dimension it takes at a time: together at most
/// [`PIECE`] multiplications, for the shorter side of a result within bounds is at most 2¹⁴.
fn cut(short: usize, long: usize, k: usize, threads: usize) -> (usize, usize) {
    let most = (PIECE / (short * k)).max(LEAST_PIECE);
    let part = long.div_ceil(threads).min(most);
    (part, (PIECE / (short * part)).clamp(1, k))
}

/// Below so many multiplications a second thread costs more than it brings.
pub(super) const WORTH_A_THREAD: usize = 1 << 18;

/// Multiplications of a piece: some tens of milliseconds.
const PIECE: usize = 1 << 30;

/// The least rows or columns of a piece: the other matrix is packed once for each.
const LEAST_PIECE: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_piece_takes_long_whatever_the_shape() {
        let most = 1 << 20;
        for (short, long, k) in [
            (1 << 14, 1 << 14, 1 << 14),
            (256, most, 256),
            (8, 8, most),
            (1 << 14, 1 << 14, 1),
            (1, 1 << 19, 512),
        ] {
            for threads in [1, 2, 64] {
                let (part, depth) = cut(short, long, k, threads);
                assert!(
                    part * short * depth <= PIECE,
                    "{short} {long} {k}: {part} {depth}"
                );
                assert!((1..=long).contains(&part) && (1..=k).contains(&depth));
            }
        }
    }

    #[test]
    fn parts_of_the_inner_dimension_add_up() {
        let numbers = |count: u8| (0..count).map(f32::from).collect::<Vec<_>>();
        let (a, b) = (numbers(2 * 5), numbers(5 * 3));
        let product = |depth| {
            let mut c = vec![f32::NAN; 6];
            let (a, b) = (view(&a, 2, 5, 5), view(&b, 5, 3, 3));
            in_depth(&Cpu::new(1), a, b, view_mut(&mut c, 2, 3), depth);
            c
        };
        assert_eq!(product(5), [90.0, 100.0, 110.0, 240.0, 275.0, 310.0]);
        assert_eq!((product(2), product(1)), (product(5), product(5)));
    }
}
