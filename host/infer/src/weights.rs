//! The weights of a model as arrays with names, and the same model with others in their place: what learning changes, and nothing else.
//!
//! Weights are the `f32` constants of the file that operators learn by (kernels, matrices, biases, the statistics of a
//! normalisation). Constants that say how an operator works (a scale, a bound, a single value that is added) are none, and neither are
//! those inside of subgraphs.

mod constant;

pub(crate) use constant::{bytes8, constant, whole_numbers};

use crate::screen::{only, printable, screen};
use crate::wire::{Fields, Value, Writer};
use crate::{InferError, ModelLimits};
use constant::{Constant, FLOAT};
use std::collections::HashMap;

/// An array of weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// Its name in the model.
    pub name: String,
    /// Its dimensions, the outermost first.
    pub shape: Vec<u32>,
    /// Its numbers, row by row.
    pub values: Vec<f32>,
}

/// The weights of a model, in the order of its file.
///
/// # Errors
/// What loading refuses: [`InferError::Malformed`], [`InferError::Limit`], [`InferError::ExternalData`].
pub fn weights(model: &[u8], limits: &ModelLimits) -> Result<Vec<Weight>, InferError> {
    screen(model, limits)?;
    let graph = only(model, 7)?.unwrap_or_default();
    let learnt = learnt(graph)?;
    let mut found = Vec::new();
    for field in Fields(graph) {
        let (5, tensor) = field? else { continue };
        let tensor = Constant::read(tensor.bytes()?)?;
        let fewest = learnt.get(tensor.name).copied();
        if tensor.code == FLOAT && fewest.is_some_and(|fewest| tensor.elements() >= fewest) {
            found.push(tensor.weight()?);
        }
    }
    Ok(found)
}

/// The model with these weights in the place of its own; those that are not named stay.
///
/// # Errors
/// [`InferError::Weight`] for one that the model does not have or has in another shape, or with a number that is none; those of
/// [`weights`].
pub fn with_weights(model: &[u8], given: &[Weight], limits: &ModelLimits) -> Result<Vec<u8>, InferError> {
    let known = weights(model, limits)?;
    for weight in given {
        check(weight, known.iter().find(|known| known.name == weight.name))?;
    }
    let given: HashMap<&str, &Weight> = given
        .iter()
        .map(|weight| (weight.name.as_str(), weight))
        .collect();
    let mut out = Writer::default();
    for field in spans(model) {
        match field? {
            (7, graph, _) => _ = out.bytes(7, graph_with(graph.bytes()?, &given)?),
            (_, _, span) => out.0.extend_from_slice(span),
        }
    }
    Ok(out.0)
}

fn check(weight: &Weight, known: Option<&Weight>) -> Result<(), InferError> {
    let wrong = |reason: String| {
        Err(InferError::Weight {
            name: printable(&weight.name),
            reason,
        })
    };
    let Some(known) = known else {
        return wrong("the model has no such weights".into());
    };
    if weight.shape != known.shape || weight.values.len() != known.values.len() {
        return wrong(format!(
            "{:?} with {} numbers do not take the place of {:?}",
            weight.shape,
            weight.values.len(),
            known.shape
        ));
    }
    match weight.values.iter().find(|value| !value.is_finite()) {
        Some(value) => wrong(format!("{value} is no weight")),
        None => Ok(()),
    }
}

fn graph_with(graph: &[u8], given: &HashMap<&str, &Weight>) -> Result<Vec<u8>, InferError> {
    let mut out = Writer::default();
    for field in spans(graph) {
        let (number, value, span) = field?;
        if number == 5 {
            let body = value.bytes()?;
            if let Some(weight) = given.get(Constant::read(body)?.name) {
                out.bytes(5, tensor_with(body, &weight.values)?);
                continue;
            }
        }
        out.0.extend_from_slice(span);
    }
    Ok(out.0)
}

fn tensor_with(tensor: &[u8], values: &[f32]) -> Result<Vec<u8>, InferError> {
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut out = Writer::default();
    for field in spans(tensor) {
        match field? {
            // In the field in which the file has them, so that the same numbers give the same file.
            (number @ (4 | 9), Value::Bytes(numbers), _) if !numbers.is_empty() => {
                _ = out.bytes(number, &raw)
            }
            (_, _, span) => out.0.extend_from_slice(span),
        }
    }
    Ok(out.0)
}

/// What a field of a message is read as: its number, its value, and the bytes in which it stands.
pub(crate) type Span<'a> = Result<(u32, Value<'a>, &'a [u8]), InferError>;

pub(crate) fn spans(message: &[u8]) -> impl Iterator<Item = Span<'_>> {
    let mut rest = Fields(message);
    std::iter::from_fn(move || {
        let before = rest.0;
        let field = rest.next()?;
        let span = &before[..before.len() - rest.0.len()];
        Some(field.map(|(number, value)| (number, value, span)))
    })
}

/// The names of constants that operators of this graph learn by, each with the fewest elements with which it is one.
fn learnt(graph: &[u8]) -> Result<HashMap<&str, u64>, InferError> {
    let mut names = HashMap::new();
    for field in Fields(graph) {
        let (1, node) = field? else { continue };
        let (mut op, mut inputs) = ("", Vec::new());
        for field in Fields(node.bytes()?) {
            match field? {
                (1, input) => inputs.push(input.text()?),
                (4, text) => op = text.text()?,
                _ => {}
            }
        }
        let (places, fewest) = learns_by(op);
        let of_node = places.iter().filter_map(|place| inputs.get(*place).copied());
        names.extend(of_node.filter(|name| !name.is_empty()).map(|name| (name, fewest)));
    }
    Ok(names)
}

