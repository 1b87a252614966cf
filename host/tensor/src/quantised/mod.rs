//! Networks of 8-bit integers, computed row by row: the reference arithmetic of boards too small for a whole layer.
//!
//! A [`Layer`] is a shape: what goes in, what comes out, and which part of the input ([`Layer::needs`]) a [`Part`] of the output
//! touches. [`Parameters`] are what it was trained to: weights, biases and the integer factors of requantisation. A [`Network`] is
//! a chain of both, in which an addition may reach back, or layers lie side by side. [`Network::run`] computes it whole, layer after layer; every other way to
//! compute it (`split`) calls the same functions on single rows and some of the channels, and so gives the same bits.
//!
//! Real numbers are `scale * (q - zero)`. A sum of products is exact in 32 bits, and one integer factor per output channel
//! ([`Rescale`]) brings it to the scale of the output; no float takes part after the factors are made, so that every machine,
//! interpreted ones included, gives the same answer. ReLU and ReLU6 are bounds of the output ([`Range8`]).
//!
//! A row is stored column by column, the channels of a column side by side. A row may hold some of the channels only.
//!
//! | file | what |
//! |---|---|
//! | `extent`, `layer` | shapes; which input a part of the output touches; multiplications and weights of a part |
//! | `rescale` | from sums of products to 8 bits |
//! | `convolution`, `depthwise` | sums of products of a row; fully connected layers are convolutions of one column |
//! | `pool`, `add` | means, largest values and sums of activations |
//! | `network` | the layers, computed whole |
//! | `lifetime` | for how long each activation is needed |
//! | `piece` | a part of an activation out of the whole, and back |
//! | `bytes` | values of 8 bits as they travel |
//! | `mobilenet` | MobileNetV2, the network of the literature on small boards, with generated weights |
//!
//! ```
//! use karman_tensor::quantised::{Network, mobilenet_v2};
//!
//! let layers = mobilenet_v2(32, 10)?;
//! let mut random = 1u32;
//! let network = Network::generated(layers, || { random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223); random })?;
//! let answer = network.run(&vec![3; network.input().elements()])?;
//! assert_eq!(answer.len(), 10);
//! # Ok::<(), karman_tensor::quantised::QuantisedError>(())
//! ```

mod add;
pub(crate) mod bytes;
mod convolution;
mod depthwise;
mod error;
mod extent;
mod layer;
mod lifetime;
mod mobilenet;
mod network;
mod piece;
mod pool;
mod rescale;

pub use add::Add;
pub use convolution::Convolution;
pub use error::QuantisedError;
pub use extent::{Extent, Part};
pub use layer::{Layer, Operator};
pub use mobilenet::mobilenet_v2;
pub use network::{Network, Parameters, RowView};
pub use pool::{AveragePool, MaxPool};
pub use rescale::{Range8, Rescale};

#[cfg(test)]
mod tests;
