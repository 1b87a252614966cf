use super::argument::floats_mut;
use super::pass::{EACH, Pass, grid};
use super::{Argument, Describe, Element, Expected, Words, check_length, check_shape, floats};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use serde::{Deserialize, Serialize};

/// One number from every row of a matrix of `f32`.
///
/// Input `values`, rows by columns; output `result`, one per row.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Reduce {
    /// Which number.
    pub fold: Fold,
    /// Rows.
    pub rows: u32,
    /// Numbers of a row.
    pub columns: u32,
}

/// How a row becomes one number.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fold {
    /// The sum.
    Sum,
    /// The largest.
    Max,
    /// The least.
    Min,
    /// The sum of squares.
    SumOfSquares,
    /// The largest magnitude.
    MaxMagnitude,
}

/// Numbers that one workgroup folds: a longer row takes two passes.
const PART: u32 = 16_384;

impl Reduce {
    const fn parts(&self) -> u32 {
        self.columns.div_ceil(PART)
    }

    /// What the second pass does with the results of the first.
    const fn again(&self) -> Fold {
        match self.fold {
            Fold::SumOfSquares => Fold::Sum,
            Fold::MaxMagnitude => Fold::Max,
            fold => fold,
        }
    }

    fn pass(fold: Fold, rows: u32, columns: u32, part: u32, bindings: Vec<usize>) -> Pass {
        let parts = columns.div_ceil(part);
        Pass {
            name: "reduce",
            source: source!("reduce"),
            constants: vec![("FOLD", fold as u32)],
            parameters: vec![rows, columns, part, parts],
            bindings,
            threads: EACH,
            workgroups: grid(u64::from(rows) * u64::from(parts)),
        }
    }
}

impl Describe for Reduce {
    fn check(&self) -> Result<(), GpuError> {
        // A whole array is one long row.
        check_length("reduce", "columns", self.columns)?;
        check_shape(
            "reduce",
            &[("rows", self.rows)],
            &[("values", u64::from(self.rows) * u64::from(self.columns))],
        )
    }

    fn arguments(&self) -> Vec<Argument> {
        let (rows, columns) = (self.rows as usize, self.columns as usize);
        let mut arguments = vec![
            Argument::input("values", Element::F32, rows * columns),
            Argument::output("result", Element::F32, rows),
        ];
        if self.parts() > 1 {
            arguments.push(Argument::scratch("parts", rows * self.parts() as usize));
        }
        arguments
    }

    fn passes(&self, _tile: Tile) -> Vec<Pass> {
        if self.parts() == 1 {
            return vec![Self::pass(
                self.fold,
                self.rows,
                self.columns,
                self.columns,
                vec![0, 1],
            )];
        }
        vec![
            Self::pass(self.fold, self.rows, self.columns, PART, vec![0, 2]),
            Self::pass(self.again(), self.rows, self.parts(), self.parts(), vec![2, 1]),
        ]
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        let values = floats(inputs[0]);
        let columns = self.columns as usize;
        cpu.rows(floats_mut(&mut outputs[0]), 1, |row, result| {
            let row = &values[row * columns..][..columns];
            result[0] = cpu.vectorised(|| fold(self.fold, row));
        });
    }

    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let rows = floats(inputs[0]).chunks(self.columns as usize);
        let (values, scale) = rows
            .map(|row| {
                let row = || row.iter().map(|value| f64::from(*value));
                let value = match self.fold {
                    Fold::Sum => row().sum(),
                    Fold::Max => row().fold(f64::MIN, f64::max),
                    Fold::Min => row().fold(f64::MAX, f64::min),
                    Fold::SumOfSquares => row().map(|value| value * value).sum(),
                    Fold::MaxMagnitude => row().fold(0.0, |most: f64, value| most.max(value.abs())),
                };
                let size: f64 = match self.fold {
                    Fold::Sum => row().map(f64::abs).sum(),
                    _ => f64::abs(value),
                };
                (value, size)
            })
            .unzip();
        vec![Expected { values, scale }]
    }

    fn operations(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.columns)
    }
}

/// Sums of this many run beside each other: the compiler may not reorder one.
const LANES: usize = 16;

#[inline(always)]
fn fold(fold: Fold, row: &[f32]) -> f32 {
    match fold {
        Fold::Sum => lanes(row, 0.0, |sum, value| sum + value, |one, two| one + two),
        Fold::Max => lanes(row, f32::MIN, f32::max, f32::max),
        Fold::Min => lanes(row, f32::MAX, f32::min, f32::min),
        Fold::SumOfSquares => lanes(row, 0.0, |sum, value| sum + value * value, |one, two| one + two),
        Fold::MaxMagnitude => lanes(row, 0.0, |most, value| most.max(value.abs()), f32::max),
    }
}

#[inline(always)]
fn lanes(row: &[f32], zero: f32, add: impl Fn(f32, f32) -> f32, join: impl Fn(f32, f32) -> f32) -> f32 {
    // Pieces keep the sum's error small over millions of numbers.
    let mut all = [zero; LANES];
    for piece in row.chunks(4096) {
        let mut sums = [zero; LANES];
        let (chunks, rest) = piece.as_chunks::<LANES>();
        for chunk in chunks {
            for (sum, value) in sums.iter_mut().zip(chunk) {
                *sum = add(*sum, *value);
            }
        }
        for (sum, value) in sums.iter_mut().zip(rest) {
            *sum = add(*sum, *value);
        }
        for (all, sum) in all.iter_mut().zip(sums) {
            *all = join(*all, sum);
        }
    }
    all.into_iter().fold(zero, join)
}
