//! Requests to models in the words of the Open Inference Protocol v2 (KServe, NVIDIA Triton), as JSON. The node's operator and
//! the gateway speak the same.

pub mod binary;
mod elements;
mod outputs;

use elements::AnsweredData;
pub use elements::{Scalar, TensorData};
pub use outputs::{chosen, each_once};

use crate::drive::Leg;
use half::{bf16, f16};
use karman_tensor::{Element, ElementType, Shape, Tensor};
use karman_types::{ByteSize, TaskError};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// The longest request in JSON that a node's operator may make.
pub const MOST_REQUEST: ByteSize = ByteSize::mib(256);
/// A parameter of an output that is wanted in another form than the model gives it.
const CLASSIFICATION: &str = "classification";
/// A parameter of a tensor that goes another way than the request and its answer.
const SHARED_MEMORY: &str = "shared_memory_region";
/// Parameters of tensors that ask for what is not done here.
pub const NOT_DONE: [&str; 2] = [CLASSIFICATION, SHARED_MEMORY];

/// What a model is to be run on.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(example = digit)]
pub struct InferRequest {
    /// The caller's name for the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What is asked besides.
    #[serde(default, skip_serializing_if = "RequestParameters::say_nothing")]
    pub parameters: RequestParameters,
    /// The inputs.
    pub inputs: Vec<InferTensor>,
    /// The outputs that are wanted; all of them where none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<WantedOutput>,
}

impl InferRequest {
    /// Refuses what is not done here, rather than to answer as if nobody had asked for it.
    ///
    /// # Errors
    /// `invalid`, with the parameter as its field.
    pub fn check(&self) -> Result<(), TaskError> {
        for input in &self.inputs {
            if input.parameters.shared_memory_region.is_some() {
                return Err(not_done(&input.name, SHARED_MEMORY));
            }
        }
        for WantedOutput { name, parameters } in &self.outputs {
            if parameters.classification.is_some() {
                return Err(not_done(name, CLASSIFICATION));
            }
            if parameters.shared_memory_region.is_some() {
                return Err(not_done(name, SHARED_MEMORY));
            }
        }
        Ok(())
    }
}

/// The error that a tensor has a parameter which asks for what is not done here.
pub fn not_done(tensor: &str, parameter: &str) -> TaskError {
    TaskError::invalid(format!("`{tensor}`: `{parameter}` is not done here"))
        .with_field(parameter)
        .with_hint("leave it out: tensors come and go whole, in the request and its answer")
}

/// A request to a model that tells digits: what the description of the routes shows.
fn digit() -> serde_json::Value {
    let row = [0.0, 0.25, 1.0, 0.5, 0.5, 1.0, 0.25, 0.0];
    let image = serde_json::json!([[vec![row; 8]]]);
    serde_json::json!({
        "inputs": [{ "name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": image }],
        "outputs": [{ "name": "probabilities" }],
    })
}

/// What is asked of a request as a whole.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub struct RequestParameters {
    /// Whether outputs that do not say otherwise come as bytes behind the JSON (the binary tensor extension).
    pub binary_data_output: bool,
    /// Microseconds that the answer may take; 0, or nothing: as long as any may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
}

impl RequestParameters {
    /// How long the answer may take, where that is said.
    pub fn within(&self) -> Option<Duration> {
        self.timeout.filter(|us| *us > 0).map(Duration::from_micros)
    }

    const fn say_nothing(&self) -> bool {
        !self.binary_data_output && self.timeout.is_none()
    }
}

/// An output that is wanted.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct WantedOutput {
    /// Its name.
    pub name: String,
    /// How it is wanted.
    #[serde(default)]
    pub parameters: WantedParameters,
}

/// How an output is wanted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub struct WantedParameters {
    /// Whether it comes as bytes behind the JSON.
    pub binary_data: Option<bool>,
    /// Not done here: [`InferRequest::check`].
    #[serde(skip_serializing)]
    #[schema(ignore)]
    pub classification: Option<IgnoredAny>,
    /// Not done here: [`InferRequest::check`].
    #[serde(skip_serializing)]
    #[schema(ignore)]
    pub shared_memory_region: Option<IgnoredAny>,
}

