//! One operator at a time: what it computes and moves, how long each runner would take, which one should have it.
//!
//! The time of an operator on a [`Runner`] is that of a measured [`Roofline`]: the longer of what its arithmetic takes and of what
//! its bytes take. Both ceilings are [`Ladder`]s of times that were measured on this machine, not single peaks, because no runner
//! reaches its peak on small work and every call costs something before it begins. [`MachineProfile::choose`] takes the least.
//! Nothing here measures or reads a clock: who can run operators times [`Operator::probes`] and makes the profile of the times.
//!
//! ```
//! use karman_infer::operator::{MachineProfile, Operator, Runner};
//!
//! // Two runners: one starts at once but computes slowly, the other the other way round.
//! let seconds = |start: f64, rate: f64| move |probe: &Operator| start + (probe.flops() + probe.bytes()) / rate;
//! let profile = MachineProfile::new(
//!     "an example",
//!     [(Runner::Tract, seconds(1e-6, 1e9)), (Runner::OnnxRuntime, seconds(1e-5, 1e11))]
//!         .into_iter()
//!         .flat_map(|(runner, seconds)| {
//!             Operator::probes().into_iter().map(move |probe| (runner, probe, seconds(&probe)))
//!         }),
//! );
//! let both = [Runner::OnnxRuntime, Runner::Tract];
//! let chosen = |operator, runners: &[Runner]| profile.choose(&operator, runners).map(|choice| choice.runner);
//! assert_eq!(chosen(Operator::Relu { elements: 500 }, &both), Some(Runner::Tract));
//! let large = Operator::MatMul { rows: 100, inner: 300, columns: 300 };
//! assert_eq!(chosen(large, &both), Some(Runner::OnnxRuntime));
//! assert_eq!(chosen(large, &[Runner::Tract]), Some(Runner::Tract));
//! assert_eq!(chosen(large, &[Runner::WasmSimd]), None);
//! ```

mod ladder;
mod onnx;
mod probes;
mod roofline;

pub use ladder::Ladder;
pub use roofline::{Choice, MachineProfile, Roofline};

use serde::{Deserialize, Serialize};
use std::fmt;

/// What can run one operator.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runner {
    /// ONNX Runtime, a model of one node.
    OnnxRuntime,
    /// tract, a model of one node.
    Tract,
    /// A plugin that computes with the SIMD of Wasm.
    WasmSimd,
}

impl Runner {
    /// Every runner.
    pub const ALL: [Self; 3] = [Self::OnnxRuntime, Self::Tract, Self::WasmSimd];

    /// Its name in rows and reports: `wasm-simd`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OnnxRuntime => "onnxruntime",
            Self::Tract => "tract",
            Self::WasmSimd => "wasm-simd",
        }
    }
}

impl fmt::Display for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A convolution of one item of square maps, with half a kernel of zeros around it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Convolution {
    /// Maps that it takes.
    pub channels_in: u32,
    /// Maps that it gives.
    pub channels_out: u32,
    /// Rows and columns of a map that it takes, at least 1.
    pub side: u32,
    /// Rows and columns of the kernel, at least 1.
    pub kernel: u32,
    /// Pixels from one window to the next, at least 1.
    pub stride: u32,
    /// Groups of channels that are convolved for themselves, at least 1; both numbers of channels are multiples of it.
    pub groups: u32,
}

impl Convolution {
    /// Rows and columns of a map that it gives.
    pub const fn out_side(&self) -> u32 {
        (self.side + 2 * (self.kernel / 2) - self.kernel) / self.stride + 1
    }
}

/// An operator on 32-bit floats, with its sizes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operator {
    /// Rows times constant weights.
    MatMul {
        /// Rows that come in.
        rows: u32,
        /// Numbers of each.
        inner: u32,
        /// Numbers of each row that goes out.
        columns: u32,
    },
    /// A convolution with constant weights.
    Convolution(Convolution),
    /// The larger of each number and zero.
    Relu {
        /// How many numbers.
        elements: u32,
    },
    /// The sums of two lists of numbers.
    Add {
        /// How many sums.
        elements: u32,
    },
}

/// Operators whose times go along one ladder.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One row times a matrix: bound by reading the matrix.
    Vector,
    /// A few rows, at most [`Kind::FEW`], times a matrix: kernels made for many rows are partly idle.
    FewRows,
    /// Many rows times a matrix.
    Matrix,
    /// Convolutions of single pixels.
    Pointwise,
    /// Convolutions of windows over all channels of a group.
    Spatial,
    /// Convolutions of each channel for itself.
    Depthwise,
    /// One list of numbers in, one out.
    Unary,
    /// Two lists of numbers in, one out.
    Binary,
}

