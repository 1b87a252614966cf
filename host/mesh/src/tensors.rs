//! Tensors as the body of a call: a small CBOR header, then every tensor's elements, little-endian as they are, or encoded where the
//! sender finds that they are there sooner.
//!
//! Every tensor begins at a multiple of 64 bytes, as it does in memory: elements that go as they are, are not copied to be asked with,
//! nor from the buffer that came. Answers are one piece, into which they are copied once.

use crate::body::Body;
use crate::wire::{ALIGNMENT, Frame, WireError};
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
/// The most bytes that all encoded tensors of one body may have once they are decoded: as many as a body may have whose tensors go as
/// they are. A few bytes of packed zeros stand for gigabytes.
const MOST_DECODED: usize = 256 << 20;

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

/// What a header says of the tensors, whatever else it has.
#[derive(Deserialize)]
struct Heads {
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
pub fn pack_tensors<H: Serialize>(head: &H, tensors: &[(String, Tensor)]) -> Result<Body, WireError> {
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
) -> Result<Body, WireError> {
    let elements = |(_, tensor): &(String, Tensor)| match encode(tensor) {
        Some(encoded) => (encoded.to_bytes(), true),
        None => (tensor.to_bytes(), false),
    };
    let elements: Vec<(Bytes, bool)> = tensors.iter().map(elements).collect();
    let heads = tensors.iter().zip(&elements);
    let heads = heads.map(|((name, tensor), (bytes, encoded))| TensorHead {
        name: name.clone(),
        element: tensor.element(),
        dims: tensor.shape().dims().to_vec(),
        encoded: encoded.then_some(bytes.len() as u64),
    });
    let header = PACK.encode(&Out {
        head,
        tensors: heads.collect(),
    })?;
    let mut at = header.len();
    let mut pieces = vec![Bytes::from(header)];
    for (bytes, _) in elements {
        pieces.push(Bytes::from_static(&[0; ALIGNMENT]).slice(..gap(at)));
        // Before each tensor all that was written fills whole units.
        at = bytes.len();
        pieces.push(bytes);
    }
    Ok(pieces.into_iter().collect())
}

/// Bytes from here to where the next tensor begins.
const fn gap(at: usize) -> usize {
    at.next_multiple_of(ALIGNMENT) - at
}

/// Reads a header and named tensors from a body that may come from anyone.
///
/// # Errors
/// [`WireError::TooLong`] and [`WireError::Malformed`], which names the tensor that does not fit.
pub fn unpack_tensors<H: DeserializeOwned>(body: &Bytes) -> Result<(H, Vec<(String, Tensor)>), WireError> {
    unpack_within(body, MOST_DECODED)
}

/// The same, where all that is encoded may have `room` bytes once it is decoded.
fn unpack_within<H: DeserializeOwned>(
    body: &Bytes,
    mut room: usize,
) -> Result<(H, Vec<(String, Tensor)>), WireError> {
    let (header, elements) = PACK.split(body)?;
    let mut at = body.len() - elements.len();
    let In { head, tensors } = PACK.decode::<In<H>>(header)?;
    if tensors.len() > MOST_TENSORS {
        return Err(malformed(format!(
            "{} tensors; at most {MOST_TENSORS} are taken",
            tensors.len()
        )));
    }
    let mut read = Vec::with_capacity(tensors.len());
    for head in tensors {
        let tensor = head.read(body, &mut at, &mut room);
        let tensor = tensor.map_err(|why| malformed(format!("`{}`: {why}", head.name.escape_debug())))?;
        read.push((head.name, tensor));
    }
    match body.len() - at {
        0 => Ok((head, read)),
        more => Err(malformed(format!("{more} bytes follow the last tensor"))),
    }
}

/// Bytes that the encoded tensors of a body say to have once they are decoded; 0 where none is encoded, or the body cannot be read.
pub fn decoded_bytes(body: &Bytes) -> u64 {
    let header = PACK
        .split(body)
        .and_then(|(header, _)| PACK.decode::<Heads>(header));
    let encoded = |head: &&TensorHead| head.encoded.is_some();
    let bytes = |head: &TensorHead| {
        let shape = Shape::new(&head.dims).ok()?;
        Tensor::bytes_of(head.element, shape).ok()
    };
    let heads = header.map(|header| header.tensors).unwrap_or_default();
    let bytes = heads.iter().filter(encoded).filter_map(bytes);
    bytes.fold(0, |sum, bytes| u64::saturating_add(sum, bytes as u64))
}

impl TensorHead {
    /// This tensor, which is the next one in the body, and where it ends. What is decoded is taken from the room.
    fn read(&self, body: &Bytes, at: &mut usize, room: &mut usize) -> Result<Tensor, String> {
        let shape = Shape::new(&self.dims).map_err(|error| error.to_string())?;
        let whole = Tensor::bytes_of(self.element, shape).map_err(|error| error.to_string())?;
        let length = match self.encoded {
            // A frame is read only when it is there whole, so one that announces more than memory holds is one that ends early.
            Some(length) => usize::try_from(length).unwrap_or(usize::MAX),
            None => whole,
        };
        let start = *at + gap(*at);
        let there = body.len().saturating_sub(start);
        let end = start.checked_add(length).filter(|end| *end <= body.len());
        let end = end.ok_or_else(|| format!("{length} bytes are announced and {there} are there"))?;
        *at = end;
        let bytes = body.slice(start..end);
        if self.encoded.is_none() {
            return Tensor::from_bytes(self.element, shape, bytes).map_err(|error| error.to_string());
        }
        if self.element != ElementType::F32 {
            return Err(format!("elements of {} are not encoded", self.element));
        }
        let array = Encoded::from_bytes(&bytes).map_err(|error| error.to_string())?;
        if array.shape().elements() != shape.elements() {
            return Err(format!("{} is encoded, {shape} is announced", array.shape()));
        }
        // The memory that decoding takes is that of the shape, whatever came.
        let left = room.checked_sub(whole);
        *room = left
            .ok_or_else(|| format!("decoded it has {whole} bytes, for which {room} are left in this body"))?;
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
        let body = pack_tensors(&7u32, &tensors).unwrap().into_bytes();
        assert_eq!(unpack_tensors::<u32>(&body).unwrap(), (7, tensors));
    }

