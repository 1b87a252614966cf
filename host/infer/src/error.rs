use crate::{BackendName, TensorInfo};
use karman_gpu::GpuError;
use karman_tensor::{ElementType, TensorError};
use karman_types::{ErrorKind, TaskError};

/// A failure with a model; [`InferError::kind`] says whose fault it is.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InferError {
    /// The bytes are no ONNX model.
    #[error("this is no ONNX model: {reason}: export it again")]
    Malformed {
        /// Where it stops making sense.
        reason: String,
    },
    /// A number of the model or of a call lies over its bound.
    #[error(
        "{what} is {value}, over the limit of {bound}; raise `models.{limit}` in node.toml, or use a smaller model"
    )]
    Limit {
        /// What was counted.
        what: String,
        /// What it came to.
        value: u64,
        /// What is allowed.
        bound: u64,
        /// The field of [`ModelLimits`](crate::ModelLimits).
        limit: &'static str,
    },
    /// A batch so large that it cannot be told beforehand how much memory a run on it takes.
    #[error(
        "a run on {items} items takes memory that cannot be told beforehand, for the sizes of this model do not grow evenly with the batch: give {most} at most"
    )]
    Unbounded {
        /// The items of the batch.
        items: u32,
        /// The largest batch whose sizes are known.
        most: u32,
    },
    /// An input, output or tensor of a type that tensors here do not have.
    #[error("`{name}` is of type {found}: tensors here are {}", types())]
    Type {
        /// Its name in the model.
        name: String,
        /// The type, in the words of ONNX.
        found: String,
    },
    /// The model is written in operators older than those that are read here.
    #[error(
        "the model uses operator set {found}, and {least} is the oldest that this can be done with: export it again"
    )]
    OperatorSet {
        /// What it says of itself; 0 when it says nothing.
        found: u64,
        /// The oldest that will do.
        least: u64,
    },
    /// A dimension, other than the batch, that the model leaves to each call.
    #[error(
        "dimension `{dimension}` of input `{input}` is open, and of a model in layers only the batch may be: close it with `--shape {input}=…`, which `karman model add` and `inspect` take"
    )]
    OpenDimension {
        /// The input.
        input: String,
        /// The name of the dimension; empty when it has none.
        dimension: String,
    },
    /// A shape that an input of the model cannot have.
    #[error("input `{input}` cannot have that shape: {reason}")]
    Shape {
        /// The input, as given.
        input: String,
        /// What stands against it.
        reason: String,
    },
    /// A tensor of the model lies in another file.
    #[error(
        "tensor `{tensor}` lies in another file: save it with its weights inside, in Python `onnx.save(onnx.load(FILE), \"whole.onnx\")`"
    )]
    ExternalData {
        /// Its name in the model.
        tensor: String,
    },
    /// The model needs what this back-end does not have.
    #[error("{backend} cannot run this model: {reason}")]
    Rejected {
        /// The back-end.
        backend: BackendName,
        /// In its own words.
        reason: String,
    },
    /// An input that was given before.
    #[error("input `{name}` is given twice: give each once")]
    Twice {
        /// As given.
        name: String,
    },
    /// An input of a size that contradicts that of another one.
    #[error("input `{input}` is {given}, but the model takes {takes}, and {by}")]
    Contradiction {
        /// Its name.
        input: String,
        /// What was given: `u8 [28, 28]`.
        given: String,
        /// What the model takes.
        takes: String,
        /// The dimension that both have, with its size, and which input says so.
        by: String,
    },
    /// An input that the model does not have.
    #[error("the model takes no input `{name}`: it takes {}", list(.takes))]
    UnknownInput {
        /// As given.
        name: String,
        /// The inputs of the model.
        takes: Vec<TensorInfo>,
    },
    /// An input that was not given.
    #[error("input {input} is missing: give all of {}", list(.takes))]
    MissingInput {
        /// The first that is missing.
        input: TensorInfo,
        /// The inputs of the model.
        takes: Vec<TensorInfo>,
    },
    /// An input of another type or shape.
    #[error("input `{}` is {given}, but the model takes {input}", input.name)]
    Input {
        /// What the model takes.
        input: TensorInfo,
        /// What was given: `u8 [28, 28]`.
        given: String,
    },
    /// An input without elements, which this back-end does not run.
    #[error(
        "dimension `{dimension}` of input `{input}` is 0, and {least} is the least: leave the run out where there is nothing to run it on"
    )]
    EmptyDimension {
        /// The input.
        input: String,
        /// The name of the dimension; its place, counted from 0, where it has none.
        dimension: String,
        /// The least size that it may have.
        least: u32,
    },
    /// A number of an input that means no row of a table of the model.
    #[error(
        "input `{input}` has {number} among its numbers, and the model looks them up in {rows} rows: give 0 or more, below {rows}"
    )]
    NoSuchRow {
        /// The input.
        input: String,
        /// The first that means none.
        number: i64,
        /// The rows of the table.
        rows: u32,
    },
    /// The back-end is not there.
    #[error("{backend} is not available: {reason}")]
    Unavailable {
        /// The back-end.
        backend: BackendName,
        /// Why, and what to do.
        reason: String,
    },
    /// The model failed on these inputs.
    #[error("{backend} failed on these inputs: {reason}")]
    Run {
        /// The back-end.
        backend: BackendName,
        /// In its own words.
        reason: String,
    },
    /// The back-end panicked; the process goes on.
    #[error("{backend} panicked: {reason}: use another back-end or model, and report this one")]
    Panicked {
        /// The back-end.
        backend: BackendName,
        /// The panic's message.
        reason: String,
    },
    /// An output that is no tensor of ours.
    #[error("output `{name}` cannot be returned: {reason}")]
    Output {
        /// Its name in the model.
        name: String,
        /// Why.
        reason: TensorError,
    },
    /// An output of a batch that does not have a part for each request.
    #[error("output `{output}` is {shape} where the batch is {items}: it cannot be told apart")]
    Apart {
        /// Its name in the model.
        output: String,
        /// Its shape.
        shape: String,
        /// The items of the batch.
        items: u32,
    },
    /// Weights that do not take the place of those of the model.
    #[error("weights `{name}` do not fit the model: {reason}")]
    Weight {
        /// Their name.
        name: String,
        /// Why.
        reason: String,
    },
    /// What no kernel of this host's devices computes. Nothing runs in its place.
    #[error("{what} does not run on a GPU here: {reason}; load the model for the processor")]
    NotOnGpu {
        /// The operator with its node, or the tensor.
        what: String,
        /// Why.
        reason: String,
    },
    /// A device that did not run a model.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A model from outside that did not survive its rehearsal in a child process.
    #[error("the model was refused after a trial in a separate process: {reason}")]
    Rehearsal {
        /// How the child ended.
        reason: String,
    },
}

