//! The binary tensor extension of the protocol: JSON of a length that a header says, and behind it the elements of tensors, one after
//! the other, little-endian.

use super::InferTensor;
use bytes::{BufMut, Bytes, BytesMut};
use karman_types::TaskError;

/// The header that says how long the JSON at the beginning of a body is.
pub const HEADER_LENGTH: &str = "inference-header-content-length";
/// By this name a server lists it among its extensions.
pub const EXTENSION: &str = "binary_tensor_data";

/// A body, and what its headers say of it.
#[derive(Debug)]
pub struct WireBody {
    /// What it is.
    pub content_type: &'static str,
    /// How many bytes of it are JSON, where others are behind them.
    pub header_length: Option<usize>,
    /// The body.
    pub bytes: Bytes,
}

impl WireBody {
    /// JSON, and the elements that follow it.
    pub fn of(json: Vec<u8>, behind: Vec<Bytes>) -> Self {
        if behind.is_empty() {
            return Self {
                content_type: "application/json",
                header_length: None,
                bytes: json.into(),
            };
        }
        let header_length = json.len();
        let length = header_length + behind.iter().map(Bytes::len).sum::<usize>();
        let mut bytes = BytesMut::with_capacity(length);
        bytes.extend_from_slice(&json);
        behind.into_iter().for_each(|elements| bytes.put(elements));
        Self {
            content_type: "application/octet-stream",
            header_length: Some(header_length),
            bytes: bytes.freeze(),
        }
    }
}

/// The JSON of a body, and what is behind it.
///
/// # Errors
/// `invalid` when its header says no length within it.
pub fn part(body: Bytes, header_length: Option<&str>) -> Result<(Bytes, Bytes), TaskError> {
    let Some(text) = header_length else {
        return Ok((body, Bytes::new()));
    };
    let length = text
        .trim()
        .parse::<usize>()
        .ok()
        .filter(|length| *length <= body.len());
    let length = length.ok_or_else(|| {
        let has = body.len();
        TaskError::invalid(format!("`{text}` is no length within the body's {has} bytes"))
            .with_field(HEADER_LENGTH)
    })?;
    Ok((body.slice(..length), body.slice(length..)))
}

/// Tensors in their order, each with its bytes where these are behind the JSON.
///
/// # Errors
/// `invalid` when there are fewer bytes than the tensors say, or more.
pub fn shared_out(
    tensors: Vec<InferTensor>,
    mut behind: Bytes,
) -> Result<Vec<(InferTensor, Option<Bytes>)>, TaskError> {
    let mut shared = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let bytes = match tensor.parameters.binary_data_size {
            None => None,
            Some(size) => {
                let left = behind.len();
                let size = usize::try_from(size).ok().filter(|size| *size <= left);
                let size = size.ok_or_else(|| tensor.wrong(&format!("{left} bytes are left for it")))?;
                Some(behind.split_to(size))
            }
        };
        shared.push((tensor, bytes));
    }
    match behind.len() {
        0 => Ok(shared),
        more => Err(TaskError::invalid(format!("{more} bytes follow the last tensor")).with_field("inputs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tensor(size: Option<u64>) -> InferTensor {
        let parameters = json!({ "binary_data_size": size });
        let whole = json!({ "name": "x", "shape": [1], "datatype": "FP32", "parameters": parameters });
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_body_is_parted_where_its_header_says() {
        let behind = vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")];
        let body = WireBody::of(b"{}".to_vec(), behind);
        assert_eq!(body.header_length, Some(2));
        let (json, behind) = part(body.bytes, Some("2")).unwrap();
        assert_eq!((&json[..], &behind[..]), (&b"{}"[..], &b"abc"[..]));
        let tensors = vec![tensor(Some(2)), tensor(None), tensor(Some(1))];
        let shared = shared_out(tensors, behind).unwrap();
        let bytes: Vec<Option<&[u8]>> = shared.iter().map(|(_, bytes)| bytes.as_deref()).collect();
        assert_eq!(bytes, [Some(&b"ab"[..]), None, Some(&b"c"[..])]);

        let plain = WireBody::of(b"{}".to_vec(), Vec::new());
        assert_eq!(
            (plain.header_length, plain.content_type),
            (None, "application/json")
        );
    }

    #[test]
    fn lengths_that_do_not_fit_are_named() {
        for length in ["-1", "9", "x", "99999999999999999999"] {
            let error = part(Bytes::from_static(b"12345678"), Some(length)).unwrap_err();
            assert_eq!(error.field.as_deref(), Some(HEADER_LENGTH), "{length}");
        }
        for (size, behind, says) in [
            (Some(8), 4, "4 bytes are left"),
            (Some(u64::MAX), 0, "0 bytes are left"),
            (Some(4), 9, "5 bytes follow"),
            (None, 1, "1 bytes follow"),
        ] {
            let error = shared_out(vec![tensor(size)], vec![0; behind].into()).unwrap_err();
            assert!(error.message.contains(says), "{error}");
        }
    }
}
