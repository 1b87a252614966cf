//! The same model with dimensions closed that it leaves to each call, such as the height of a picture.
//!
//! What a model in parts costs has to be known before it runs, so all but the batch is fixed there. A file whose dimensions are closed
//! is a model like any other: whoever wants two sizes adds it twice, under two names.

use crate::graph::settled;
use crate::outline::Outline;
use crate::screen::{only, printable};
use crate::weights::spans;
use crate::wire::Writer;
use crate::{Dim, InferError, ModelLimits, TensorInfo};
use karman_tensor::Shape;
use std::collections::HashMap;

/// The dimensions that an input is to have.
#[derive(Clone, Debug, PartialEq)]
pub struct InputShape {
    /// The name of the input.
    pub input: String,
    /// The outermost first; none where the dimension stays as the model has it.
    pub dims: Vec<Option<u32>>,
}

/// The model with its inputs in these shapes. Dimensions of the same name become the same size, also of other inputs and of what it gives.
/// Where none is left open, shapes that the model would ask for as it runs are constants of it.
///
/// # Errors
/// [`InferError::Shape`] for an input that is not there, dimensions that are not those of the model, and one dimension in two sizes;
/// what loading refuses: [`InferError::Malformed`], [`InferError::Limit`], [`InferError::ExternalData`].
pub fn with_shapes(model: &[u8], given: &[InputShape], limits: &ModelLimits) -> Result<Vec<u8>, InferError> {
    let outline = Outline::read(model, limits)?;
    let closed = Closed::by(given, &outline.inputs)?;
    let file = replaced(model, &[7], |graph| {
        replaced(graph, &[11, 12, 13], |value| closed.value(value))
    })?;
    Ok(settled(&file, limits).unwrap_or(file))
}

/// What is closed to which size.
struct Closed<'a> {
    /// Whole shapes, by the name of the input.
    inputs: HashMap<&'a str, &'a [Option<u32>]>,
    /// Dimensions, by their name.
    names: HashMap<&'a str, u32>,
}

impl<'a> Closed<'a> {
    fn by(given: &'a [InputShape], inputs: &'a [TensorInfo]) -> Result<Self, InferError> {
        let mut closed = Self {
            inputs: HashMap::new(),
            names: HashMap::new(),
        };
        for shape in given {
            let InputShape { input, dims } = shape;
            let wrong = |reason: String| InferError::Shape {
                input: printable(input),
                reason,
            };
            let known = inputs.iter().find(|info| info.name == *input).ok_or_else(|| {
                let takes: Vec<String> = inputs.iter().map(ToString::to_string).collect();
                wrong(format!("the model takes {}", takes.join(", ")))
            })?;
            if dims.len() > Shape::MAX_RANK {
                return Err(wrong(format!(
                    "tensors have at most {} dimensions",
                    Shape::MAX_RANK
                )));
            }
            if closed.inputs.insert(input, dims).is_some() {
                return Err(wrong("it is given twice".into()));
            }
            let Some(of_model) = &known.dims else { continue };
            if of_model.len() != dims.len() {
                return Err(wrong(format!("the model takes {known}")));
            }
            for (dim, size) in of_model.iter().zip(dims) {
                let Some(size) = *size else { continue };
                match dim {
                    Dim::Fixed(fixed) if *fixed != size => {
                        return Err(wrong(format!("the model takes {known}")));
                    }
                    Dim::Any(name) if !name.is_empty() => {
                        let before = closed.names.insert(name, size);
                        if before.is_some_and(|before| before != size) {
                            return Err(wrong(format!("`{name}` has one size")));
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(closed)
    }

    /// A `ValueInfoProto` of onnx.proto: its type (2) is one of a tensor (1), which has a shape (2).
    fn value(&self, value: &[u8]) -> Result<Vec<u8>, InferError> {
        let name = only(value, 1)?.unwrap_or_default();
        let whole = std::str::from_utf8(name)
            .ok()
            .and_then(|name| self.inputs.get(name));
        replaced(value, &[2], |of_type| {
            replaced(of_type, &[1], |tensor| {
                if let (Some(dims), None) = (whole, only(tensor, 2)?) {
                    let mut out = Writer(tensor.to_vec());
                    out.message(2, |shape| {
                        dims.iter().for_each(|size| _ = shape.bytes(1, dimension(*size)))
                    });
                    return Ok(out.0);
                }
                replaced(tensor, &[2], |shape| {
                    let mut sizes = whole.iter().flat_map(|dims| dims.iter());
                    replaced(shape, &[1], |dim| {
                        let of_input = sizes.next().copied().flatten();
                        Ok(match of_input.or(self.of_name(dim)?) {
                            Some(size) => dimension(Some(size)),
                            None => dim.to_vec(),
                        })
                    })
                })
            })
        })
    }

    /// The size of the dimension with the name that stands here.
    fn of_name(&self, dim: &[u8]) -> Result<Option<u32>, InferError> {
        let name = only(dim, 2)?.and_then(|name| std::str::from_utf8(name).ok());
        Ok(name
            .and_then(|name| self.names.get(printable(name).as_str()))
            .copied())
    }
}

/// `TensorShapeProto.Dimension` of onnx.proto.
fn dimension(size: Option<u32>) -> Vec<u8> {
    let mut out = Writer::default();
    if let Some(size) = size {
        out.number(1, i64::from(size));
    }
    out.0
}

/// The message with another content in each of these fields; all others stand as they stood.
fn replaced(
    message: &[u8],
    fields: &[u32],
    mut with: impl FnMut(&[u8]) -> Result<Vec<u8>, InferError>,
) -> Result<Vec<u8>, InferError> {
    let mut out = Writer::default();
    for field in spans(message) {
        let (number, value, span) = field?;
        if fields.contains(&number) {
            out.bytes(number, with(value.bytes()?)?);
        } else {
            out.0.extend_from_slice(span);
        }
    }
    Ok(out.0)
}
