use karman_tensor::Shape;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

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
    /// Two arrays of one name: files of models know arrays by their names.
    #[error("the model has two arrays of the name `{array}`: give each its own")]
    Twice {
        /// The name.
        array: String,
    },
    /// A name that files of models use for something else.
    #[error(
        "the model has an array of the name `{array}`, which safetensors files keep for what they say of themselves: give it another"
    )]
    Reserved {
        /// The name.
        array: String,
    },
}

impl Layout {
    /// The most numbers of a model: 2²⁸, which is 1 GiB.
    pub const MAX_LENGTH: u64 = 1 << 28;
    /// Under which name a file of safetensors says what it is.
    pub const METADATA: &'static str = "__metadata__";

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

    /// Whether each array can be told from the others by its name, in a file of safetensors too. A run begins with such a model only; one
    /// that had begun otherwise goes on.
    ///
    /// # Errors
    /// With the name that is there twice, or is reserved.
    pub fn check_names(&self) -> Result<(), LayoutError> {
        let mut names = HashSet::new();
        for Array { name, .. } in &self.arrays {
            if name == Self::METADATA {
                return Err(LayoutError::Reserved { array: name.clone() });
            }
            if !names.insert(name) {
                return Err(LayoutError::Twice { array: name.clone() });
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_arrays_of_one_name_are_refused_by_it_and_so_is_a_reserved_one() {
        let layout = |names: &[&str]| {
            let arrays = names.iter().map(|name| Array {
                name: (*name).to_owned(),
                shape: Shape::new(&[2]).unwrap(),
            });
            Layout::new(arrays.collect()).unwrap()
        };
        assert_eq!(layout(&["weight", "bias"]).check_names(), Ok(()));
        let array = "weight".to_owned();
        assert_eq!(
            layout(&["weight", "bias", "weight"]).check_names(),
            Err(LayoutError::Twice { array })
        );
        let error = layout(&["__metadata__"]).check_names().unwrap_err().to_string();
        assert!(error.contains("`__metadata__`"), "{error}");
    }
}