/// What a model gave.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct InferResponse {
    /// The model.
    pub model_name: String,
    /// Its version, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_version: Option<String>,
    /// The caller's name for the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What is no part of the protocol.
    #[serde(default)]
    pub parameters: InferParameters,
    /// The outputs.
    #[serde(deserialize_with = "answered")]
    pub outputs: Vec<InferTensor>,
}

/// What Karman adds to a response.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
pub struct InferParameters {
    /// What each node did, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub legs: Vec<Leg>,
    /// Where one of several was chosen to answer: under which `karman why` tells of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// Microseconds from the inputs to the results, on all nodes together; nothing where it was not timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
}

/// A tensor in JSON, or what JSON says of one whose bytes follow it.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct InferTensor {
    /// Its name.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<u32>,
    /// `FP16`, `BF16`, `FP32`, `FP64`, `INT8`, `UINT8`, `INT32`, `INT64`, `BOOL`; `BYTES` for tasks.
    pub datatype: String,
    /// Where its elements are.
    #[serde(default, skip_serializing_if = "TensorParameters::say_nothing")]
    pub parameters: TensorParameters,
    /// Its elements in row-major order, flat or nested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<serde_json::Value>>)]
    pub data: Option<TensorData>,
}

/// Reads the tensors of an answer, in which `null` is NaN.
fn answered<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<InferTensor>, D::Error> {
    #[derive(Deserialize)]
    struct Answered {
        name: String,
        shape: Vec<u32>,
        datatype: String,
        #[serde(default)]
        parameters: TensorParameters,
        #[serde(default)]
        data: Option<AnsweredData>,
    }
    let tensors = Vec::<Answered>::deserialize(deserializer)?.into_iter();
    let tensors = tensors.map(|tensor| InferTensor {
        name: tensor.name,
        shape: tensor.shape,
        datatype: tensor.datatype,
        parameters: tensor.parameters,
        data: tensor.data.map(|AnsweredData(data)| data),
    });
    Ok(tensors.collect())
}

/// Where the elements of a tensor are.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub struct TensorParameters {
    /// They are so many bytes behind the JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary_data_size: Option<u64>,
    /// Not done here: [`InferRequest::check`].
    #[serde(skip_serializing)]
    #[schema(ignore)]
    pub shared_memory_region: Option<IgnoredAny>,
}

impl TensorParameters {
    const fn say_nothing(&self) -> bool {
        self.binary_data_size.is_none()
    }
}

/// The name of an element type in the protocol.
pub const fn datatype(element: ElementType) -> &'static str {
    match element {
        ElementType::F16 => "FP16",
        ElementType::Bf16 => "BF16",
        ElementType::F32 => "FP32",
        ElementType::F64 => "FP64",
        ElementType::I8 => "INT8",
        ElementType::U8 => "UINT8",
        ElementType::I32 => "INT32",
        ElementType::I64 => "INT64",
        ElementType::Bool => "BOOL",
    }
}

/// The element type of this name in the protocol, if models here know it.
pub fn element_of(name: &str) -> Option<ElementType> {
    ElementType::ALL
        .into_iter()
        .find(|element| datatype(*element) == name)
}

impl InferTensor {
    /// The tensor, under its name.
    ///
    /// # Errors
    /// `invalid`, naming what does not fit.
    pub fn read(&self) -> Result<(String, Tensor), TaskError> {
        let (element, shape) = self.kind()?;
        let data = match &self.data {
            Some(TensorData::Held(tensor)) => return Ok((self.name.clone(), tensor.clone())),
            Some(TensorData::Read(data)) => data,
            None => return Err(self.wrong("it has no data")),
        };
        let tensor = match element {
            ElementType::F16 => made(shape, data, |value| narrowed(value, f16::from_f64)),
            ElementType::Bf16 => made(shape, data, |value| narrowed(value, bf16::from_f64)),
            ElementType::F32 => made(shape, data, |value| narrowed(value, |value| value as f32)),
            ElementType::F64 => made(shape, data, Scalar::float),
            ElementType::I8 => made(shape, data, |value| i8::try_from(value.whole()?).ok()),
            ElementType::U8 => made(shape, data, |value| u8::try_from(value.whole()?).ok()),
            ElementType::I32 => made(shape, data, |value| i32::try_from(value.whole()?).ok()),
            ElementType::I64 => made(shape, data, Scalar::whole),
            ElementType::Bool => made(shape, data, |value| match value {
                Scalar::Bool(value) => Some(*value),
                _ => None,
            }),
        };
        Ok((self.name.clone(), tensor.map_err(|why| self.wrong(&why))?))
    }

