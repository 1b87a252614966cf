use super::error::size;
use super::{Extent, Part, QuantisedError};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The shape of a layer: enough to plan with, without its weights.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Layer {
    operator: Operator,
    input: Extent,
    output: Extent,
}

/// What a layer does.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Operator {
    /// Sums of products under a sliding window; a fully connected layer is one whose window covers the input.
    Convolution {
        /// Rows and columns of the window.
        window: [usize; 2],
        /// Rows and columns from one output to the next.
        stride: usize,
        /// Rows and columns of zero points around the input.
        padding: usize,
        /// Groups of channels that do not see each other; as many as channels make it depthwise.
        groups: usize,
    },
    /// The mean of each channel.
    AveragePool,
    /// The sum with an activation from further up.
    Add {
        /// Which activation: 0 is the input of the network, `i + 1` the output of layer `i`.
        other: usize,
    },
    /// The largest value of each channel under a sliding window.
    MaxPool {
        /// Rows and columns of the window.
        window: [usize; 2],
        /// Rows and columns from one output to the next.
        stride: usize,
        /// Rows and columns around the input that count for nothing.
        padding: usize,
    },
}

/// A layer as it travels: what cannot be computed from the rest.
#[derive(Deserialize, Serialize)]
struct Written {
    operator: Operator,
    input: [usize; 3],
    channels: usize,
}

impl From<Layer> for Written {
    fn from(layer: Layer) -> Self {
        let Extent {
            channels,
            height,
            width,
        } = layer.input;
        Self {
            operator: layer.operator,
            input: [channels, height, width],
            channels: layer.output.channels,
        }
    }
}

impl TryFrom<Written> for Layer {
    type Error = QuantisedError;

    fn try_from(written: Written) -> Result<Self, QuantisedError> {
        let [channels, height, width] = written.input;
        let input = Extent::new(channels, height, width)?;
        match written.operator {
            Operator::Convolution {
                window,
                stride,
                padding,
                groups,
            } => Self::convolution(input, written.channels, window, stride, padding, groups),
            Operator::AveragePool => Ok(Self::average_pool(input)),
            Operator::Add { other } => Ok(Self::add(input, other)),
            Operator::MaxPool {
                window,
                stride,
                padding,
            } => Self::max_pool(input, window, stride, padding),
        }
    }
}

impl Layer {
    /// A convolution.
    ///
    /// # Errors
    /// [`QuantisedError`] when a size is zero or too large, the window does not fit or the groups do not divide the channels.
    pub fn convolution(
        input: Extent,
        channels: usize,
        window: [usize; 2],
        stride: usize,
        padding: usize,
        groups: usize,
    ) -> Result<Self, QuantisedError> {
        let [height, width] = window;
        size("window", height.min(width), 1, Extent::MOST)?;
        size("stride", stride, 1, Extent::MOST)?;
        size("padding", padding, 0, height.min(width) - 1)?;
        size("groups", groups, 1, Extent::MOST)?;
        for channels in [input.channels, channels] {
            if !channels.is_multiple_of(groups) {
                return Err(QuantisedError::Groups { channels, groups });
            }
        }
        let (rows, columns) = (input.height + 2 * padding, input.width + 2 * padding);
        if height > rows || width > columns {
            return Err(QuantisedError::Window {
                height,
                width,
                input,
                padding,
            });
        }
        let output = Extent::new(
            channels,
            (rows - height) / stride + 1,
            (columns - width) / stride + 1,
        )?;
        Ok(Self {
            operator: Operator::Convolution {
                window,
                stride,
                padding,
                groups,
            },
            input,
            output,
        })
    }

    /// A fully connected layer: every output sees every input.
    ///
    /// # Errors
    /// [`QuantisedError::Size`] when there are no outputs, or too many.
    pub fn linear(input: Extent, outputs: usize) -> Result<Self, QuantisedError> {
        Self::convolution(input, outputs, [input.height, input.width], 1, 0, 1)
    }

    /// The mean of each channel over all rows and columns.
    pub const fn average_pool(input: Extent) -> Self {
        Self {
            operator: Operator::AveragePool,
            input,
            output: Extent {
                channels: input.channels,
                height: 1,
                width: 1,
            },
        }
    }

    /// The largest value of each channel under a window.
    ///
    /// # Errors
    /// Those of [`Layer::convolution`].
    pub fn max_pool(
        input: Extent,
        window: [usize; 2],
        stride: usize,
        padding: usize,
    ) -> Result<Self, QuantisedError> {
        // It slides as one that has a kernel for each channel.
        let slid = Self::convolution(input, input.channels, window, stride, padding, input.channels)?;
        Ok(Self {
            operator: Operator::MaxPool {
                window,
                stride,
                padding,
            },
            ..slid
        })
    }

    /// The sum with an activation of the same extent.
    pub const fn add(input: Extent, other: usize) -> Self {
        Self {
            operator: Operator::Add { other },
            input,
            output: input,
        }
    }

    /// What it does.
    pub const fn operator(&self) -> &Operator {
        &self.operator
    }

    /// The extent of what goes in.
    pub const fn input(&self) -> Extent {
        self.input
    }

    /// The extent of what comes out.
    pub const fn output(&self) -> Extent {
        self.output
    }

    /// Whether each output channel sees its own input channel only.
    pub fn is_depthwise(&self) -> bool {
        match self.operator {
            Operator::Convolution { groups, .. } => {
                groups == self.input.channels && groups == self.output.channels
            }
            Operator::AveragePool | Operator::Add { .. } | Operator::MaxPool { .. } => true,
        }
    }