    #[test]
    fn elements_are_shared_on_their_way() {
        let numbers: Vec<f32> = (0..1000u16).map(f32::from).collect();
        let tensors = vec![
            ("odd".to_owned(), Tensor::from_slice([3], &[1u8, 2, 3]).unwrap()),
            ("map".to_owned(), Tensor::from_slice([1000], &numbers).unwrap()),
        ];
        let body = pack_tensors(&(), &tensors).unwrap();
        let sent = body.pieces().last().unwrap().as_ptr();
        assert_eq!(sent, tensors[1].1.bytes().as_ptr());
        // A body that came is aligned.
        let came = Tensor::from_slice([body.len() as u32], &body.into_bytes())
            .unwrap()
            .to_bytes();
        let ((), read) = unpack_tensors(&came).unwrap();
        assert_eq!(read, tensors);
        assert!(came.as_ptr_range().contains(&read[1].1.bytes().as_ptr()));
    }

    #[test]
    fn a_body_that_ends_early_or_late_is_refused_by_name() {
        let tensors = [("image".to_owned(), Tensor::from_slice([2], &[1f32, 2.0]).unwrap())];
        let body = pack_tensors(&(), &tensors).unwrap().into_bytes();
        let short = unpack_tensors::<()>(&body.slice(..body.len() - 1))
            .unwrap_err()
            .to_string();
        assert!(
            short.contains("`image`: 8 bytes are announced and 7 are there"),
            "{short}"
        );
        let long = unpack_tensors::<()>(&[&body[..], b"x"].concat().into())
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
            pack_tensors(&(), &tensors).unwrap().into_bytes(),
            pack_encoded_tensors(&(), &tensors, int8).unwrap().into_bytes(),
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
        let body = pack_encoded_tensors(&(), &tensors, other).unwrap().into_bytes();
        let refused = unpack_tensors::<()>(&body).unwrap_err().to_string();
        assert!(
            refused.contains("`map`") && refused.contains("is announced"),
            "{refused}"
        );
        let tensors = [("map".to_owned(), Tensor::from_slice([2], &[1i32, 2]).unwrap())];
        let body = pack_encoded_tensors(&(), &tensors, other).unwrap().into_bytes();
        let refused = unpack_tensors::<()>(&body).unwrap_err().to_string();
        assert!(refused.contains("are not encoded"), "{refused}");
    }

    #[test]
    fn all_that_is_encoded_in_a_body_has_so_many_bytes_decoded_and_no_more() {
        let tensor = Tensor::from_slice([4096], &[0f32; 4096]).unwrap();
        let tensors = ["a", "b", "c"].map(|name| (name.to_owned(), tensor.clone()));
        let packed = |tensor: &Tensor| int8(tensor).map(Encoded::pack);
        let body = pack_encoded_tensors(&(), &tensors, packed).unwrap().into_bytes();
        assert!(body.len() < 1024);
        let all = 3 * 4 * 4096;
        assert_eq!(unpack_within::<()>(&body, all).unwrap().1, tensors);
        let refused = unpack_within::<()>(&body, all - 1).unwrap_err().to_string();
        assert!(refused.contains("`c`: decoded it has 16384 bytes"), "{refused}");
    }

    #[test]
    fn a_few_bytes_that_stand_for_more_than_a_body_may_have_are_not_decoded() {
        let elements = (MOST_DECODED / 4 + 1) as u32;
        // Whole, rank 1, no share; the dimension; no elements at all.
        let frame = [&[0, 1, 0, 0][..], &elements.to_le_bytes()].concat();
        let head = TensorHead {
            name: "map".into(),
            element: ElementType::F32,
            dims: vec![elements],
            encoded: Some(frame.len() as u64),
        };
        let mut body = PACK
            .encode(&Out {
                head: &(),
                tensors: vec![head],
            })
            .unwrap();
        body.resize(body.len() + gap(body.len()), 0);
        body.extend(frame);
        let refused = unpack_tensors::<()>(&body.into()).unwrap_err().to_string();
        assert!(
            refused.contains("`map`: decoded it has 268435460 bytes"),
            "{refused}"
        );
    }

    proptest! {
        #[test]
        fn no_change_of_an_encoded_byte_panics(at in 0usize..200, to in any::<u8>()) {
            let tensors = [("image".to_owned(), Tensor::from_slice([4], &[1f32; 4]).unwrap())];
            let mut body = pack_encoded_tensors(&"head", &tensors, int8).unwrap().into_bytes().to_vec();
            let at = at % body.len();
            body[at] = to;
            let _ = unpack_tensors::<String>(&body.into());
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = unpack_tensors::<Vec<String>>(&bytes.into());
        }

        #[test]
        fn no_change_of_a_byte_panics(at in 0usize..80, to in any::<u8>()) {
            let tensors = [("image".to_owned(), Tensor::from_slice([4], &[1f32; 4]).unwrap())];
            let mut body = pack_tensors(&"head", &tensors).unwrap().into_bytes().to_vec();
            let at = at % body.len();
            body[at] = to;
            let _ = unpack_tensors::<String>(&body.into());
        }
    }
}