    /// The tensor whose elements are these bytes, little-endian.
    ///
    /// # Errors
    /// `invalid`, naming what does not fit.
    pub fn read_bytes(&self, bytes: &[u8]) -> Result<(String, Tensor), TaskError> {
        let (element, shape) = self.kind()?;
        let tensor = Tensor::new(element, shape, bytes).map_err(|error| self.wrong(&error.to_string()))?;
        Ok((self.name.clone(), tensor))
    }

    fn kind(&self) -> Result<(ElementType, Shape), TaskError> {
        let element = element_of(&self.datatype)
            .ok_or_else(|| self.wrong(&format!("{} is no data type that is taken", self.datatype)))?;
        let shape = Shape::new(&self.shape).map_err(|error| self.wrong(&error.to_string()))?;
        Ok((element, shape))
    }

    /// The error that this tensor does not fit.
    pub fn wrong(&self, why: &str) -> TaskError {
        TaskError::invalid(format!("`{}`: {why}", self.name)).with_field("inputs")
    }

    /// A tensor whose elements are written as JSON.
    pub fn write(name: &str, tensor: &Tensor) -> Self {
        Self {
            data: Some(TensorData::Held(tensor.clone())),
            ..Self::announce(name, tensor, None)
        }
    }

    /// A tensor whose elements follow as so many bytes.
    pub fn announce(name: &str, tensor: &Tensor, binary_data_size: Option<u64>) -> Self {
        Self {
            name: name.to_owned(),
            shape: tensor.shape().dims().to_vec(),
            datatype: datatype(tensor.element()).to_owned(),
            parameters: TensorParameters {
                binary_data_size,
                ..TensorParameters::default()
            },
            data: None,
        }
    }
}

fn made<T: Element>(
    shape: Shape,
    data: &[Scalar],
    read: impl Fn(&Scalar) -> Option<T>,
) -> Result<Tensor, String> {
    let mut elements = Vec::with_capacity(data.len());
    for value in data {
        elements.push(read(value).ok_or_else(|| format!("{value} does not fit its type"))?);
    }
    Tensor::from_slice(shape, &elements).map_err(|error| error.to_string())
}