    /// Rows and columns around the input that stand for nothing.
    pub const fn padding(&self) -> usize {
        match self.operator {
            Operator::Convolution { padding, .. } | Operator::MaxPool { padding, .. } => padding,
            Operator::AveragePool | Operator::Add { .. } => 0,
        }
    }

    /// The rows of the input under the window of an output row, as counted with the padding above it: those below the
    /// padding or past the last row are negative or too large by as much.
    pub fn window(&self, row: usize) -> Range<isize> {
        match self.operator {
            Operator::Convolution {
                window: [height, _],
                stride,
                padding,
                ..
            }
            | Operator::MaxPool {
                window: [height, _],
                stride,
                padding,
            } => {
                let first = (row * stride) as isize - padding as isize;
                first..first + height as isize
            }
            Operator::AveragePool => 0..self.input.height as isize,
            Operator::Add { .. } => row as isize..row as isize + 1,
        }
    }

    /// The rows of the input that these output rows touch, without the padding.
    pub fn rows(&self, output: &Range<usize>) -> Range<usize> {
        if output.is_empty() {
            return 0..0;
        }
        let bound = |row: isize| row.clamp(0, self.input.height as isize) as usize;
        bound(self.window(output.start).start)..bound(self.window(output.end - 1).end)
    }

    /// The part of the input that a part of the output touches, without the padding.
    pub fn needs(&self, output: &Part) -> Part {
        let rows = self.rows(&output.rows);
        let channels = match self.operator {
            Operator::Convolution { groups, .. } if !output.is_empty() => {
                let (inputs, outputs) = (self.input.channels / groups, self.output.channels / groups);
                output.channels.start / outputs * inputs..output.channels.end.div_ceil(outputs) * inputs
            }
            _ => output.channels.clone(),
        };
        Part::new(rows, channels)
    }

    /// Multiplications (or additions and comparisons, where there are none) for a part of the output.
    pub fn operations(&self, output: &Part) -> u64 {
        let outputs = (output.cells() * self.output.width) as u64;
        outputs * self.operations_per_output()
    }

    /// Bytes of weights and biases for these output channels.
    pub fn weight_bytes(&self, channels: &Range<usize>) -> u64 {
        match self.operator {
            Operator::Convolution { .. } => channels.len() as u64 * (self.operations_per_output() + 4),
            Operator::AveragePool | Operator::Add { .. } | Operator::MaxPool { .. } => 0,
        }
    }

    fn operations_per_output(&self) -> u64 {
        match self.operator {
            Operator::Convolution {
                window: [height, width],
                groups,
                ..
            } => (self.input.channels / groups * height * width) as u64,
            Operator::AveragePool => (self.input.height * self.input.width) as u64,
            Operator::Add { .. } => 1,
            Operator::MaxPool {
                window: [height, width],
                ..
            } => (height * width) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_needs_what_its_windows_cover() {
        let input = Extent::new(4, 8, 8).unwrap();
        let layer = Layer::convolution(input, 4, [3, 3], 2, 1, 4).unwrap();
        assert_eq!(layer.output(), Extent::new(4, 4, 4).unwrap());
        // The first row lies under the padding, so its window has two rows.
        assert_eq!(layer.needs(&Part::new(0..1, 1..2)), Part::new(0..2, 1..2));
        assert_eq!(layer.needs(&Part::new(2..4, 0..4)), Part::new(3..8, 0..4));
        assert_eq!(layer.needs(&Part::NONE), Part::NONE);
        let dense = Layer::convolution(input, 6, [1, 1], 1, 0, 1).unwrap();
        assert_eq!(dense.needs(&Part::new(3..5, 5..6)), Part::new(3..5, 0..4));
        assert_eq!(dense.operations(&Part::new(3..5, 5..6)), 2 * 8 * 4);
        assert_eq!(dense.weight_bytes(&(0..2)), 2 * (4 + 4));
        let most = Layer::max_pool(input, [3, 3], 2, 1).unwrap();
        assert_eq!(most.output(), layer.output());
        assert_eq!(most.needs(&Part::new(0..1, 1..2)), Part::new(0..2, 1..2));
        assert_eq!(most.operations(&Part::new(0..1, 1..2)), 4 * 9);
        assert_eq!(most.weight_bytes(&(0..4)), 0);
    }

    #[test]
    fn shapes_that_cannot_be_are_refused() {
        let input = Extent::new(4, 8, 8).unwrap();
        assert!(Extent::new(0, 8, 8).is_err() && Extent::new(1, 1, 65_536).is_err());
        assert!(Layer::convolution(input, 0, [1, 1], 1, 0, 1).is_err());
        assert!(Layer::convolution(input, 4, [0, 1], 1, 0, 1).is_err());
        assert!(Layer::convolution(input, 4, [3, 3], 0, 1, 1).is_err());
        assert!(Layer::convolution(input, 4, [3, 3], 1, 3, 1).is_err());
        assert!(Layer::convolution(input, 4, [9, 1], 1, 0, 1).is_err());
        assert!(Layer::max_pool(input, [3, 3], 1, 3).is_err());
        let odd = Layer::convolution(input, 6, [1, 1], 1, 0, 4).unwrap_err();
        assert_eq!(odd.to_string(), "6 channels do not divide into 4 groups");
    }
}