impl Kind {
    /// The most rows that are few.
    pub const FEW: u32 = 8;

    /// Whether its ladder goes by bytes, because next to nothing is computed with each; by arithmetic otherwise.
    const fn goes_by_bytes(self) -> bool {
        matches!(self, Self::Vector | Self::Unary | Self::Binary)
    }
}

impl Operator {
    /// A convolution: channels in and out, rows of a map, kernel and stride, and its groups.
    pub const fn convolution(sizes: [u32; 5], groups: u32) -> Self {
        let [channels_in, channels_out, side, kernel, stride] = sizes;
        Self::Convolution(Convolution {
            channels_in,
            channels_out,
            side,
            kernel,
            stride,
            groups,
        })
    }

    /// Which ladder its time goes along.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::MatMul { rows: 0 | 1, .. } => Kind::Vector,
            Self::MatMul {
                rows: 2..=Kind::FEW, ..
            } => Kind::FewRows,
            Self::MatMul { .. } => Kind::Matrix,
            Self::Convolution(shape) if shape.groups > 1 && shape.groups == shape.channels_in => {
                Kind::Depthwise
            }
            Self::Convolution(shape) if shape.kernel == 1 => Kind::Pointwise,
            Self::Convolution(_) => Kind::Spatial,
            Self::Relu { .. } => Kind::Unary,
            Self::Add { .. } => Kind::Binary,
        }
    }

    /// Additions and multiplications; comparisons count as such.
    pub fn flops(&self) -> f64 {
        match self {
            Self::MatMul { inner, .. } => 2.0 * f64::from(*inner) * product(&self.output()),
            Self::Convolution(shape) => {
                let window = [shape.channels_in / shape.groups, shape.kernel, shape.kernel];
                2.0 * product(&window) * product(&self.output())
            }
            Self::Relu { elements } | Self::Add { elements } => f64::from(*elements),
        }
    }

    /// Bytes that it has to read and write: what goes in, its weights, what comes out, each once.
    pub fn bytes(&self) -> f64 {
        let inputs: f64 = self.inputs().iter().map(|dims| product(dims)).sum();
        4.0 * (inputs + product(&self.output()) + self.weights().map_or(0.0, |dims| product(&dims)))
    }

    /// The dimensions of each input.
    pub fn inputs(&self) -> Vec<Vec<u32>> {
        match *self {
            Self::MatMul { rows, inner, .. } => vec![vec![rows, inner]],
            Self::Convolution(Convolution {
                channels_in, side, ..
            }) => vec![vec![1, channels_in, side, side]],
            Self::Relu { elements } => vec![vec![elements]],
            Self::Add { elements } => vec![vec![elements]; 2],
        }
    }

    /// The dimensions of its constant weights, in the order of ONNX; `None` where it has none.
    pub fn weights(&self) -> Option<Vec<u32>> {
        match *self {
            Self::MatMul { inner, columns, .. } => Some(vec![inner, columns]),
            Self::Convolution(shape) => {
                let per_group = shape.channels_in / shape.groups;
                Some(vec![shape.channels_out, per_group, shape.kernel, shape.kernel])
            }
            Self::Relu { .. } | Self::Add { .. } => None,
        }
    }

    /// The dimensions of what comes out.
    pub fn output(&self) -> Vec<u32> {
        match *self {
            Self::MatMul { rows, columns, .. } => vec![rows, columns],
            Self::Convolution(shape) => vec![1, shape.channels_out, shape.out_side(), shape.out_side()],
            Self::Relu { elements } | Self::Add { elements } => vec![elements],
        }
    }
}

/// `matmul.4x256x128`, `conv.16-32.14.k3.s1.g1`, `relu.500`.
impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MatMul { rows, inner, columns } => write!(f, "matmul.{rows}x{inner}x{columns}"),
            Self::Convolution(shape) => write!(
                f,
                "conv.{}-{}.{}.k{}.s{}.g{}",
                shape.channels_in, shape.channels_out, shape.side, shape.kernel, shape.stride, shape.groups
            ),
            Self::Relu { elements } => write!(f, "relu.{elements}"),
            Self::Add { elements } => write!(f, "add.{elements}"),
        }
    }
}

fn product(dims: &[u32]) -> f64 {
    dims.iter().map(|dim| f64::from(*dim)).product()
}
