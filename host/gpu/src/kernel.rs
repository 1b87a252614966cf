//! What a device computes: one description per kernel, whatever runs it.
//!
//! A [`Kernel`] names the computation and its shape. From that follow, in one file per kernel, its [arguments](Argument), a GPU's
//! [passes](Pass) over `shaders/`, or with CUDA over the files of `kernels/` of the same names, what the processor does instead, and a
//! reference in double precision that [`check`](crate::check) holds all of them against.

/// Files of `shaders/`, one after the other. From the folder `kernel`, as paths go.
macro_rules! wgsl {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!("../../../../shaders/", $file, ".wgsl"))),+)
    };
}

/// The same of `kernels/`.
macro_rules! cuda {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!("../../../../kernels/", $file, ".cu"))),+)
    };
}

/// A [`Source`] of files that have the same names in both folders.
macro_rules! source {
    ($($file:literal),+) => {
        $crate::kernel::Source::new(wgsl!($($file),+), cuda!($($file),+))
    };
}

mod accumulate;
mod argument;
mod attention;
mod batched_gemm;
mod blas;
mod broadcast;
mod concat;
mod convolution;
mod encode;
mod expected;
mod gather;
mod gemm;
mod integer;
mod limits;
mod map;
mod mask;
mod norm;
mod panels;
mod pass;
mod pool;
mod product;
mod quantised;
mod rearrange;
mod reduce;
mod sides;
mod top_k;
mod weights;

pub use accumulate::Accumulate;
pub use argument::{Argument, Element, Role, Words, f16_words, f32_words, floats, halves};
pub use attention::Attention;
pub use batched_gemm::BatchedGemm;
pub use blas::Product;
pub use broadcast::{Arithmetic, Broadcast};
pub use concat::Concat;
pub use convolution::Convolution;
pub use encode::{Decode, Encode, Format};
pub use expected::Expected;
pub use gather::Gather;
pub use gemm::{Activation, Gemm};
pub use integer::IntegerGemm;
use limits::{MOST_WORDS, check_length, check_shape};
pub use map::{Map, Step};
pub use mask::Mask;
pub use norm::{Norm, Normalise};
pub(crate) use panels::Panels;
pub(crate) use pass::grid;
pub use pass::{Pass, Source};
pub use pool::{Pool, Window};
pub use quantised::QuantisedGemm;
pub use rearrange::Rearrange;
pub use reduce::{Fold, Reduce};
pub use sides::{Padding, Sides};
pub use top_k::TopK;
pub use weights::{Quantised, from_awq, from_gptq};

use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use serde::{Deserialize, Serialize};

/// A computation and its shape. As text, `{"kernel": "gemm", "m": 4, "n": 4, "k": 8}`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kernel", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kernel {
    /// Matrix product of `f32`, or of `f16` with sums in `f32`.
    Gemm(Gemm),
    /// Matrix product with weights of 4 or 8 bits in groups.
    QuantisedGemm(QuantisedGemm),
    /// Matrix product of 8-bit integers.
    IntegerGemm(IntegerGemm),
    /// Convolution of images.
    Convolution(Convolution),
    /// The largest or the mean of windows of images.
    Pool(Pool),
    /// Scaled dot-product attention.
    Attention(Attention),
    /// Softmax, layer norm and root-mean-square norm of rows.
    Norm(Norm),
    /// Sums, maxima and the like of rows.
    Reduce(Reduce),
    /// Steps on every element, one after the other, in one pass over memory.
    Map(Map),
    /// Arithmetic of two tensors, of which one may go on along the other.
    Broadcast(Broadcast),
    /// Tensors one after the other along an axis.
    Concat(Concat),
    /// Elements in another order: transposed, cut out, more than once.
    Rearrange(Rearrange),
    /// Rows of a table by their numbers.
    Gather(Gather),
    /// Many products of matrices at once.
    BatchedGemm(BatchedGemm),
    /// A weighted sum of arrays onto another: one step of a federated average.
    Accumulate(Accumulate),
    /// Numbers to half precision or to 8 bits with a scale per row.
    Encode(Encode),
    /// The way back.
    Decode(Decode),
    /// The largest numbers of an update, and what is lost.
    TopK(TopK),
    /// The mask of a secure sum put on integers, or taken off.
    Mask(Mask),
}

/// The description that every kernel gives of itself.
pub(crate) trait Describe {
    /// Whether the shape means anything.
    fn check(&self) -> Result<(), GpuError>;

    /// Its buffers, inputs first, then outputs, then scratch.
    fn arguments(&self) -> Vec<Argument>;

    /// What a GPU does.
    fn passes(&self, tile: Tile) -> Vec<Pass>;

    /// What the processor does. Inputs have the lengths of [`Describe::arguments`]; outputs are zeros of theirs.
    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]);

    /// The same in double precision, element by element.
    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected>;

    /// The largest [error](Expected) that may be seen.
    fn tolerance(&self) -> f64 {
        1e-5
    }

    /// Arithmetic operations; a multiplication with its addition is two.
    fn operations(&self) -> u64;
}

impl Kernel {
    fn describe(&self) -> &dyn Describe {
        match self {
            Self::Gemm(kernel) => kernel,
            Self::QuantisedGemm(kernel) => kernel,
            Self::IntegerGemm(kernel) => kernel,
            Self::Convolution(kernel) => kernel,
            Self::Pool(kernel) => kernel,
            Self::Attention(kernel) => kernel,
            Self::Norm(kernel) => kernel,
            Self::Reduce(kernel) => kernel,
            Self::Map(kernel) => kernel,
            Self::Broadcast(kernel) => kernel,
            Self::Concat(kernel) => kernel,
            Self::Rearrange(kernel) => kernel,
            Self::Gather(kernel) => kernel,
            Self::BatchedGemm(kernel) => kernel,
            Self::Accumulate(kernel) => kernel,
            Self::Encode(kernel) => kernel,
            Self::Decode(kernel) => kernel,
            Self::TopK(kernel) => kernel,
            Self::Mask(kernel) => kernel,
        }
    }