/// A number in a narrower type, unless it is too large for that: a model would be given infinity, which nobody sent.
fn narrowed<T: Copy + Into<f64>>(value: &Scalar, narrow: impl Fn(f64) -> T) -> Option<T> {
    let value = value.float()?;
    let narrowed = narrow(value);
    (narrowed.into().is_finite() || !value.is_finite()).then_some(narrowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn tensor(shape: &[u32], datatype: &str, data: Value) -> InferTensor {
        let whole = json!({ "name": "x", "shape": shape, "datatype": datatype, "data": data });
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn what_is_read_is_written_again() {
        for (datatype, data) in [
            ("FP16", json!([0.5, -1.25])),
            ("BF16", json!([0.5, -1.25])),
            ("FP32", json!([0.5, -1.25])),
            ("FP64", json!([0.1, 1e300])),
            ("INT64", json!([i64::MIN, 3])),
            ("UINT8", json!([0, 255])),
            ("BOOL", json!([true, false])),
        ] {
            let (name, read) = tensor(&[2], datatype, data.clone()).read().unwrap();
            let written = serde_json::to_value(InferTensor::write(&name, &read)).unwrap();
            assert_eq!(
                (&written["data"], &written["datatype"]),
                (&data, &json!(datatype))
            );
        }
        let nested = tensor(&[2, 2], "INT32", json!([[1, 2], [3, 4]]))
            .read()
            .unwrap()
            .1;
        assert_eq!(nested.view::<i32>().unwrap(), [1, 2, 3, 4]);
    }

    #[test]
    fn what_json_has_no_number_for_is_nan_in_an_answer_and_refused_in_a_request() {
        let held = Tensor::from_slice([3], &[f32::NAN, 1.5, f32::INFINITY]).unwrap();
        let written = serde_json::to_value([InferTensor::write("x", &held)]).unwrap();
        let answer: InferResponse =
            serde_json::from_value(json!({ "model_name": "m", "outputs": written })).unwrap();
        let read = answer.outputs[0].read().unwrap().1;
        let read = read.view::<f32>().unwrap();
        assert!(read[0].is_nan() && read[1] == 1.5 && read[2].is_nan(), "{read:?}");
        assert_eq!(serde_json::to_value(&answer.outputs).unwrap(), written);
        let error = serde_json::from_value::<InferRequest>(json!({ "inputs": written })).unwrap_err();
        assert!(error.to_string().contains("null"), "{error}");
    }

    #[test]
    fn bytes_are_read_by_their_type() {
        let announced = InferTensor {
            data: None,
            ..tensor(&[2], "FP32", json!([]))
        };
        let bytes: Vec<u8> = [1f32, -2.0]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let (_, read) = announced.read_bytes(&bytes).unwrap();
        assert_eq!(read.view::<f32>().unwrap(), [1.0, -2.0]);
        assert!(announced.read_bytes(&bytes[..7]).is_err());
        let missing = announced.read().unwrap_err();
        assert!(missing.message.contains("no data"), "{missing}");
    }

    #[test]
    fn what_is_not_done_here_is_refused_by_its_name() {
        let request = |inputs: Value, outputs: Value| {
            let whole = json!({ "inputs": [inputs], "outputs": [outputs] });
            serde_json::from_value::<InferRequest>(whole).unwrap().check()
        };
        let input = |parameters: Value| json!({ "name": "x", "shape": [1], "datatype": "FP32", "data": [1], "parameters": parameters });
        let output = |parameters: Value| json!({ "name": "y", "parameters": parameters });
        let (shared, none) = (
            json!({ "shared_memory_region": "r", "shared_memory_byte_size": 4 }),
            json!({}),
        );
        for (inputs, outputs, field) in [
            (
                input(none.clone()),
                output(json!({ "classification": 3 })),
                "classification",
            ),
            (
                input(none.clone()),
                output(shared.clone()),
                "shared_memory_region",
            ),
            (input(shared), output(none.clone()), "shared_memory_region"),
        ] {
            let error = request(inputs, outputs).unwrap_err();
            assert_eq!(error.field.as_deref(), Some(field), "{error}");
            assert!(
                error.message.contains(field) && NOT_DONE.contains(&field),
                "{error}"
            );
        }
        assert_eq!(
            request(input(none), output(json!({ "binary_data": true }))),
            Ok(())
        );
    }

    #[test]
    fn the_example_of_the_description_is_a_request() {
        let request: InferRequest = serde_json::from_value(digit()).unwrap();
        let input = request.inputs.into_iter().next().unwrap();
        assert_eq!(input.read().unwrap().1.shape().dims(), [1, 1, 8, 8]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (wrong, says) in [
            (tensor(&[3], "FP32", json!([1, 2])), "3"),
            (tensor(&[1], "UINT8", json!([256])), "256 does not fit"),
            (tensor(&[1], "INT32", json!([1.5])), "1.5 does not fit"),
            (tensor(&[1], "FP16", json!([70_000])), "70000 does not fit"),
            (tensor(&[1], "BF16", json!([1e39])), "does not fit"),
            (tensor(&[1], "FP32", json!([-1e39])), "does not fit"),
            (tensor(&[1], "FP32", json!(["1"])), "\"1\" does not fit"),
            (tensor(&[1], "BYTES", json!([1])), "BYTES is no data type"),
            (tensor(&[u32::MAX; 4], "FP32", json!([])), "x"),
        ] {
            let error = wrong.read().unwrap_err();
            assert!(error.message.contains(says), "{error}");
        }
    }
}
