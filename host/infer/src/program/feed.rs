//! From the inputs of a model to those of its program.

use crate::{InferError, TensorInfo};
use karman_gpu::{Words, f32_words};
use karman_tensor::{ElementType, Tensor};

/// An input of a program: one of the model, and how it is taken. The same may be taken in several ways.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Feed {
    /// Which input of the model.
    pub(super) input: usize,
    pub(super) taken: Taken,
}

/// How an input is taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Taken {
    /// As it is: `f32`.
    AsItIs,
    /// Whole numbers as `f32`.
    Converted,
    /// Whole numbers as those of rows of a table that has this many.
    Rows(u32),
}

impl Feed {
    /// The words of what was given for it.
    pub(super) fn words(&self, given: &Tensor, info: &TensorInfo) -> Result<Words, InferError> {
        let wrong = || InferError::Input {
            input: info.clone(),
            given: format!("{} {}", given.element(), given.shape()),
        };
        match self.taken {
            Taken::AsItIs => given.view::<f32>().map(f32_words).map_err(|_| wrong()),
            Taken::Converted => {
                let numbers = whole(given).ok_or_else(wrong)?;
                Ok(numbers.iter().map(|number| (*number as f32).to_bits()).collect())
            }
            Taken::Rows(rows) => {
                let known = -i64::from(rows)..i64::from(rows);
                let word = |number: &i64| match known.contains(number) {
                    // No table has more rows than 31 bits count.
                    true => Ok((*number as i32).cast_unsigned()),
                    false => Err(InferError::NoSuchRow {
                        input: info.name.clone(),
                        number: *number,
                        rows,
                    }),
                };
                whole(given).ok_or_else(wrong)?.iter().map(word).collect()
            }
        }
    }
}

/// Whether these are whole numbers that an input may have.
pub(super) const fn is_whole(element: ElementType) -> bool {
    matches!(element, ElementType::I32 | ElementType::I64)
}

fn whole(tensor: &Tensor) -> Option<Vec<i64>> {
    match tensor.element() {
        ElementType::I64 => tensor.view::<i64>().ok().map(<[i64]>::to_vec),
        ElementType::I32 => {
            let numbers = tensor.view::<i32>().ok()?;
            Some(numbers.iter().copied().map(i64::from).collect())
        }
        _ => None,
    }
}
