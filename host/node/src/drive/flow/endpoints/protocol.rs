//! What a server is asked and what it answers, in the words of the Open Inference Protocol v2. Tensors go as JSON, which every server of the
//! protocol takes, or as bytes behind it where the server says that it takes these: they are shorter, need no reading, and keep what
//! JSON has no words for (NaN, and halves on servers that read none).

use crate::inference::binary::{WireBody, shared_out};
use crate::inference::{InferRequest, InferTensor, TensorData, WantedOutput, WantedParameters, element_of};
use bytes::Bytes;
use karman_tensor::Shape;
use karman_types::TaskError;
use serde::Deserialize;

/// The most lists that a tensor without elements may be made of.
const MOST_EMPTY_LISTS: u64 = 4096;

/// What a server says of itself, as far as it matters here.
#[derive(Deserialize)]
pub(super) struct DescribedServer {
    #[serde(default)]
    pub(super) extensions: Vec<String>,
}

/// What a server says of a model, as far as it matters here.
#[derive(Deserialize)]
pub(super) struct DescribedModel {
    pub(super) inputs: Vec<DescribedTensor>,
    #[serde(default)]
    pub(super) outputs: Vec<DescribedTensor>,
}

/// An input or output of a model.
#[derive(Deserialize)]
pub(super) struct DescribedTensor {
    pub(super) name: String,
    pub(super) datatype: String,
}

#[derive(Deserialize)]
struct Answered {
    outputs: Vec<InferTensor>,
}

/// A request to run a model on these inputs: as JSON, or as bytes where it is said what the model gives.
///
/// # Errors
/// `invalid`, naming the input whose elements are not what it says.
pub(super) fn question(
    mut inputs: Vec<InferTensor>,
    as_bytes: Option<&DescribedModel>,
) -> Result<WireBody, TaskError> {
    inputs.iter().try_for_each(check)?;
    let (mut outputs, mut behind) = (Vec::new(), Vec::new());
    if let Some(model) = as_bytes {
        for input in &mut inputs {
            behind.extend(announce(input)?);
        }
        outputs.extend(model.outputs.iter().map(wanted));
    }
    let request = InferRequest {
        id: None,
        parameters: Default::default(),
        inputs,
        outputs,
    };
    let json = serde_json::to_vec(&request).map_err(|error| TaskError::internal(error.to_string()))?;
    Ok(WireBody::of(json, behind))
}

/// Leaves of an input what JSON says, and gives the bytes that follow; texts, and numbers that have no tensor here, stay in the JSON.
fn announce(input: &mut InferTensor) -> Result<Option<Bytes>, TaskError> {
    if element_of(&input.datatype).is_none() {
        return Ok(None);
    }
    let (name, tensor) = input.read()?;
    let bytes = tensor.to_bytes();
    *input = InferTensor::announce(&name, &tensor, Some(bytes.len() as u64));
    Ok(Some(bytes))
}

fn wanted(output: &DescribedTensor) -> WantedOutput {
    WantedOutput {
        name: output.name.clone(),
        parameters: WantedParameters {
            binary_data: Some(element_of(&output.datatype).is_some()),
            ..WantedParameters::default()
        },
    }
}

/// The outputs of an answer.
///
/// # Errors
/// `invalid` when it is none of the protocol.
pub(super) fn outputs((json, behind): (Bytes, Bytes)) -> Result<Vec<InferTensor>, TaskError> {
    let answered: Answered =
        serde_json::from_slice(&json).map_err(|error| TaskError::invalid(error.to_string()))?;
    let outputs = shared_out(answered.outputs, behind)?.into_iter();
    let read = |(output, bytes): (InferTensor, Option<Bytes>)| {
        let output = match bytes {
            None => output,
            Some(bytes) => {
                let (name, tensor) = output.read_bytes(&bytes)?;
                InferTensor::write(&name, &tensor)
            }
        };
        check(&output).map(|()| output)
    };
    outputs.map(read).collect()
}

/// Whether a tensor has as many elements as its shape says: whoever nests them goes by the shape.
fn check(tensor: &InferTensor) -> Result<(), TaskError> {
    let held = match &tensor.data {
        Some(TensorData::Read(elements)) => elements.len() as u64,
        Some(TensorData::Held(held)) => held.len() as u64,
        None => return Err(tensor.wrong("it has no data")),
    };
    // Each dimension is a list within another: of more than there are tensors of, no stack holds them all.
    if tensor.shape.len() > Shape::MAX_RANK {
        let (given, most) = (tensor.shape.len(), Shape::MAX_RANK);
        return Err(tensor.wrong(&format!("{given} dimensions; a tensor has at most {most}")));
    }
    // Without elements there are still the lists that hold none.
    let before = tensor.shape.split(|dim| *dim == 0).next().unwrap_or_default();
    let product = before
        .iter()
        .try_fold(1, |product: u64, dim| product.checked_mul(u64::from(*dim)));
    let count = match before.len() < tensor.shape.len() {
        true => product.filter(|lists| *lists <= MOST_EMPTY_LISTS).map(|_| 0),
        false => product,
    };
    match count == Some(held) {
        true => Ok(()),
        false => {
            let shape = &tensor.shape;
            Err(tensor.wrong(&format!("{held} elements are not the shape {shape:?}")))
        }
    }
}