    /// Its name, as in its description.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Gemm(_) => "gemm",
            Self::QuantisedGemm(_) => "quantised-gemm",
            Self::IntegerGemm(_) => "integer-gemm",
            Self::Convolution(_) => "convolution",
            Self::Pool(_) => "pool",
            Self::Attention(_) => "attention",
            Self::Norm(_) => "norm",
            Self::Reduce(_) => "reduce",
            Self::Map(_) => "map",
            Self::Broadcast(_) => "broadcast",
            Self::Concat(_) => "concat",
            Self::Rearrange(_) => "rearrange",
            Self::Gather(_) => "gather",
            Self::BatchedGemm(_) => "batched-gemm",
            Self::Accumulate(_) => "accumulate",
            Self::Encode(_) => "encode",
            Self::Decode(_) => "decode",
            Self::TopK(_) => "top-k",
            Self::Mask(_) => "mask",
        }
    }

    /// Whether it writes every word of its outputs, and none of what passes between its passes is read before it is written: what
    /// lies in these buffers before makes no difference then.
    pub(crate) const fn fills(&self) -> bool {
        match self {
            Self::Gemm(_)
            | Self::Convolution(_)
            | Self::Pool(_)
            | Self::Attention(_)
            | Self::Norm(_)
            | Self::Reduce(_)
            | Self::Map(_)
            | Self::Broadcast(_)
            | Self::Concat(_)
            | Self::Rearrange(_)
            | Self::Gather(_)
            | Self::BatchedGemm(_)
            | Self::Accumulate(_) => true,
            Self::QuantisedGemm(_)
            | Self::IntegerGemm(_)
            | Self::Encode(_)
            | Self::Decode(_)
            | Self::TopK(_)
            | Self::Mask(_) => false,
        }
    }

    /// Its buffers, inputs first, then outputs, then what only passes between each other.
    ///
    /// # Errors
    /// [`GpuError::Kernel`] when the shape means nothing.
    pub fn arguments(&self) -> Result<Vec<Argument>, GpuError> {
        self.describe().check()?;
        Ok(self.describe().arguments())
    }

    /// The passes of a GPU, with matrix tiles of this shape.
    ///
    /// # Errors
    /// [`GpuError::Kernel`] when the shape means nothing, [`GpuError::Limit`] when it takes more workgroups than a GPU counts.
    pub fn passes(&self, tile: Tile) -> Result<Vec<Pass>, GpuError> {
        self.describe().check()?;
        let passes = self.describe().passes(tile);
        passes.iter().try_for_each(Pass::check)?;
        Ok(passes)
    }

    /// What a library of linear algebra does of it, where that is most of it: CUDA devices leave it to cuBLAS.
    ///
    /// # Errors
    /// [`GpuError::Kernel`] when the shape means nothing.
    pub fn product(&self) -> Result<Option<Product>, GpuError> {
        match self {
            Self::Gemm(gemm) => Product::new(gemm).map(Some),
            _ => Ok(None),
        }
    }

    /// What the outputs should hold, computed in double precision and without haste.
    ///
    /// # Errors
    /// [`GpuError::Kernel`] when the shape means nothing or an input has another length.
    pub fn reference(&self, inputs: &[&[u32]]) -> Result<Vec<Expected>, GpuError> {
        self.check_inputs(inputs)?;
        Ok(self.describe().reference(inputs))
    }

    /// The largest [error](Expected::error) that a right implementation shows.
    pub fn tolerance(&self) -> f64 {
        self.describe().tolerance()
    }

    /// Arithmetic operations; a multiplication with its addition is two.
    pub fn operations(&self) -> u64 {
        self.describe().operations()
    }

    /// Whether these are the inputs that it takes.
    ///
    /// # Errors
    /// [`GpuError::Kernel`] when the shape means nothing or an input has another length.
    pub fn check_inputs(&self, inputs: &[&[u32]]) -> Result<Vec<Argument>, GpuError> {
        let arguments = self.arguments()?;
        let wanted = arguments.iter().filter(|argument| argument.role == Role::Input);
        if wanted.clone().count() != inputs.len() {
            let must = format!("it takes {}", wanted.count());
            return Err(GpuError::kernel(self.name(), "inputs", inputs.len(), must));
        }
        for (argument, input) in wanted.zip(inputs) {
            if argument.words != input.len() {
                let must = format!("it has {} bytes", argument.words * 4);
                return Err(GpuError::kernel(
                    self.name(),
                    argument.name,
                    input.len() * 4,
                    must,
                ));
            }
        }
        Ok(arguments)
    }

    /// Runs it on the processor.
    ///
    /// # Errors
    /// Those of [`Kernel::check_inputs`].
    pub(crate) fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]]) -> Result<Vec<Words>, GpuError> {
        let arguments = self.check_inputs(inputs)?;
        let outputs = arguments.iter().filter(|argument| argument.role == Role::Output);
        let mut outputs: Vec<Words> = outputs.map(|argument| vec![0; argument.words]).collect();
        self.describe().on_cpu(cpu, inputs, &mut outputs);
        Ok(outputs)
    }
}
