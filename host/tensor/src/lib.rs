//! Element types, shapes and aligned views of tensors.
//!
//! A [`Tensor`] is what goes into a model and comes out of it: an [`ElementType`], a [`Shape`] of at most 8 dimensions, and
//! the elements themselves, row-major and little-endian. Bytes from outside enter through [`Tensor::new`], which checks that
//! their number is exactly that of the shape; after that a tensor is always well formed. Its storage is aligned to 64 bytes,
//! so that a typed view costs nothing, and shared, so that a clone costs nothing either.
//!
//! [`quantised`] computes networks of 8-bit integers row by row; [`split`] is one board's share of such a network.
//! [`encode`] holds the encodings in which arrays of `f32` travel, with the bounds on their errors, and [`arithmetic`] the reference
//! arithmetic of the processor: exact sums in fixed point, trimmed means, distances.
//!
//! ```
//! use karman_tensor::{ElementType, Shape, Tensor};
//!
//! let image = Tensor::from_slice([1, 1, 2, 2], &[0.0f32, 0.25, 0.5, 1.0])?;
//! let sent: &[u8] = image.bytes();
//!
//! let received = Tensor::new(ElementType::F32, Shape::new(&[1, 1, 2, 2])?, sent)?;
//! assert_eq!(received.view::<f32>()?, [0.0, 0.25, 0.5, 1.0]);
//!
//! let error = Tensor::new(ElementType::F32, Shape::new(&[3])?, &sent[..8]).unwrap_err();
//! assert_eq!(error.to_string(), "a tensor f32 [3] has 12 bytes, but 8 were given: check its type and shape");
//! # Ok::<(), karman_tensor::TensorError>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("tensors are little-endian in memory and on the wire: this machine is not");

pub mod arithmetic;
mod convert;
mod element;
#[cfg(feature = "encode")]
pub mod encode;
mod error;
pub mod quantised;
mod shape;
pub mod split;
mod storage;
mod tensor;

pub use element::{Element, ElementType};
pub use error::TensorError;
pub use half::{bf16, f16};
pub use shape::Shape;
pub use tensor::Tensor;
