//! The values of tensors whose elements are bytes, by the binary tensor extension and in gRPC. An element of `BYTES` has its length before
//! it, in four bytes.

use super::{BYTES, Value};
use bytes::{Buf, BufMut, Bytes};
use karman_node::inference::binary::shared_out;
use karman_node::inference::{InferTensor, Scalar, TensorData};
use karman_types::TaskError;

/// The values of the inputs, in their order: of the JSON, or of the bytes behind it.
pub(super) fn read(inputs: Vec<InferTensor>, behind: Bytes) -> Result<Vec<(String, Value)>, TaskError> {
    let shared = shared_out(inputs, behind)?.into_iter();
    shared.map(|(input, bytes)| read_one(input, bytes)).collect()
}

/// The value of one input: of its JSON, or of these bytes.
pub(super) fn read_one(input: InferTensor, bytes: Option<Bytes>) -> Result<(String, Value), TaskError> {
    if input.datatype != BYTES {
        let (name, tensor) = match &bytes {
            Some(bytes) => input.read_bytes(bytes)?,
            None => input.read()?,
        };
        return Ok((name, Value::Tensor(tensor)));
    }
    let mut sizes = input.shape.iter().map(|size| u64::from(*size));
    if sizes.try_fold(1, u64::checked_mul) != Some(1) {
        return Err(input.wrong("only tasks take BYTES, and one element of it"));
    }
    let element = match (bytes, &input.data) {
        (Some(bytes), _) => {
            unframed(bytes).ok_or_else(|| input.wrong("its length does not fit its bytes"))?
        }
        (None, Some(TensorData::Read(data))) => match &data[..] {
            [Scalar::Text(text)] => Bytes::copy_from_slice(text.as_bytes()),
            _ => return Err(input.wrong("it is not one text")),
        },
        (None, _) => return Err(input.wrong("it has no data")),
    };
    Ok((input.name, Value::Bytes(element)))
}

/// The one element of a `BYTES` tensor.
pub(super) fn unframed(mut bytes: Bytes) -> Option<Bytes> {
    let length = bytes.try_get_u32_le().ok()?;
    (bytes.len() == usize::try_from(length).ok()?).then_some(bytes)
}

/// An element as a `BYTES` tensor has it.
pub(super) fn framed(element: &[u8]) -> Result<Bytes, TaskError> {
    let length = u32::try_from(element.len())
        .map_err(|_| TaskError::limit("an element of BYTES has at most 4 GiB").with_field("outputs"))?;
    let mut framed = Vec::with_capacity(element.len() + 4);
    framed.put_u32_le(length);
    framed.extend_from_slice(element);
    Ok(framed.into())
}

/// An output in JSON, and its bytes where they go behind it.
pub(super) fn write(
    name: &str,
    value: &Value,
    as_bytes: bool,
) -> Result<(InferTensor, Option<Bytes>), TaskError> {
    let (mut tensor, bytes) = match (value, as_bytes) {
        (Value::Tensor(tensor), false) => return Ok((InferTensor::write(name, tensor), None)),
        (Value::Tensor(tensor), true) => (InferTensor::announce(name, tensor, None), tensor.to_bytes()),
        (Value::Bytes(element), true) => (text(name, None), framed(element)?),
        (Value::Bytes(element), false) => {
            let element = std::str::from_utf8(element).map_err(|_| {
                TaskError::invalid(format!("`{name}` is no text, so JSON cannot hold it"))
                    .with_field("outputs")
                    .with_hint("ask for it with `binary_data`")
            })?;
            return Ok((text(name, Some(element)), None));
        }
    };
    tensor.parameters.binary_data_size = Some(bytes.len() as u64);
    Ok((tensor, Some(bytes)))
}

fn text(name: &str, data: Option<&str>) -> InferTensor {
    InferTensor {
        name: name.to_owned(),
        shape: vec![1],
        datatype: BYTES.to_owned(),
        parameters: Default::default(),
        data: data.map(|text| TensorData::Read(vec![Scalar::Text(text.into())])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn input(size: u64, datatype: &str, shape: &[u32]) -> InferTensor {
        let parameters = json!({ "binary_data_size": size });
        let whole = json!({ "name": "x", "shape": shape, "datatype": datatype, "parameters": parameters });
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn inputs_take_their_bytes_in_order() {
        let behind = Bytes::from([1f32.to_le_bytes().to_vec(), vec![3, 0, 0, 0, b'a', b'b', b'c']].concat());
        let inputs = vec![input(4, "FP32", &[1]), input(7, "BYTES", &[1])];
        let values = read(inputs, behind).unwrap();
        let (Value::Tensor(tensor), Value::Bytes(element)) = (&values[0].1, &values[1].1) else {
            panic!("{values:?}")
        };
        assert_eq!(
            (tensor.view::<f32>().unwrap(), &element[..]),
            (&[1f32][..], &b"abc"[..])
        );
    }

    #[test]
    fn bytes_that_do_not_fit_are_named() {
        for (inputs, behind, says) in [
            (vec![input(8, "FP32", &[1])], vec![0; 4], "4 bytes are left"),
            (vec![input(4, "FP32", &[2])], vec![0; 4], "x"),
            (vec![input(4, "FP32", &[1])], vec![0; 9], "5 bytes follow"),
            (vec![input(u64::MAX, "FP32", &[1])], vec![], "0 bytes are left"),
            (
                vec![input(5, "BYTES", &[1])],
                vec![9, 0, 0, 0, 1],
                "does not fit its bytes",
            ),
            (vec![input(8, "BYTES", &[2])], vec![0; 8], "one element"),
            // 2^66 elements, and so many that they are one modulo 2^64.
            (vec![input(4, "BYTES", &[1 << 22; 3])], vec![0; 4], "one element"),
            (
                vec![input(4, "BYTES", &[[641, 6_700_417, u32::MAX]; 2].concat())],
                vec![0; 4],
                "one element",
            ),
        ] {
            let error = read(inputs, behind.into()).unwrap_err();
            assert!(error.message.contains(says), "{error}");
        }
    }

    proptest! {
        #[test]
        fn elements_come_back(element in prop::collection::vec(any::<u8>(), 0..100)) {
            let framed = framed(&element).unwrap();
            prop_assert_eq!(unframed(framed.clone()).unwrap(), &element[..]);
            prop_assert!(unframed(framed.slice(..framed.len() - 1)).is_none());
        }
    }
}
