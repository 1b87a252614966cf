//! Weights as the processor reads them: laid out once, for all products with them.

use super::product::{WORTH_A_THREAD, product, view, view_mut};
use crate::device::Cpu;
use ndarray::{ArrayView2, ArrayViewMut2, Axis, s};

/// Columns of a panel: what the widest kernel of the library makes at a time, so that it reads a panel where it lies.
const WIDTH: usize = 64;

/// Rows of the other matrix that are multiplied at a time: of more the library would pack the panel once more.
const ROWS: usize = 48;

/// Pieces of a product for each thread: whoever is done early takes one of another.
const PIECES: usize = 4;

/// A matrix of `k` rows and `n` columns, as panels of [`WIDTH`] columns one after the other: a product reads each from its begin to its
/// end. The last one is filled up with zeros.
pub(crate) struct Panels {
    k: usize,
    n: usize,
    elements: Vec<f32>,
}

/// A part of a result: the rows from `row`, the panels from `panel`.
struct Piece<'a> {
    row: usize,
    panel: usize,
    c: ArrayViewMut2<'a, f32>,
}

impl Panels {
    /// Lays a matrix out; none where time was over before all of it lay there.
    pub(crate) fn new(cpu: &Cpu, b: ArrayView2<'_, f32>) -> Option<Self> {
        let (k, n) = b.dim();
        let mut elements = vec![0.0; n.div_ceil(WIDTH) * k * WIDTH];
        cpu.rows(&mut elements, k * WIDTH, |panel, into| {
            let begin = panel * WIDTH;
            let from = b.slice(s![.., begin..n.min(begin + WIDTH)]);
            let mut into = view_mut(into, k, WIDTH);
            into.slice_mut(s![.., ..from.ncols()]).assign(&from);
        });
        (!cpu.is_late()).then_some(Self { k, n, elements })
    }

    /// Bytes of a matrix of these sizes when it is laid out.
    pub(crate) const fn bytes(k: usize, n: usize) -> usize {
        n.div_ceil(WIDTH) * WIDTH * k * size_of::<f32>()
    }

    fn panel(&self, number: usize) -> &[f32] {
        let length = self.k * WIDTH;
        &self.elements[number * length..][..length]
    }

    /// `C = A B` with this `B`, over the threads of the processor until time is over.
    pub(crate) fn multiply(&self, cpu: &Cpu, a: ArrayView2<'_, f32>, c: ArrayViewMut2<'_, f32>) {
        let multiplications = a.nrows().saturating_mul(self.k).saturating_mul(self.n);
        let wanted = match multiplications < WORTH_A_THREAD {
            true => 1,
            false => PIECES * cpu.threads(),
        };
        cpu.pieces(self.pieces(wanted, c), |piece| {
            self.multiply_piece(cpu, &a, piece)
        });
    }

