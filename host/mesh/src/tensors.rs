//! Tensors as the body of a call: a small CBOR header, then every tensor's elements, little-endian as they are, or encoded where the
//! sender finds that they are there sooner.
//!
//! Elements that go as they are, are copied twice on their way: into the buffer that is sent, and from the buffer that came into
//! aligned memory.

use crate::wire::{Frame, WireError};
use bytes::Bytes;
use karman_tensor::encode::Encoded;
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
    /// Bytes of the encoded array that stands for the elements; nothing where they come as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoded: Option<u64>,
}

/// Writes a header and named tensors as one body.
///
/// # Errors
/// [`WireError::TooLong`] when the header passes 256 KiB.
pub fn pack_tensors<H: Serialize>(head: &H, tensors: &[(String, Tensor)]) -> Result<Bytes, WireError> {
    pack_encoded_tensors(head, tensors, |_| None)
}

/// The same, and those for which `encode` gives an array are sent as that; it must hold as many numbers as the tensor, which are `f32`.
///
/// # Errors
/// [`WireError::TooLong`] when the header passes 256 KiB.
pub fn pack_encoded_tensors<H: Serialize>(
    head: &H,
    tensors: &[(String, Tensor)],
    encode: impl Fn(&Tensor) -> Option<Encoded>,
) -> Result<Bytes, WireError> {
    let frames: Vec<Option<Bytes>> = tensors
        .iter()
        .map(|(_, tensor)| encode(tensor).map(|encoded| encoded.to_bytes()))
        .collect();
    let heads = tensors
        .iter()
        .zip(&frames)
        .map(|((name, tensor), frame)| TensorHead {
            name: name.clone(),
            element: tensor.element(),
            dims: tensor.shape().dims().to_vec(),
            encoded: frame.as_ref().map(|frame| frame.len() as u64),
        });
    let mut body = PACK.encode(&Out {
        head,
        tensors: heads.collect(),
    })?;
    let elements = || tensors.iter().zip(&frames);
    let bytes = elements().map(|((_, tensor), frame)| frame.as_deref().unwrap_or_else(|| tensor.bytes()));
    body.reserve_exact(bytes.clone().map(<[u8]>::len).sum());
    bytes.for_each(|bytes| body.extend_from_slice(bytes));
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
    for head in tensors {
        let tensor = head.read(&mut rest);
        let tensor = tensor.map_err(|why| malformed(format!("`{}`: {why}", head.name.escape_debug())))?;
        read.push((head.name, tensor));
    }
    match rest.len() {
        0 => Ok((head, read)),
        more => Err(malformed(format!("{more} bytes follow the last tensor"))),
    }
}

impl TensorHead {
    /// Takes this tensor's bytes off the rest of a body.
    fn read(&self, rest: &mut &[u8]) -> Result<Tensor, String> {
        let shape = Shape::new(&self.dims).map_err(|error| error.to_string())?;
        let whole = Tensor::bytes_of(self.element, shape).map_err(|error| error.to_string())?;
        let length = match self.encoded {
            // A frame is read only when it is there whole, so one that announces more than memory holds is one that ends early.
            Some(length) => usize::try_from(length).unwrap_or(usize::MAX),
            None => whole,
        };
        let there = rest.len();
        let (bytes, more) = rest
            .split_at_checked(length)
            .ok_or_else(|| format!("{length} bytes are announced and {there} are there"))?;
        *rest = more;
        if self.encoded.is_none() {
            return Tensor::new(self.element, shape, bytes).map_err(|error| error.to_string());
        }
        if self.element != ElementType::F32 {
            return Err(format!("elements of {} are not encoded", self.element));
        }
        let array = Encoded::from_bytes(&Bytes::copy_from_slice(bytes)).map_err(|error| error.to_string())?;
        if array.shape().elements() != shape.elements() {
            return Err(format!("{} is encoded, {shape} is announced", array.shape()));
        }
        let numbers = array.decode().map_err(|error| error.to_string())?;
        Tensor::from_slice(shape, &numbers).map_err(|error| error.to_string())
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
    use karman_tensor::encode::Encoding;
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

    fn int8(tensor: &Tensor) -> Option<Encoded> {
        let numbers = tensor.view::<f32>().ok()?;
        Encoded::encode(tensor.shape(), numbers, Encoding::Int8).ok()
    }

    #[test]
    fn what_is_encoded_comes_back_within_its_bound_and_in_fewer_bytes() {
        let numbers: Vec<f32> = (0..4096).map(|at| (at as f32 / 100.0).sin()).collect();
        let tensors = vec![
            (
                "map".to_owned(),
                Tensor::from_slice([4, 32, 32], &numbers).unwrap(),
            ),
            ("ids".to_owned(), Tensor::from_slice([2], &[1i64, 2]).unwrap()),
        ];
        let (plain, encoded) = (
            pack_tensors(&(), &tensors).unwrap(),
            pack_encoded_tensors(&(), &tensors, int8).unwrap(),
        );
        assert!(
            encoded.len() * 3 < plain.len(),
            "{} {}",
            encoded.len(),
            plain.len()
        );
        let ((), came) = unpack_tensors(&encoded).unwrap();
        assert_eq!(came[1], tensors[1]);
        assert_eq!(came[0].1.shape(), tensors[0].1.shape());
        for (came, sent) in came[0].1.view::<f32>().unwrap().iter().zip(&numbers) {
            assert!((came - sent).abs() <= 0.5 / 127.0 + 1e-6, "{came} {sent}");
        }
    }

    #[test]
    fn an_array_of_another_size_or_type_is_refused_by_name() {
        let tensors = [(
            "map".to_owned(),
            Tensor::from_slice([3], &[1f32, 2.0, 3.0]).unwrap(),
        )];
        let other = |_: &Tensor| Encoded::encode(Shape::new(&[2]).unwrap(), &[1.0, 2.0], Encoding::F16).ok();
        let body = pack_encoded_tensors(&(), &tensors, other).unwrap();
        let refused = unpack_tensors::<()>(&body).unwrap_err().to_string();
        assert!(
            refused.contains("`map`") && refused.contains("is announced"),
            "{refused}"
        );
        let tensors = [("map".to_owned(), Tensor::from_slice([2], &[1i32, 2]).unwrap())];
        let body = pack_encoded_tensors(&(), &tensors, other).unwrap();
        let refused = unpack_tensors::<()>(&body).unwrap_err().to_string();
        assert!(refused.contains("are not encoded"), "{refused}");
    }

    proptest! {
        #[test]
        fn no_change_of_an_encoded_byte_panics(at in 0usize..200, to in any::<u8>()) {
            let tensors = [("image".to_owned(), Tensor::from_slice([4], &[1f32; 4]).unwrap())];
            let mut body = pack_encoded_tensors(&"head", &tensors, int8).unwrap().to_vec();
            let at = at % body.len();
            body[at] = to;
            let _ = unpack_tensors::<String>(&body);
        }

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
