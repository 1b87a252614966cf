use super::argument::floats_mut;
use super::pass::{EACH, Pass, each};
use super::{Argument, Describe, Element, Expected, Words, check_length, check_shape, floats};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use serde::{Deserialize, Serialize};

/// Rows of a table of `f32` by their numbers, as an embedding or ONNX's `Gather` takes them: along an axis of a tensor, tables are what
/// lies before it, and a width is all after it.
///
/// Inputs `table`, tables by rows by width, and `numbers` (signed integers); output `result`, tables by numbers by width. A number below 0
/// counts from the end; one that is none of a row's is taken for the nearest that is.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Gather {
    /// Tables, of each of which the same rows are taken. Default 1.
    #[serde(default = "one")]
    pub tables: u32,
    /// Rows of a table.
    pub rows: u32,
    /// Numbers of a row.
    pub width: u32,
    /// How many rows are taken.
    pub numbers: u32,
}

const fn one() -> u32 {
    1
}

impl Gather {
    fn elements(&self) -> u64 {
        u64::from(self.tables) * u64::from(self.numbers) * u64::from(self.width)
    }

    /// The row that a number means.
    fn row(&self, number: u32) -> usize {
        let (number, rows) = (i64::from(number.cast_signed()), i64::from(self.rows));
        let from_end = if number < 0 { rows } else { 0 };
        (number + from_end).clamp(0, rows - 1) as usize
    }
}

impl Describe for Gather {
    fn check(&self) -> Result<(), GpuError> {
        let sides = [
            ("tables", self.tables),
            ("rows", self.rows),
            ("width", self.width),
            ("numbers", self.numbers),
        ];
        for (field, side) in sides {
            check_length("gather", field, side)?;
        }
        let product = |sides: [u32; 3]| {
            sides
                .iter()
                .fold(1u64, |all, side| all.saturating_mul(u64::from(*side)))
        };
        check_shape(
            "gather",
            &[],
            &[
                ("table", product([self.tables, self.rows, self.width])),
                ("result", product([self.tables, self.numbers, self.width])),
            ],
        )
    }

    fn arguments(&self) -> Vec<Argument> {
        let table = self.tables as usize * self.rows as usize * self.width as usize;
        vec![
            Argument::input("table", Element::F32, table),
            Argument::input("numbers", Element::I32, self.numbers as usize),
            Argument::output("result", Element::F32, self.elements() as usize),
        ]
    }

    fn passes(&self, _tile: Tile) -> Vec<Pass> {
        vec![Pass {
            name: "gather",
            source: source!("gather", "each"),
            constants: vec![],
            parameters: vec![self.tables, self.rows, self.width, self.numbers],
            bindings: vec![0, 1, 2],
            threads: EACH,
            workgroups: each(self.elements()),
        }]
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        let (table, numbers) = (floats(inputs[0]), inputs[1]);
        let (rows, width) = (self.rows as usize, self.width as usize);
        cpu.rows(floats_mut(&mut outputs[0]), width, |place, result| {
            let (of, number) = (place / numbers.len(), place % numbers.len());
            let row = of * rows + self.row(numbers[number]);
            result.copy_from_slice(&table[row * width..][..width]);
        });
    }

    /// Element by element.
    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let (table, numbers) = (floats(inputs[0]), inputs[1]);
        let (rows, width) = (self.rows as usize, self.width as usize);
        let element = |place: usize| {
            let (column, row) = (place % width, place / width);
            let row = row / numbers.len() * rows + self.row(numbers[row % numbers.len()]);
            f64::from(table[row * width + column])
        };
        vec![Expected::plain(
            (0..self.elements() as usize).map(element).collect(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_counts_from_either_end_and_never_means_a_row_that_is_not_there() {
        let table = Gather {
            tables: 1,
            rows: 5,
            width: 1,
            numbers: 1,
        };
        let row = |number: i32| table.row(number.cast_unsigned());
        assert_eq!([0, 4, -1, -5].map(row), [0, 4, 4, 0]);
        assert_eq!([5, i32::MAX, -6, i32::MIN].map(row), [4, 4, 0, 0]);
    }
}