impl InferError {
    /// Which way a task fails that fails with this.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Malformed { .. }
            | Self::Type { .. }
            | Self::ExternalData { .. }
            | Self::OperatorSet { .. }
            | Self::OpenDimension { .. }
            | Self::Shape { .. }
            | Self::Twice { .. }
            | Self::Contradiction { .. }
            | Self::UnknownInput { .. }
            | Self::MissingInput { .. }
            | Self::Input { .. }
            | Self::NoSuchRow { .. }
            | Self::EmptyDimension { .. }
            | Self::Weight { .. }
            | Self::Rehearsal { .. } => ErrorKind::Invalid,
            Self::Limit { .. } | Self::Unbounded { .. } => ErrorKind::Limit,
            Self::Rejected { .. } | Self::Unavailable { .. } | Self::NotOnGpu { .. } => {
                ErrorKind::Unavailable
            }
            Self::Gpu(error) => error.kind(),
            Self::Run { .. } | Self::Output { .. } | Self::Apart { .. } => ErrorKind::Failed,
            Self::Panicked { .. } => ErrorKind::Internal,
        }
    }

    pub(crate) fn malformed(reason: impl Into<String>) -> Self {
        Self::Malformed {
            reason: reason.into(),
        }
    }

    /// An error unless `value` is within `bound`.
    pub(crate) fn over(
        limit: &'static str,
        bound: u64,
        value: u64,
        what: impl FnOnce() -> String,
    ) -> Result<(), Self> {
        match value <= bound {
            true => Ok(()),
            false => Err(Self::Limit {
                what: what(),
                value,
                bound,
                limit,
            }),
        }
    }
}

impl From<InferError> for TaskError {
    fn from(error: InferError) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

fn types() -> String {
    ElementType::ALL.map(|element| element.to_string()).join(", ")
}

fn list(infos: &[TensorInfo]) -> String {
    let names: Vec<String> = infos.iter().map(ToString::to_string).collect();
    match names.is_empty() {
        true => "none".into(),
        false => names.join(", "),
    }
}
