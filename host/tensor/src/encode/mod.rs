//! Arrays of `f32` on their way through a link: without their zeros, by a palette, in half precision, in eight bits with a scale per channel, or the
//! few largest numbers only; each with a bound on its error, each optionally packed by zstd.
//!
//! [`Encoded`] is one array as it travels; it reads bytes from anyone. [`Feedback`] keeps what an encoding lost and adds it to the
//! next array, so that sums over time are right. [`choose()`] finds the encoding that is through first.

mod body;
mod choose;
mod feedback;
mod non_zero;
mod palette;

pub use choose::{Choice, ChooseError, Link, Measured, choose};
pub use feedback::Feedback;

use crate::{Shape, Tensor};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// The encoding of an array in transit.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    /// As they are: 4 bytes each, no error.
    #[default]
    F32,
    /// Half precision: 2 bytes each, relative error at most 2⁻¹¹. Numbers beyond 65,504 are refused.
    F16,
    /// One byte each, and one scale of 4 bytes per channel: a channel is a row of the outermost dimension, the whole array where
    /// there is one dimension or none. The error is at most half a scale, which is the channel's largest magnitude over 127.
    Int8,
    /// Only the numbers of largest magnitude, this many of each 1,000 (at least one): about 5 bytes each. The error is at most
    /// the least magnitude that is kept. Meant for updates, with [`Feedback`].
    TopK(u16),
    /// Those that are not zero: a bit for each number, and 4 bytes for each that is left, no error. Activations behind a ReLU have many
    /// zeros; and packed, other numbers take fewer bytes so than as [`Encoding::F32`], too, unless they are a few that come again and again,
    /// as those of a picture are. Nodes choose it; it has no name in files and messages, but in frames.
    #[serde(skip)]
    NonZero,
    /// A byte each and a table of the numbers that there are, or one for each channel; no error. Arrays with more than 256 different
    /// numbers in a channel are refused. Pictures of 8 bits have no more. It has no name, either.
    #[serde(skip)]
    Palette,
}

/// An encoded array.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Encoded {
    encoding: Encoding,
    shape: Shape,
    packed: bool,
    body: Bytes,
}

/// An array that cannot travel so, or bytes that are no array.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A number that is none, or infinite.
    #[error("number {index} of the array is {value}: only finite numbers are encoded")]
    NotFinite {
        /// Its position, row-major.
        index: usize,
        /// As given.
        value: f32,
    },
    /// A number that half precision cannot hold.
    #[error("number {index} of the array is {value}, but f16 ends at 65504: choose another encoding")]
    TooLarge {
        /// Its position, row-major.
        index: usize,
        /// As given.
        value: f32,
    },
    /// A channel with more different numbers than a palette has.
    #[error("a channel has more than 256 different numbers: choose another encoding")]
    TooManyDifferent,
    /// The numbers are not as many as the shape asks for.
    #[error("an array {shape} has another number of elements than the {given} that were given")]
    Length {
        /// The shape.
        shape: Shape,
        /// Numbers given.
        given: usize,
    },
    /// A share that keeps nothing, or more than there is.
    #[error("top-k keeps {0} of each 1,000 numbers: it must be between 1 and 1,000")]
    Share(u16),
    /// More elements than an array in transit may have.
    #[error("an array {shape} has more than {} elements: split it", Encoded::MAX_ELEMENTS)]
    TooMany {
        /// The shape.
        shape: Shape,
    },
    /// Bytes that are no encoded array.
    #[error("not an encoded array: {0}")]
    Malformed(&'static str),
}

impl Encoding {
    /// The low bits of the first byte of a frame.
    fn tag(self) -> u8 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Int8 => 2,
            Self::TopK(_) => 3,
            Self::NonZero => 4,
            Self::Palette => 5,
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 => f.write_str("f32"),
            Self::F16 => f.write_str("f16"),
            Self::Int8 => f.write_str("int8"),
            Self::TopK(share) => write!(f, "top-k {} %", f32::from(*share) / 10.0),
            Self::NonZero => f.write_str("non-zero"),
            Self::Palette => f.write_str("palette"),
        }
    }
}

/// Set in the first byte of a frame whose body zstd has packed.
const PACKED: u8 = 0x80;

impl Encoded {
    /// The most elements of an array in transit: 2²⁸, which is 1 GiB of `f32`.
    pub const MAX_ELEMENTS: u64 = Tensor::MAX_BYTES as u64 / 4;

    /// Encodes an array, row-major.
    ///
    /// # Errors
    /// When a number is not finite, too large for f16, or there are not as many as the shape asks for.
    pub fn encode(shape: Shape, values: &[f32], encoding: Encoding) -> Result<Self, EncodeError> {
        if elements(shape)? != values.len() {
            let given = values.len();
            return Err(EncodeError::Length { shape, given });
        }
        if let Some((index, value)) = values.iter().enumerate().find(|(_, value)| !value.is_finite()) {
            return Err(EncodeError::NotFinite { index, value: *value });
        }
        let body = body::write(shape, values, encoding)?;
        Ok(Self {
            encoding,
            shape,
            packed: false,
            body: body.into(),
        })
    }