/// The inputs of an operator that learning changes, counted from 0, and the fewest elements that one of them has.
fn learns_by(op: &str) -> (&'static [usize], u64) {
    match op {
        "Conv"
        | "ConvTranspose"
        | "Gemm"
        | "InstanceNormalization"
        | "LayerNormalization"
        | "GroupNormalization" => (&[1, 2], 1),
        "BatchNormalization" => (&[1, 2, 3, 4], 1),
        "LSTM" | "GRU" | "RNN" => (&[1, 2, 3], 1),
        "PRelu" => (&[1], 1),
        "Gather" => (&[0], 1),
        // A bias or a matrix; a single value is a setting.
        "MatMul" | "Add" => (&[0, 1], 2),
        _ => (&[], 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn model(name: &str) -> Vec<u8> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::fs::read(root.join(name)).unwrap()
    }

    const SMALL: &str = "plugins/flood/models/flood-s.onnx";

    #[test]
    fn weights_are_what_operators_learn_by() {
        let weights = weights(&model(SMALL), &ModelLimits::default()).unwrap();
        let names: Vec<(&str, &[u32])> = weights
            .iter()
            .map(|weight| (weight.name.as_str(), &weight.shape[..]))
            .collect();
        // Not `range` and `even`, by which pixels are divided and scores compared.
        assert_eq!(
            names,
            [
                ("layer0.weight", &[8, 3, 3, 3][..]),
                ("layer0.bias", &[8]),
                ("layer2.weight", &[8, 8, 3, 3]),
                ("layer2.bias", &[8]),
                ("layer4.weight", &[1, 8, 3, 3]),
                ("layer4.bias", &[1]),
            ]
        );
        let count: usize = weights.iter().map(|weight| weight.values.len()).sum();
        assert_eq!(count, 881);
    }

    #[test]
    fn the_same_weights_give_the_same_file() {
        for name in [
            SMALL,
            "plugins/flood/models/flood-l.onnx",
            "tests/models/digits-s.onnx",
        ] {
            let (file, limits) = (model(name), ModelLimits::default());
            let own = weights(&file, &limits).unwrap();
            assert!(!own.is_empty(), "{name}");
            assert!(with_weights(&file, &own, &limits).unwrap() == file, "{name}");
        }
    }

    /// A message with one of its fields written anew.
    fn with_field(message: &[u8], wanted: u32, write: impl Fn(&mut Writer, &[u8])) -> Vec<u8> {
        let mut out = Writer::default();
        for field in spans(message) {
            match field.unwrap() {
                (number, value, _) if number == wanted => write(&mut out, value.bytes().unwrap()),
                (_, _, span) => out.0.extend_from_slice(span),
            }
        }
        out.0
    }

    #[test]
    fn numbers_that_are_not_raw_stay_in_their_field() {
        let limits = ModelLimits::default();
        let raw = model(SMALL);
        let typed = with_field(&raw, 7, |model, graph| {
            let graph = with_field(graph, 5, |graph, tensor| {
                let tensor = match Constant::read(tensor).unwrap().code {
                    FLOAT => with_field(tensor, 9, |tensor, numbers| _ = tensor.bytes(4, numbers)),
                    _ => tensor.to_vec(),
                };
                graph.bytes(5, tensor);
            });
            model.bytes(7, graph);
        });
        assert!(typed != raw);
        let mut own = weights(&typed, &limits).unwrap();
        assert_eq!(own, weights(&raw, &limits).unwrap());
        assert!(with_weights(&typed, &own, &limits).unwrap() == typed);
        own[1].values[7] = 0.25;
        let other = with_weights(&typed, &own, &limits).unwrap();
        assert_eq!(weights(&other, &limits).unwrap(), own);
    }

    #[test]
    fn other_weights_are_in_the_file_and_the_rest_stays() {
        let (file, limits) = (model(SMALL), ModelLimits::default());
        let mut changed = weights(&file, &limits).unwrap();
        changed.truncate(2);
        changed[1].values[7] = 0.25;
        let other = with_weights(&file, &changed, &limits).unwrap();
        let found = weights(&other, &limits).unwrap();
        assert_eq!(found[..2], changed);
        assert_eq!(found[2..], weights(&file, &limits).unwrap()[2..]);
        assert_eq!(other.len(), file.len());
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let (file, limits) = (model(SMALL), ModelLimits::default());
        let own = weights(&file, &limits).unwrap().remove(1);
        let none = Weight {
            name: "even".into(),
            ..own.clone()
        };
        let short = Weight {
            values: vec![0.0; 7],
            ..own.clone()
        };
        let other = Weight {
            shape: vec![2, 4],
            ..own.clone()
        };
        let mut nan = own;
        nan.values[3] = f32::NAN;
        for (wrong, says) in [
            (none, "no such weights"),
            (short, "with 7 numbers"),
            (other, "[2, 4]"),
            (nan, "NaN is no weight"),
        ] {
            let error = with_weights(&file, &[wrong], &limits).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(with_weights(b"no model", &[], &limits).is_err());
    }
}
