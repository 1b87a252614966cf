use nalgebra::DMatrix;
use serde::{Deserialize, Serialize};

/// A low-rank change of one weight matrix: `B · A` with B of `rows × rank` and A of `rank × columns`, both row-major.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Adapter {
    rows: usize,
    columns: usize,
    rank: usize,
    #[serde(with = "crate::floats")]
    b: Vec<f32>,
    #[serde(with = "crate::floats")]
    a: Vec<f32>,
}

/// An adapter with what it counts: the client's samples, as a rule.
#[derive(Clone, Copy, Debug)]
pub struct Weighted<'a> {
    /// The adapter.
    pub adapter: &'a Adapter,
    /// Above 0.
    pub weight: f64,
}

/// Adapters that cannot be aggregated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LoraError {
    /// None at all.
    #[error("there are no adapters to aggregate")]
    None,
    /// A size that is zero.
    #[error("an adapter of {rows} x {columns} with rank {rank} holds nothing")]
    Empty {
        /// Rows of the weight.
        rows: usize,
        /// Columns of the weight.
        columns: usize,
        /// Its rank.
        rank: usize,
    },
    /// A factor with too few or too many numbers.
    #[error("the factor `{factor}` has {given} numbers instead of {expected}")]
    Length {
        /// `a` or `b`.
        factor: &'static str,
        /// What it should have.
        expected: usize,
        /// What it has.
        given: usize,
    },
    /// A number that is not finite.
    #[error("the factor `{factor}` holds a number that is not finite")]
    NotFinite {
        /// `a` or `b`.
        factor: &'static str,
    },
    /// Adapters of different weights.
    #[error("adapter {index} is for a weight of {given:?}, the first one for {expected:?}")]
    Shape {
        /// Which one, counted from 0.
        index: usize,
        /// The weight of the first.
        expected: (usize, usize),
        /// Its weight.
        given: (usize, usize),
    },
    /// A weight that counts nothing.
    #[error("adapter {index} counts {weight}: it must be finite and above 0")]
    Weight {
        /// Which one, counted from 0.
        index: usize,
        /// As given.
        weight: f64,
    },
    /// A threshold outside its bounds.
    #[error("the threshold is {0}: it must lie above 0 and at most at 1")]
    Threshold(f64),
    /// Levels that are no ranks of nested prefixes.
    #[error("rank levels have to grow from 1 on, and every adapter's rank has to be one of them")]
    Levels,
    /// The decomposition did not converge.
    #[error("the singular value decomposition did not converge")]
    NotConverged,
}

impl Adapter {
    /// An adapter of these factors.
    ///
    /// # Errors
    /// When a size is zero, a factor has another number of elements, or one is not finite.
    pub fn new(
        rows: usize,
        columns: usize,
        rank: usize,
        b: Vec<f32>,
        a: Vec<f32>,
    ) -> Result<Self, LoraError> {
        if rows == 0 || columns == 0 || rank == 0 {
            return Err(LoraError::Empty { rows, columns, rank });
        }
        for (factor, numbers, expected) in [("b", &b, rows * rank), ("a", &a, rank * columns)] {
            let given = numbers.len();
            if given != expected {
                return Err(LoraError::Length {
                    factor,
                    expected,
                    given,
                });
            }
            if !numbers.iter().all(|number| number.is_finite()) {
                return Err(LoraError::NotFinite { factor });
            }
        }
        Ok(Self {
            rows,
            columns,
            rank,
            b,
            a,
        })
    }

    /// Rows and columns of the weight.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// Its rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// B, `rows × rank`, row-major.
    pub fn b(&self) -> &[f32] {
        &self.b
    }

    /// A, `rank × columns`, row-major.
    pub fn a(&self) -> &[f32] {
        &self.a
    }

    /// What it adds to the weight, `rows × columns`, row-major.
    pub fn product(&self) -> Vec<f32> {
        let product = self.b_matrix() * self.a_matrix();
        numbers(&product)
    }

    /// What it keeps when only the first ranks count: a client of that rank gets it.
    #[must_use]
    pub fn prefix(&self, rank: usize) -> Self {
        let rank = rank.clamp(1, self.rank);
        Self {
            rank,
            b: self
                .b
                .chunks(self.rank)
                .flat_map(|row| &row[..rank])
                .copied()
                .collect(),
            a: self.a[..rank * self.columns].to_vec(),
            ..*self
        }
    }

    /// Bytes of both factors as `f32`.
    pub fn bytes(&self) -> usize {
        4 * (self.a.len() + self.b.len())
    }

    pub(super) fn b_matrix(&self) -> DMatrix<f64> {
        DMatrix::from_row_iterator(self.rows, self.rank, self.b.iter().copied().map(f64::from))
    }

    pub(super) fn a_matrix(&self) -> DMatrix<f64> {
        DMatrix::from_row_iterator(self.rank, self.columns, self.a.iter().copied().map(f64::from))
    }

    pub(super) fn of_matrices(b: &DMatrix<f64>, a: &DMatrix<f64>) -> Self {
        Self {
            rows: b.nrows(),
            columns: a.ncols(),
            rank: b.ncols(),
            b: numbers(b),
            a: numbers(a),
        }
    }
}

/// Its numbers, row-major.
fn numbers(matrix: &DMatrix<f64>) -> Vec<f32> {
    let row = |i: usize| (0..matrix.ncols()).map(move |j| matrix[(i, j)] as f32);
    (0..matrix.nrows()).flat_map(row).collect()
}

/// Checks what is to be aggregated; gives the shape of the weight and the sum of what they count.
pub(super) fn check(adapters: &[Weighted<'_>]) -> Result<((usize, usize), f64), LoraError> {
    let expected = adapters.first().ok_or(LoraError::None)?.adapter.shape();
    for (index, Weighted { adapter, weight }) in adapters.iter().enumerate() {
        let (weight, given) = (*weight, adapter.shape());
        if given != expected {
            return Err(LoraError::Shape {
                index,
                expected,
                given,
            });
        }
        if !(weight > 0.0 && weight.is_finite()) {
            return Err(LoraError::Weight { index, weight });
        }
    }
    Ok((expected, adapters.iter().map(|it| it.weight).sum()))
}
