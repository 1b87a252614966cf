use super::network::RowView;
use super::{Extent, Layer, Operator, QuantisedError, Range8, Rescale};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The factor of a mean over all rows and columns.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AveragePool {
    rescale: Rescale,
    /// What the zero points of all inputs of a channel sum to.
    zeros: i32,
    output: Range8,
}

impl AveragePool {
    /// The most rows times columns: their sum stays within 31 bits.
    const MOST_CELLS: usize = 1 << 22;

    /// For an input of this extent and zero point; the factor is the input scale over the output scale.
    ///
    /// # Errors
    /// [`QuantisedError`] when there are too many values to sum, or the factor or the bounds are impossible.
    pub fn new(input: Extent, factor: f64, input_zero: i8, output: Range8) -> Result<Self, QuantisedError> {
        let cells = input.height * input.width;
        let pool = Self {
            rescale: Rescale::new(factor / cells as f64)?,
            zeros: cells.min(Self::MOST_CELLS) as i32 * i32::from(input_zero),
            output,
        };
        pool.check(input)?;
        Ok(pool)
    }

    /// That its sums stay within 32 bits.
    pub(super) fn check(&self, input: Extent) -> Result<(), QuantisedError> {
        let cells = input.height * input.width;
        super::error::size("rows times columns of a mean", cells, 1, Self::MOST_CELLS)?;
        if self.zeros.unsigned_abs() > 1 << 30 {
            return Err(QuantisedError::Overflow { channel: 0 });
        }
        self.output.check().map(|_| ())
    }

    /// Where the values of the output lie.
    pub const fn output(&self) -> Range8 {
        self.output
    }

    /// Adds the columns of a row to the sums of these channels.
    pub(super) fn add_sums(width: usize, row: RowView<'_>, channels: &Range<usize>, sums: &mut [i32]) {
        for column in 0..width {
            for (sum, value) in sums.iter_mut().zip(row.cell(column, channels)) {
                *sum += i32::from(*value);
            }
        }
    }

    /// The mean of all values of a channel.
    pub(crate) fn mean(&self, values: &[i8]) -> i8 {
        self.finish(values.iter().map(|value| i32::from(*value)).sum())
    }

    /// The sum of all values of a channel as their mean in 8 bits.
    pub(super) fn finish(&self, sum: i32) -> i8 {
        self.output.place(self.rescale.apply(sum - self.zeros))
    }
}

/// The factor of a largest value under a window.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct MaxPool {
    rescale: Rescale,
    input_zero: i8,
    output: Range8,
}

impl MaxPool {
    /// What padding is filled with where it is laid out: no value is less.
    pub(crate) const PADDING: i8 = i8::MIN;

    /// The factor is the input scale over the output scale: 1, as a rule, for the values stay what they are.
    ///
    /// # Errors
    /// [`QuantisedError`] when the factor or the bounds are impossible.
    pub fn new(factor: f64, input_zero: i8, output: Range8) -> Result<Self, QuantisedError> {
        Ok(Self {
            rescale: Rescale::new(factor)?,
            input_zero,
            output: output.check()?,
        })
    }

    /// Where the values of the output lie.
    pub const fn output(&self) -> Range8 {
        self.output
    }

    /// One row of some channels, from the rows under the window, padding `None`.
    pub(super) fn row(
        &self,
        layer: &Layer,
        taps: &[Option<RowView<'_>>],
        channels: &Range<usize>,
        out: &mut [i8],
    ) -> Result<(), QuantisedError> {
        let Operator::MaxPool {
            window: [_, columns],
            stride,
            padding,
        } = *layer.operator()
        else {
            return Err(QuantisedError::Kind { layer: 0 });
        };
        let width = layer.input().width;
        for (column, out) in out.chunks_exact_mut(channels.len()).enumerate() {
            out.fill(Self::PADDING);
            let first = column * stride;
            let under = first.saturating_sub(padding)..(first + columns).saturating_sub(padding).min(width);
            for view in taps.iter().flatten() {
                for x in under.clone() {
                    for (most, value) in out.iter_mut().zip(view.cell(x, channels)) {
                        *most = (*most).max(*value);
                    }
                }
            }
            for most in out {
                *most = self.finish(*most);
            }
        }
        Ok(())
    }

    /// The largest of the values of a channel under a window.
    pub(crate) fn most(&self, values: &[i8]) -> i8 {
        self.finish(values.iter().copied().max().unwrap_or(Self::PADDING))
    }

    fn finish(&self, most: i8) -> i8 {
        let steps = i32::from(most) - i32::from(self.input_zero);
        self.output.place(self.rescale.apply(steps))
    }
}
