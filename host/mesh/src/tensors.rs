//! Tensors as the body of a call: a small CBOR header, then every tensor's elements as they are, little-endian.
//!
//! The elements are copied twice on their way: into the buffer that is sent, and from the buffer that came into aligned memory.

use crate::wire::{Frame, WireError};
use bytes::Bytes;
use karman_tensor::{ElementType, Shape, Tensor};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest header in bytes: names, shapes, and what the caller adds.
const HEADER: u32 = 256 << 10;
const PACK: Frame = Frame::new("tensors", HEADER);
/// The most tensors of one body.
const MOST_TENSORS: usize = 1024;

#[derive(Serialize)]
struct Out<'a, H> {
    head: &'a H,
    tensors: Vec<TensorHead>,
}

#[derive(Deserialize)]
struct In<H> {
    head: H,
    tensors: Vec<TensorHead>,
}

#[derive(Deserialize, Serialize)]
struct TensorHead {
    name: String,
    element: ElementType,
    dims: Vec<u32>,
}

/// Writes a header and named tensors as one body.
///
/// # Errors
/// [`WireError::TooLong`] when the header passes 256 KiB.
pub fn pack_tensors<H: Serialize>(head: &H, tensors: &[(String, Tensor)]) -> Result<Bytes, WireError> {
    let heads = tensors.iter().map(|(name, tensor)| TensorHead {
        name: name.clone(),
        element: tensor.element(),
        dims: tensor.shape().dims().to_vec(),
    });
    let mut body = PACK.encode(&Out {
        head,
        tensors: heads.collect(),
    })?;
    body.reserve_exact(tensors.iter().map(|(_, tensor)| tensor.bytes().len()).sum());
    for (_, tensor) in tensors {
        body.extend_from_slice(tensor.bytes());
    }
    Ok(body.into())
}

/// Reads a header and named tensors from a body that may come from anyone.
///
/// # Errors
/// [`WireError::TooLong`] and [`WireError::Malformed`], which names the tensor that does not fit.
pub fn unpack_tensors<H: DeserializeOwned>(body: &[u8]) -> Result<(H, Vec<(String, Tensor)>), WireError> {
    let (header, mut rest) = PACK.split(body)?;
    let In { head, tensors } = PACK.decode::<In<H>>(header)?;
    if tensors.len() > MOST_TENSORS {
        return Err(malformed(format!(
            "{} tensors; at most {MOST_TENSORS} are taken",
            tensors.len()
        )));
    }
    let mut read = Vec::with_capacity(tensors.len());
    for TensorHead { name, element, dims } in tensors {
        let wrong = |why: String| malformed(format!("`{}`: {why}", name.escape_debug()));
        let shape = Shape::new(&dims).map_err(|error| wrong(error.to_string()))?;
        let length = Tensor::bytes_of(element, shape).map_err(|error| wrong(error.to_string()))?;
        let (bytes, more) = rest.split_at_checked(length).ok_or_else(|| {
            wrong(format!(
                "{length} bytes are announced and {} are there",
                rest.len()
            ))
        })?;
        let tensor = Tensor::new(element, shape, bytes).map_err(|error| wrong(error.to_string()))?;
        read.push((name, tensor));
        rest = more;
    }
    match rest.len() {
        0 => Ok((head, read)),
        more => Err(malformed(format!("{more} bytes follow the last tensor"))),
    }
}

fn malformed(problem: String) -> WireError {
    WireError::Malformed {
        frame: PACK.name,
        problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_packed_comes_back() {
        let tensors = vec![
            (
                "image".to_owned(),
                Tensor::from_slice([1, 2, 2], &[1f32, -2.0, f32::NAN, 4.0]).unwrap(),
            ),
            ("ids".to_owned(), Tensor::from_slice([3], &[1i64, 2, 3]).unwrap()),
            ("none".to_owned(), Tensor::from_slice([0, 4], &[0u8; 0]).unwrap()),
        ];
        let body = pack_tensors(&7u32, &tensors).unwrap();
        assert_eq!(unpack_tensors::<u32>(&body).unwrap(), (7, tensors));
    }

    #[test]
    fn a_body_that_ends_early_or_late_is_refused_by_name() {
        let tensors = [("image".to_owned(), Tensor::from_slice([2], &[1f32, 2.0]).unwrap())];
        let body = pack_tensors(&(), &tensors).unwrap();
        let short = unpack_tensors::<()>(&body[..body.len() - 1])
            .unwrap_err()
            .to_string();
        assert!(
            short.contains("`image`: 8 bytes are announced and 7 are there"),
            "{short}"
        );
        let long = unpack_tensors::<()>(&[&body[..], b"x"].concat())
            .unwrap_err()
            .to_string();
        assert!(long.contains("1 bytes follow"), "{long}");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = unpack_tensors::<Vec<String>>(&bytes);
        }

        #[test]
        fn no_change_of_a_byte_panics(at in 0usize..80, to in any::<u8>()) {
            let tensors = [("image".to_owned(), Tensor::from_slice([4], &[1f32; 4]).unwrap())];
            let mut body = pack_tensors(&"head", &tensors).unwrap().to_vec();
            let at = at % body.len();
            body[at] = to;
            let _ = unpack_tensors::<String>(&body);
        }
    }
}