    /// The same array with its bytes packed by zstd at level 1, where that makes it smaller.
    #[must_use]
    pub fn pack(self) -> Self {
        match self.packed_body() {
            Some(packed) if packed.len() < self.body.len() => Self {
                packed: true,
                body: packed.into(),
                ..self
            },
            _ => self,
        }
    }

    /// Nothing where there is nothing to pack.
    fn packed_body(&self) -> Option<Vec<u8>> {
        let count = elements(self.shape).ok()?;
        let body = match self.encoding {
            _ if self.packed => return None,
            Encoding::NonZero => non_zero::by_places(count, &self.body)?.into(),
            Encoding::Palette => palette::as_steps(count, &self.body)?.into(),
            _ => Cow::from(&self.body[..]),
        };
        zstd::bulk::compress(&body, 1).ok()
    }

    /// The numbers, row-major. The memory it takes is that of the shape, which a few bytes can make large: check
    /// [`Encoded::shape`] first when they come from outside.
    ///
    /// # Errors
    /// [`EncodeError::Malformed`] when the bytes are not an array of this shape, or hold a number that is not finite.
    pub fn decode(&self) -> Result<Vec<f32>, EncodeError> {
        let count = elements(self.shape)?;
        let unpacked;
        let body = if self.packed {
            let most = body::most_bytes(self.shape, count, self.encoding);
            let text = "zstd does not unpack it to an array of this shape";
            let bytes = zstd::bulk::decompress(&self.body, most).ok();
            let bytes = bytes.and_then(|bytes| match self.encoding {
                Encoding::NonZero => non_zero::in_order(count, &bytes),
                Encoding::Palette => palette::as_places(count, bytes),
                _ => Some(bytes),
            });
            unpacked = bytes.ok_or(EncodeError::Malformed(text))?;
            &unpacked[..]
        } else {
            &self.body[..]
        };
        body::read(self.shape, count, body, self.encoding)
    }

    /// No number that went in lies further from the decoded one than this.
    ///
    /// # Errors
    /// Those of [`Encoded::decode`].
    pub fn error_bound(&self) -> Result<f32, EncodeError> {
        Ok(body::error_bound(self.shape, &self.decode()?, self.encoding))
    }

    /// How the numbers travel.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Whether the numbers travel as they are: then decoding takes no more memory than the frame does.
    pub fn is_plain(&self) -> bool {
        self.encoding == Encoding::F32 && !self.packed
    }

    /// The shape of the array.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Bytes of the frame: what goes through the link.
    pub fn wire_bytes(&self) -> usize {
        2 + 2 + 4 * self.shape.rank() + self.body.len()
    }

    /// The frame: encoding, rank, share of top-k, dimensions, body; little-endian.
    pub fn to_bytes(&self) -> Bytes {
        let mut frame = Vec::with_capacity(self.wire_bytes());
        frame.push(self.encoding.tag() | if self.packed { PACKED } else { 0 });
        frame.push(self.shape.rank() as u8);
        let share = match self.encoding {
            Encoding::TopK(share) => share,
            _ => 0,
        };
        frame.extend_from_slice(&share.to_le_bytes());
        for dim in self.shape.dims() {
            frame.extend_from_slice(&dim.to_le_bytes());
        }
        frame.extend_from_slice(&self.body);
        frame.into()
    }

    /// Reads a frame that may come from anyone. Only its head is checked here; [`Encoded::decode`] checks the rest.
    ///
    /// # Errors
    /// [`EncodeError::Malformed`], or a shape that no array in transit has.
    pub fn from_bytes(frame: &Bytes) -> Result<Self, EncodeError> {
        let short = EncodeError::Malformed("it ends within its head");
        let [tag, rank, low, high] = *frame.first_chunk::<4>().ok_or_else(|| short.clone())?;
        let rank = usize::from(rank);
        if rank > Shape::MAX_RANK {
            return Err(EncodeError::Malformed("it has more than 8 dimensions"));
        }
        let dims = frame.get(4..4 + 4 * rank).ok_or(short)?;
        let (dims, _) = dims.as_chunks::<4>();
        let dims: Vec<u32> = dims.iter().map(|dim| u32::from_le_bytes(*dim)).collect();
        let share = u16::from_le_bytes([low, high]);
        let encoding = match (tag & !PACKED, share) {
            (0, 0) => Encoding::F32,
            (1, 0) => Encoding::F16,
            (2, 0) => Encoding::Int8,
            (3, share) => Encoding::TopK(share),
            (4, 0) => Encoding::NonZero,
            (5, 0) => Encoding::Palette,
            _ => return Err(EncodeError::Malformed("its encoding is not known")),
        };
        let shape = Shape::new(&dims).map_err(|_| EncodeError::Malformed("it has more than 8 dimensions"))?;
        elements(shape)?;
        Ok(Self {
            encoding,
            shape,
            packed: tag & PACKED != 0,
            body: frame.slice(4 + 4 * rank..),
        })
    }
}

/// The elements of a shape that may travel.
fn elements(shape: Shape) -> Result<usize, EncodeError> {
    match shape.elements() {
        Some(count) if count <= Encoded::MAX_ELEMENTS => Ok(count as usize),
        _ => Err(EncodeError::TooMany { shape }),
    }
}

#[cfg(test)]
mod tests;
