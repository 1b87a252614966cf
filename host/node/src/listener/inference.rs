//! Requests to models as JSON, in the words of the Open Inference Protocol v2 (KServe, NVIDIA Triton).

use crate::drive::Leg;
use half::f16;
use karman_tensor::{Element, ElementType, Shape, Tensor};
use karman_types::TaskError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a model is to be run on.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct InferRequest {
    /// The caller's name for the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The inputs.
    pub inputs: Vec<InferTensor>,
}

/// What it gave.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct InferResponse {
    /// The model.
    pub model_name: String,
    /// The caller's name for the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What is no part of the protocol.
    pub parameters: InferParameters,
    /// The outputs.
    pub outputs: Vec<InferTensor>,
}

/// What Karman adds to a response.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct InferParameters {
    /// What each node did, in order.
    pub legs: Vec<Leg>,
}

/// A tensor in JSON.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct InferTensor {
    /// Its name.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<u32>,
    /// `FP16`, `FP32`, `FP64`, `INT8`, `UINT8`, `INT32`, `INT64` or `BOOL`.
    pub datatype: String,
    /// Its elements in row-major order, flat or nested.
    pub data: Value,
}

impl InferTensor {
    /// The tensor, under its name.
    ///
    /// # Errors
    /// `invalid`, naming what does not fit.
    pub fn read(&self) -> Result<(String, Tensor), TaskError> {
        let wrong = |why: String| TaskError::invalid(format!("`{}`: {why}", self.name)).with_field("inputs");
        let shape = Shape::new(&self.shape).map_err(|error| wrong(error.to_string()))?;
        let mut numbers = Vec::new();
        flatten(&self.data, &mut numbers).map_err(&wrong)?;
        let tensor = match self.datatype.as_str() {
            "FP16" => made(shape, &numbers, |value| value.as_f64().map(f16::from_f64)),
            "FP32" => made(shape, &numbers, |value| value.as_f64().map(|value| value as f32)),
            "FP64" => made(shape, &numbers, Value::as_f64),
            "INT8" => made(shape, &numbers, |value| i8::try_from(value.as_i64()?).ok()),
            "UINT8" => made(shape, &numbers, |value| u8::try_from(value.as_u64()?).ok()),
            "INT32" => made(shape, &numbers, |value| i32::try_from(value.as_i64()?).ok()),
            "INT64" => made(shape, &numbers, Value::as_i64),
            "BOOL" => made(shape, &numbers, Value::as_bool),
            other => return Err(wrong(format!("{other} is no data type that is taken"))),
        };
        Ok((self.name.clone(), tensor.map_err(wrong)?))
    }

    /// A tensor in JSON.
    ///
    /// # Errors
    /// `invalid` for a type that the protocol does not name.
    pub fn write(name: &str, tensor: &Tensor) -> Result<Self, TaskError> {
        let unnamed = || {
            TaskError::invalid(format!(
                "`{name}` is {}, which has no name in JSON",
                tensor.element()
            ))
        };
        let datatype = datatype(tensor.element()).ok_or_else(unnamed)?;
        let data = match tensor.element() {
            ElementType::F16 => listed(tensor, |value: f16| value.to_f32().into()),
            ElementType::F32 => listed(tensor, |value: f32| value.into()),
            ElementType::F64 => listed(tensor, |value: f64| value.into()),
            ElementType::I8 => listed(tensor, |value: i8| value.into()),
            ElementType::U8 => listed(tensor, |value: u8| value.into()),
            ElementType::I32 => listed(tensor, |value: i32| value.into()),
            ElementType::I64 => listed(tensor, |value: i64| value.into()),
            ElementType::Bool => listed(tensor, |value: bool| value.into()),
            ElementType::Bf16 => return Err(unnamed()),
        };
        Ok(Self {
            name: name.to_owned(),
            shape: tensor.shape().dims().to_vec(),
            datatype: datatype.to_owned(),
            data: data.map_err(|error| TaskError::internal(error.to_string()))?,
        })
    }
}

/// The name of an element type in the protocol; bf16 has none.
pub(crate) const fn datatype(element: ElementType) -> Option<&'static str> {
    Some(match element {
        ElementType::F16 => "FP16",
        ElementType::F32 => "FP32",
        ElementType::F64 => "FP64",
        ElementType::I8 => "INT8",
        ElementType::U8 => "UINT8",
        ElementType::I32 => "INT32",
        ElementType::I64 => "INT64",
        ElementType::Bool => "BOOL",
        ElementType::Bf16 => return None,
    })
}

/// The nesting of JSON is bounded by its reader.
fn flatten<'a>(data: &'a Value, numbers: &mut Vec<&'a Value>) -> Result<(), String> {
    match data {
        Value::Array(parts) => parts.iter().try_for_each(|part| flatten(part, numbers)),
        Value::Number(_) | Value::Bool(_) => {
            numbers.push(data);
            Ok(())
        }
        other => Err(format!("{other} is no number")),
    }
}

fn made<T: Element>(
    shape: Shape,
    numbers: &[&Value],
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Tensor, String> {
    let elements = numbers
        .iter()
        .map(|value| read(value).ok_or_else(|| format!("{value} does not fit its type")));
    let elements: Vec<T> = elements.collect::<Result<_, _>>()?;
    Tensor::from_slice(shape, &elements).map_err(|error| error.to_string())
}

fn listed<T: Element + Copy>(
    tensor: &Tensor,
    write: impl Fn(T) -> Value,
) -> Result<Value, karman_tensor::TensorError> {
    Ok(tensor.view::<T>()?.iter().copied().map(write).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tensor(shape: &[u32], datatype: &str, data: Value) -> InferTensor {
        InferTensor {
            name: "x".into(),
            shape: shape.to_vec(),
            datatype: datatype.into(),
            data,
        }
    }

    #[test]
    fn what_is_read_is_written_again() {
        for (datatype, data) in [
            ("FP32", json!([0.5, -1.25])),
            ("FP64", json!([0.1, 1e300])),
            ("INT64", json!([i64::MIN, 3])),
            ("UINT8", json!([0, 255])),
            ("BOOL", json!([true, false])),
        ] {
            let (name, read) = tensor(&[2], datatype, data.clone()).read().unwrap();
            let written = InferTensor::write(&name, &read).unwrap();
            assert_eq!((written.data, written.datatype.as_str()), (data, datatype));
        }
        let nested = tensor(&[2, 2], "INT32", json!([[1, 2], [3, 4]]))
            .read()
            .unwrap()
            .1;
        assert_eq!(nested.view::<i32>().unwrap(), [1, 2, 3, 4]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (wrong, says) in [
            (tensor(&[3], "FP32", json!([1, 2])), "3"),
            (tensor(&[1], "UINT8", json!([256])), "256 does not fit"),
            (tensor(&[1], "FP32", json!(["1"])), "\"1\" is no number"),
            (tensor(&[1], "BYTES", json!([1])), "BYTES is no data type"),
            (tensor(&[u32::MAX; 4], "FP32", json!([])), "x"),
        ] {
            let error = wrong.read().unwrap_err();
            assert!(error.message.contains(says), "{error}");
        }
    }
}
