use crate::{InferError, ModelLimits};
use karman_tensor::{ElementType, Shape, Tensor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::Arc;

/// Which program runs a model.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendName {
    /// ONNX Runtime: fast, there when its library is installed.
    OnnxRuntime,
    /// tract: pure Rust, built in.
    Tract,
}

impl BackendName {
    /// The name as it is written in a configuration: `onnxruntime` or `tract`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OnnxRuntime => "onnxruntime",
            Self::Tract => "tract",
        }
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for BackendName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::OnnxRuntime, Self::Tract]
            .into_iter()
            .find(|name| name.as_str() == text)
            .ok_or_else(|| format!("`{text}` is not a back-end: onnxruntime or tract"))
    }
}

/// One dimension of what a model takes or gives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Dim {
    /// Always this size.
    Fixed(u32),
    /// Any size, the same wherever the name stands within one call; an empty name stands for itself only.
    Any(String),
}

/// One input or output of a model. Printed as `image f32 [N, 1, 8, 8]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TensorInfo {
    /// Its name in the model.
    pub name: String,
    /// The type of its elements.
    pub element: ElementType,
    /// Its dimensions; `None` when the model does not say how many.
    pub dims: Option<Vec<Dim>>,
}

impl TensorInfo {
    /// Whether a tensor of this shape fits, each dimension for itself.
    pub fn accepts(&self, shape: Shape) -> bool {
        self.dims.as_ref().is_none_or(|dims| {
            dims.len() == shape.rank()
                && dims.iter().zip(shape.dims()).all(|(dim, size)| match dim {
                    Dim::Fixed(fixed) => fixed == size,
                    Dim::Any(_) => true,
                })
        })
    }

    /// Its shape when every dimension is fixed.
    pub fn fixed_shape(&self) -> Option<Shape> {
        self.shape_with(None)
    }

    /// Its shape with this size for every open dimension.
    pub(crate) fn shape_with(&self, any: Option<u32>) -> Option<Shape> {
        let dims: Option<Vec<u32>> = self
            .dims
            .as_ref()?
            .iter()
            .map(|dim| match dim {
                Dim::Fixed(size) => Some(*size),
                Dim::Any(_) => any,
            })
            .collect();
        Shape::new(&dims?).ok()
    }
}

impl fmt::Display for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} [", self.name, self.element)?;
        match &self.dims {
            None => f.write_str("..")?,
            Some(dims) => {
                for (i, dim) in dims.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { ", " })?;
                    match dim {
                        Dim::Fixed(size) => write!(f, "{size}")?,
                        Dim::Any(name) if name.is_empty() => f.write_str("?")?,
                        Dim::Any(name) => f.write_str(name)?,
                    }
                }
            }
        }
        f.write_str("]")
    }
}

/// The options for loading a model.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoadOptions {
    /// The back-end; `None` takes ONNX Runtime where it is, else tract.
    pub backend: Option<BackendName>,
    /// Threads of one run, in ONNX Runtime; tract always uses the caller's. Default 1, because a node runs many tasks.
    pub threads: NonZeroUsize,
    /// Runs at once, in ONNX Runtime: each further one is a session with its own memory, made when first needed, and one
    /// more waits. tract runs any number. Default 1.
    pub sessions: NonZeroUsize,
    /// Plans that tract keeps, one for each set of input shapes it has seen. Default 4.
    pub plans: NonZeroUsize,
    /// What the model may ask of this machine.
    pub limits: ModelLimits,
}

impl Default for LoadOptions {
    fn default() -> Self {
        const FOUR: NonZeroUsize = NonZeroUsize::new(4).expect("4 is not 0");
        Self {
            backend: None,
            threads: NonZeroUsize::MIN,
            sessions: NonZeroUsize::MIN,
            plans: FOUR,
            limits: ModelLimits::default(),
        }
    }
}

/// A program that runs models.
pub trait Backend: Send + Sync {
    /// Which one.
    fn name(&self) -> BackendName;

    /// Its version, as far as it tells.
    fn version(&self) -> &str;

    /// Makes a model ready to run. Blocks, for as long as optimising the graph takes.
    ///
    /// # Errors
    /// [`InferError::Malformed`], [`InferError::Limit`] and [`InferError::ExternalData`] before the back-end sees anything;
    /// [`InferError::Rejected`] when it lacks an operator or type; [`InferError::Panicked`].
    fn load(&self, bytes: &[u8], options: &LoadOptions) -> Result<Arc<dyn Model>, InferError>;
}

/// A model that is ready to run, from any number of threads.
pub trait Model: Send + Sync {
    /// Which back-end runs it.
    fn backend(&self) -> BackendName;

    /// What it takes, in the order of the model.
    fn inputs(&self) -> &[TensorInfo];

    /// What it gives, in the order of the model.
    fn outputs(&self) -> &[TensorInfo];

    /// Runs it on inputs given by name, in any order; the outputs come in the order of the model. Blocks.
    ///
    /// # Errors
    /// [`InferError::UnknownInput`], [`InferError::Twice`], [`InferError::MissingInput`], [`InferError::Input`],
    /// [`InferError::Contradiction`] when the inputs do not fit,
    /// [`InferError::EmptyDimension`] when one has no elements and the back-end is tract,
    /// [`InferError::Limit`] when a tensor would grow past its bound, [`InferError::Run`] when the model itself fails on
    /// them, [`InferError::Output`], [`InferError::Panicked`].
    fn run(&self, inputs: Vec<(String, Tensor)>) -> Result<Vec<(String, Tensor)>, InferError>;
}
