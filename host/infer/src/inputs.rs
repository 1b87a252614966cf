//! Checks what a caller gives against what a model takes.

use crate::{Dim, InferError, ModelLimits, TensorInfo};
use karman_tensor::Tensor;
use std::collections::HashMap;

/// The given tensors in the order of the model.
pub(crate) fn arrange(
    takes: &[TensorInfo],
    given: Vec<(String, Tensor)>,
    limits: &ModelLimits,
) -> Result<Vec<Tensor>, InferError> {
    let mut slots: Vec<Option<Tensor>> = vec![None; takes.len()];
    // The size of each, and the input that says so.
    let mut symbols: HashMap<&str, (u32, &str)> = HashMap::new();
    for (name, tensor) in given {
        let Some(at) = takes.iter().position(|input| input.name == name) else {
            return Err(InferError::UnknownInput {
                name,
                takes: takes.to_vec(),
            });
        };
        if slots[at].is_some() {
            return Err(InferError::Twice { name });
        }
        let input = &takes[at];
        let sizes = tensor.shape();
        let given = || format!("{} {sizes}", tensor.element());
        if tensor.element() != input.element || !input.accepts(sizes) {
            return Err(InferError::Input {
                input: input.clone(),
                given: given(),
            });
        }
        for (dim, given_size) in input.dims.iter().flatten().zip(sizes.dims()) {
            if let Dim::Any(symbol) = dim
                && !symbol.is_empty()
                && let (size, by) = *symbols
                    .entry(symbol)
                    .or_insert((*given_size, input.name.as_str()))
                && size != *given_size
            {
                return Err(InferError::Contradiction {
                    input: name,
                    given: given(),
                    takes: input.to_string(),
                    by: format!("`{symbol}` is {size} by `{by}`"),
                });
            }
        }
        InferError::over("tensor", limits.tensor.0, tensor.bytes().len() as u64, || {
            format!("input `{name}` in bytes")
        })?;
        slots[at] = Some(tensor);
    }
    slots
        .into_iter()
        .zip(takes)
        .map(|(slot, input)| {
            slot.ok_or_else(|| InferError::MissingInput {
                input: input.clone(),
                takes: takes.to_vec(),
            })
        })
        .collect()
}

/// The items of the batch, where nothing else is open: the largest size that was given where any fits.
pub(crate) fn items(takes: &[TensorInfo], given: &[Tensor]) -> u32 {
    let mut items = 0;
    for (input, tensor) in takes.iter().zip(given) {
        let sizes = tensor.shape();
        for (dim, size) in input.dims.iter().flatten().zip(sizes.dims()) {
            if matches!(dim, Dim::Any(_)) {
                items = items.max(*size);
            }
        }
    }
    items
}

/// Refuses inputs without elements, for a back-end that plans by their sizes: arithmetic with a size of 0 ends in its depths, or in the
/// panic of an operator that divides by one.
pub(crate) fn refuse_empty(takes: &[TensorInfo], given: &[Tensor]) -> Result<(), InferError> {
    for (input, tensor) in takes.iter().zip(given) {
        let Some(axis) = tensor.shape().dims().iter().position(|size| *size == 0) else {
            continue;
        };
        let name = match input.dims.as_ref().and_then(|dims| dims.get(axis)) {
            Some(Dim::Any(name)) if !name.is_empty() => name.clone(),
            _ => axis.to_string(),
        };
        return Err(InferError::EmptyDimension {
            input: input.name.clone(),
            dimension: name,
            least: 1,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_tensor::ElementType;

    fn info(name: &str, dims: &[&str]) -> TensorInfo {
        TensorInfo {
            name: name.into(),
            element: ElementType::F32,
            dims: Some(
                dims.iter()
                    .map(|d| d.parse().map_or_else(|_| Dim::Any((*d).into()), Dim::Fixed))
                    .collect(),
            ),
        }
    }

    fn give(names: &[(&str, [u32; 2])]) -> Result<Vec<Tensor>, InferError> {
        let takes = [info("a", &["N", "2"]), info("b", &["N", "3"])];
        let given = names
            .iter()
            .map(|(name, shape)| {
                let zeros = vec![0f32; (shape[0] * shape[1]) as usize];
                ((*name).to_owned(), Tensor::from_slice(*shape, &zeros).unwrap())
            })
            .collect();
        arrange(&takes, given, &ModelLimits::default())
    }

    #[test]
    fn inputs_come_in_the_order_of_the_model() {
        let tensors = give(&[("b", [4, 3]), ("a", [4, 2])]).unwrap();
        assert_eq!(tensors[0].shape().dims(), [4, 2]);
    }

    #[test]
    fn an_input_without_elements_is_refused_by_its_dimension() {
        let takes = [info("a", &["N", "2"]), info("b", &["N", ""])];
        let tensor = |dims: [u32; 2]| {
            let zeros = vec![0f32; (dims[0] * dims[1]) as usize];
            Tensor::from_slice(dims, &zeros).unwrap()
        };
        let refused = |one, other| refuse_empty(&takes, &[tensor(one), tensor(other)]);
        assert_eq!(refused([1, 2], [1, 1]), Ok(()));
        for (one, other, says) in [
            (
                [0, 2],
                [0, 3],
                "dimension `N` of input `a` is 0, and 1 is the least",
            ),
            (
                [4, 2],
                [4, 0],
                "dimension `1` of input `b` is 0, and 1 is the least",
            ),
        ] {
            let error = refused(one, other).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.kind(), karman_types::ErrorKind::Invalid);
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (given, says) in [
            (&[("a", [4, 2])][..], "input b f32 [N, 3] is missing"),
            (
                &[("a", [4, 2]), ("c", [4, 3])],
                "no input `c`: it takes a f32 [N, 2], b f32 [N, 3]",
            ),
            (&[("a", [4, 2]), ("a", [4, 2])], "input `a` is given twice"),
            (
                &[("a", [4, 3])],
                "input `a` is f32 [4, 3], but the model takes a f32 [N, 2]",
            ),
            (
                &[("a", [4, 2]), ("b", [5, 3])],
                "input `b` is f32 [5, 3], but the model takes b f32 [N, 3], and `N` is 4 by `a`",
            ),
        ] {
            let error = give(given).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.kind(), karman_types::ErrorKind::Invalid);
        }
    }
}
