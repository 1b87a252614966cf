use super::Extent;

/// What does not fit about a quantised network, or about the data given to it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantisedError {
    /// A size that is zero or past its bound.
    #[error("{field} is {value}: it must lie between {least} and {most}")]
    Size {
        /// Which one.
        field: &'static str,
        /// As given.
        value: usize,
        /// The least that is possible.
        least: usize,
        /// The most that is possible.
        most: usize,
    },
    /// The window does not fit on the input.
    #[error("a window of {height} by {width} does not fit on {input} with padding {padding}")]
    Window {
        /// Rows of the window.
        height: usize,
        /// Columns of the window.
        width: usize,
        /// What it slides over.
        input: Extent,
        /// Rows and columns added at each side.
        padding: usize,
    },
    /// Channels that cannot be divided into this many groups.
    #[error("{channels} channels do not divide into {groups} groups")]
    Groups {
        /// Channels of the input or output.
        channels: usize,
        /// Groups asked for.
        groups: usize,
    },
    /// A layer does not follow on the one before.
    #[error("layer {layer} takes {takes}, but is given {given}")]
    Chain {
        /// Counted from 0.
        layer: usize,
        /// What the layer takes.
        takes: Extent,
        /// What the layers before it give.
        given: Extent,
    },
    /// A layer takes what is not there yet.
    #[error("layer {layer} takes activation {other}: it must be one of those before it")]
    Reach {
        /// Counted from 0.
        layer: usize,
        /// The activation it names.
        other: usize,
    },
    /// The number of values is not that of the shape.
    #[error("{field} has {given} values instead of {expected}")]
    Length {
        /// Which list.
        field: &'static str,
        /// Values that the shape asks for.
        expected: usize,
        /// Values that were given.
        given: usize,
    },
    /// A factor that cannot be written as a 31-bit integer and a shift.
    #[error("a factor of {factor} is not between 2^-31 and 2^30: check the scales")]
    Factor {
        /// As given.
        factor: f64,
    },
    /// Sums of products that could pass 32 bits.
    #[error(
        "the sums of output channel {channel} can pass 32 bits: it has too many weights or too large a bias"
    )]
    Overflow {
        /// Counted from 0.
        channel: usize,
    },
    /// The lower bound of the output lies above the upper one.
    #[error("the output is bound from {low} to {high}: the first must not be the larger")]
    Bounds {
        /// The lower bound.
        low: i8,
        /// The upper bound.
        high: i8,
    },
    /// Parameters of another kind of layer.
    #[error("layer {layer} was given the parameters of another kind of layer")]
    Kind {
        /// Counted from 0.
        layer: usize,
    },
    /// No layers.
    #[error("a network has at least one layer")]
    Empty,
}

/// Checks that a size lies in its bounds.
pub(super) fn size(
    field: &'static str,
    value: usize,
    least: usize,
    most: usize,
) -> Result<(), QuantisedError> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(QuantisedError::Size {
            field,
            value,
            least,
            most,
        }),
    }
}

/// Checks that a list has as many values as its shape asks for.
pub(super) fn length(field: &'static str, given: usize, expected: usize) -> Result<(), QuantisedError> {
    match given == expected {
        true => Ok(()),
        false => Err(QuantisedError::Length {
            field,
            expected,
            given,
        }),
    }
}
