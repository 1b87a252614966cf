use super::argument::floats_mut;
use super::pass::{EACH, Pass, each};
use super::{Argument, Describe, Element, Expected, Words, check_length, check_shape, floats};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use serde::{Deserialize, Serialize};

/// Arrays of `f32` beside each other, row by row: along an axis of tensors, rows are what lies before it, and a width is all from it on.
///
/// Inputs `part`, rows by its width, for each of [`Concat::widths`]; output `result`, rows by all widths together.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Concat {
    /// Rows of each.
    pub rows: u32,
    /// Columns of each: of 1 to 4 arrays.
    pub widths: Vec<u32>,
}

impl Concat {
    /// The most arrays at once.
    pub const MOST: usize = 4;

    /// Columns of the result.
    fn width(&self) -> usize {
        self.widths.iter().map(|width| *width as usize).sum()
    }

    /// Where each array ends in a row of the result.
    fn ends(&self) -> impl Iterator<Item = u32> {
        self.widths.iter().scan(0, |end, width| {
            *end += width;
            Some(*end)
        })
    }
}

impl Describe for Concat {
    fn check(&self) -> Result<(), GpuError> {
        check_length("concat", "rows", self.rows)?;
        let count = self.widths.len();
        if !(1..=Self::MOST).contains(&count) {
            let must = format!("from 1 to {} arrays are put beside each other", Self::MOST);
            return Err(GpuError::kernel("concat", "widths", count, must));
        }
        self.widths
            .iter()
            .try_for_each(|width| check_length("concat", "widths", *width))?;
        let all = (self.width() as u64).saturating_mul(u64::from(self.rows));
        check_shape("concat", &[], &[("result", all)])
    }

    fn arguments(&self) -> Vec<Argument> {
        let rows = self.rows as usize;
        let parts = self.widths.iter();
        parts
            .map(|width| Argument::input("part", Element::F32, rows * *width as usize))
            .chain([Argument::output("result", Element::F32, rows * self.width())])
            .collect()
    }

    fn passes(&self, _tile: Tile) -> Vec<Pass> {
        let (count, width) = (self.widths.len(), self.width() as u32);
        // The ends begin at a multiple of 16 bytes.
        let mut parameters = vec![self.rows, width, 0, 0];
        parameters.extend(self.ends());
        parameters.resize(4 + Self::MOST, width);
        vec![Pass {
            name: "concat",
            source: source!("concat", "each"),
            constants: vec![],
            parameters,
            // What is not there is not read: any will do.
            bindings: (0..Self::MOST)
                .map(|part| part.min(count - 1))
                .chain([count])
                .collect(),
            threads: EACH,
            workgroups: each(u64::from(self.rows) * u64::from(width)),
        }]
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        cpu.rows(floats_mut(&mut outputs[0]), self.width(), |row, result| {
            let mut begin = 0;
            for (part, width) in inputs.iter().zip(&self.widths) {
                let width = *width as usize;
                result[begin..begin + width].copy_from_slice(&floats(part)[row * width..][..width]);
                begin += width;
            }
        });
    }

    /// Element by element: whose it is follows from its column.
    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let of = |row: usize, mut column: usize| {
            for (part, width) in inputs.iter().zip(&self.widths) {
                let width = *width as usize;
                if column < width {
                    return f64::from(floats(part)[row * width + column]);
                }
                column -= width;
            }
            f64::NAN
        };
        let width = self.width();
        let elements = 0..self.rows as usize * width;
        vec![Expected::plain(
            elements.map(|place| of(place / width, place % width)).collect(),
        )]
    }

    /// A copy: nothing is computed, and it is exact.
    fn tolerance(&self) -> f64 {
        0.0
    }

    fn operations(&self) -> u64 {
        0
    }
}
