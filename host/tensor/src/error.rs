use crate::{ElementType, Shape};

/// An invalid tensor.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// More dimensions than a tensor may have.
    #[error(
        "a shape has {rank} dimensions, but at most {} are possible: merge some of them",
        Shape::MAX_RANK
    )]
    Rank {
        /// Dimensions asked for.
        rank: usize,
    },
    /// A dimension that no tensor can have.
    #[error("dimension {axis} is {size}: it must lie between 0 and 4294967295")]
    Dimension {
        /// Counted from 0.
        axis: usize,
        /// As given.
        size: i64,
    },
    /// More bytes than a tensor may have.
    #[error(
        "a tensor {element} {shape} has more than {} bytes: split it",
        crate::Tensor::MAX_BYTES
    )]
    TooLarge {
        /// The type of its elements.
        element: ElementType,
        /// Its shape.
        shape: Shape,
    },
    /// The number of bytes is not that of the shape.
    #[error(
        "a tensor {element} {shape} has {expected} bytes, but {given} were given: check its type and shape"
    )]
    Length {
        /// The type of its elements.
        element: ElementType,
        /// Its shape.
        shape: Shape,
        /// Bytes that the shape asks for.
        expected: usize,
        /// Bytes that were given.
        given: usize,
    },
    /// A byte of a `bool` tensor that is neither 0 nor 1.
    #[error("element {index} of a bool tensor is {value}: it must be 0 or 1")]
    Bool {
        /// Position of the first such byte.
        index: usize,
        /// The byte.
        value: u8,
    },
    /// The tensor holds elements of another type.
    #[error("a tensor of {is} was used as {wanted}: convert it first")]
    Element {
        /// What the tensor holds.
        is: ElementType,
        /// What was asked for.
        wanted: ElementType,
    },
}