    /// A result in so many pieces, or some more: cut between panels first.
    fn pieces<'a>(&self, wanted: usize, c: ArrayViewMut2<'a, f32>) -> Vec<Piece<'a>> {
        let panels = self.n.div_ceil(WIDTH);
        let across = panels.div_ceil(wanted);
        let parts = wanted.div_ceil(panels.div_ceil(across));
        let down = c.nrows().div_ceil(parts).next_multiple_of(ROWS);
        let (mut pieces, mut below, mut row) = (Vec::new(), c, 0);
        while below.nrows() > 0 {
            let height = down.min(below.nrows());
            let (mut right, rest) = below.split_at(Axis(0), height);
            let mut panel = 0;
            while right.ncols() > 0 {
                let width = (across * WIDTH).min(right.ncols());
                let (c, rest) = right.split_at(Axis(1), width);
                pieces.push(Piece { row, panel, c });
                (right, panel) = (rest, panel + across);
            }
            (below, row) = (rest, row + height);
        }
        pieces
    }

    fn multiply_piece(&self, cpu: &Cpu, a: &ArrayView2<'_, f32>, Piece { row, panel, mut c }: Piece<'_>) {
        let a = a.slice(s![row..row + c.nrows(), ..]);
        for (number, mut c) in c.axis_chunks_iter_mut(Axis(1), WIDTH).enumerate() {
            let b = view(
                self.panel(panel + number),
                self.k as u32,
                WIDTH as u32,
                WIDTH as u32,
            );
            let b = b.slice_move(s![.., ..c.ncols()]);
            let parts = a
                .axis_chunks_iter(Axis(0), ROWS)
                .zip(c.axis_chunks_iter_mut(Axis(0), ROWS));
            for (a, mut c) in parts {
                if cpu.is_late() {
                    return;
                }
                product(&a, &b, &mut c, false);
            }
        }
    }

    /// One row times this matrix, which is read once.
    pub(crate) fn multiply_vector(&self, cpu: &Cpu, a: &[f32], c: &mut [f32]) {
        let panels = self.n.div_ceil(WIDTH).div_ceil(PIECES * cpu.threads());
        cpu.rows(c, panels * WIDTH, |part, c| {
            cpu.vectorised(|| {
                for (number, c) in c.chunks_mut(WIDTH).enumerate() {
                    let (rows, _) = self.panel(part * panels + number).as_chunks::<WIDTH>();
                    let mut sums = [0.0f32; WIDTH];
                    for (a, row) in a.iter().zip(rows) {
                        sums.iter_mut().zip(row).for_each(|(sum, b)| *sum += a * b);
                    }
                    c.copy_from_slice(&sums[..c.len()]);
                }
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small whole numbers: their sums are exact in any order.
    fn numbers(count: usize) -> Vec<f32> {
        let mut rng = fastrand::Rng::with_seed(3);
        (0..count).map(|_| f32::from(rng.i8(-4..=4))).collect()
    }

    #[test]
    fn a_product_with_panels_is_the_product_whatever_the_shape() {
        for threads in [1, 3] {
            let cpu = Cpu::new(threads);
            for (m, k, n) in [
                (1, 5, 1),
                (2, 70, 63),
                (48, 33, 64),
                (49, 128, 65),
                (300, 90, 555),
                (2000, 64, 3),
            ] {
                let (a, b) = (numbers(m * k), numbers(k * n));
                let (a, b) = (
                    view(&a, m as u32, k as u32, k as u32),
                    view(&b, k as u32, n as u32, n as u32),
                );
                let expected = a.dot(&b);
                let panels = Panels::new(&cpu, b).unwrap();
                let mut c = vec![f32::NAN; m * n];
                panels.multiply(&cpu, a, view_mut(&mut c, m, n));
                assert_eq!(view(&c, m as u32, n as u32, n as u32), expected, "{m} {k} {n}");
                let mut first = vec![f32::NAN; n];
                panels.multiply_vector(&cpu, a.row(0).as_slice().unwrap(), &mut first);
                assert_eq!(first, expected.row(0).to_vec(), "{m} {k} {n}");
            }
        }
    }

    #[test]
    fn pieces_make_up_the_result_and_are_enough_for_the_threads() {
        let cpu = Cpu::new(1);
        for (m, n, wanted) in [(1, 4096, 8), (1000, 3, 8), (64, 64, 1), (777, 555, 16), (5, 5, 8)] {
            let b = vec![0.0; n];
            let panels = Panels::new(&cpu, view(&b, 1, n as u32, n as u32)).unwrap();
            let mut c = vec![0.0; m * n];
            let mut pieces = panels.pieces(wanted, view_mut(&mut c, m, n));
            let most = m.div_ceil(ROWS) * n.div_ceil(WIDTH);
            assert!(pieces.len() >= wanted.min(most) / 2, "{m} {n}: {}", pieces.len());
            pieces.iter_mut().for_each(|piece| piece.c += 1.0);
            assert!(c.iter().all(|times| *times == 1.0), "{m} {n}");
        }
    }
}
