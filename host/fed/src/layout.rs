use karman_tensor::Shape;
use serde::{Deserialize, Serialize};

/// The arrays of a model in order: a model is all their numbers in one row.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "Vec<Array>", into = "Vec<Array>")]
pub struct Layout {
    arrays: Vec<Array>,
    length: usize,
}

/// One array of a model.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Array {
    /// Its name: `layer1.weight`.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
}

/// Arrays that make no model.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// No numbers at all.
    #[error("a model without numbers cannot be trained")]
    Empty,
    /// More numbers than a model may have.
    #[error(
        "the model has more than {} numbers up to `{array}`: train a part of it",
        Layout::MAX_LENGTH
    )]
    TooLong {
        /// The array that goes over the limit.
        array: String,
    },
}

impl Layout {
    /// The most numbers of a model: 2²⁸, which is 1 GiB.
    pub const MAX_LENGTH: u64 = 1 << 28;

    /// The model that consists of these arrays.
    ///
    /// # Errors
    /// When they hold no number, or more than [`Layout::MAX_LENGTH`].
    pub fn new(arrays: Vec<Array>) -> Result<Self, LayoutError> {
        let mut length = 0u64;
        for array in &arrays {
            let after = array.shape.elements().and_then(|count| length.checked_add(count));
            length = after
                .filter(|length| *length <= Self::MAX_LENGTH)
                .ok_or_else(|| {
                    let array = array.name.clone();
                    LayoutError::TooLong { array }
                })?;
        }
        match length {
            0 => Err(LayoutError::Empty),
            _ => Ok(Self {
                arrays,
                length: length as usize,
            }),
        }
    }

    /// A model of arrays without names worth telling.
    ///
    /// # Errors
    /// Those of [`Layout::new`].
    pub fn of_shapes(shapes: impl IntoIterator<Item = impl Into<Shape>>) -> Result<Self, LayoutError> {
        let named = shapes.into_iter().enumerate().map(|(i, shape)| Array {
            name: format!("array {i}"),
            shape: shape.into(),
        });
        Self::new(named.collect())
    }

    /// The arrays.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// The numbers of the model.
    pub fn length(&self) -> usize {
        self.length
    }
}

impl TryFrom<Vec<Array>> for Layout {
    type Error = LayoutError;

    fn try_from(arrays: Vec<Array>) -> Result<Self, LayoutError> {
        Self::new(arrays)
    }
}

impl From<Layout> for Vec<Array> {
    fn from(layout: Layout) -> Self {
        layout.arrays
    }
}
