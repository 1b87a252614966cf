use karman_types::{ErrorKind, TaskError, format_bytes, format_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Why a device did not do what it was asked.
///
/// Errors cross from the process that holds the device to the one that asked it, so they are plain data.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// A kernel that means nothing: a dimension of zero, a stride shorter than its row, an input of the wrong length.
    #[error("{kernel}: {field} is {value}, but {must}")]
    Kernel {
        /// The kernel's name.
        kernel: String,
        /// Which field or input.
        field: String,
        /// As given.
        value: u64,
        /// What it has to be.
        must: String,
    },
    /// A shader that is not WGSL, or uses what plugins' shaders may not.
    #[error("the shader is refused: {0}")]
    Shader(String),
    /// There is no such device, or it cannot do this.
    #[error("{0}")]
    Absent(String),
    /// More memory than the work may take, or the device has.
    #[error("{what} takes {}, and {} is the most", format_bytes(*.asked), format_bytes(*.most))]
    Memory {
        /// What takes it.
        what: String,
        /// Bytes asked for.
        asked: u64,
        /// Bytes that may be had.
        most: u64,
    },
    /// The device has no memory left for the work, whatever else was let go.
    #[error("the device has no memory left for it")]
    Exhausted,
    /// More of something countable than is allowed.
    #[error("{asked} {what} were asked for, and {most} is the most")]
    Limit {
        /// What is counted.
        what: String,
        /// How many were asked for.
        asked: u64,
        /// How many may be had.
        most: u64,
    },
    /// A loop that went on beyond its budget of iterations; the shader was ended from within.
    #[error("the shader's loops ran more than {0} times in one invocation")]
    Endless(u32),
    /// The device did not answer in time; the process that held it was ended.
    #[error("the device did not answer within {}", format_duration(*.0))]
    Deadline(Duration),
    /// The device or its driver failed while it worked. The next work gets a fresh one.
    #[error("the device was lost: {0}")]
    Lost(String),
}

/// The beginning of what a compiler or a driver says, often over many lines, as one.
fn begin(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(400).collect()
}

impl GpuError {
    pub(crate) fn kernel(kernel: &str, field: &str, value: usize, must: impl Into<String>) -> Self {
        Self::Kernel {
            kernel: kernel.into(),
            field: field.into(),
            value: value as u64,
            must: must.into(),
        }
    }

    /// A shader that is refused. Names in it may be as long as its text: only the beginning of what is said is kept.
    pub(crate) fn shader(why: &str) -> Self {
        Self::Shader(begin(why))
    }

    /// What a device cannot do, in the words of its tools.
    pub(crate) fn absent(why: &str) -> Self {
        Self::Absent(begin(why))
    }

    /// A device that failed, in its driver's words.
    pub(crate) fn lost(why: &str) -> Self {
        Self::Lost(begin(why))
    }

    /// The kind under which the command line and a plugin see it.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Kernel { .. } | Self::Shader(_) => ErrorKind::Invalid,
            Self::Absent(_) | Self::Lost(_) => ErrorKind::Unavailable,
            Self::Memory { .. } | Self::Exhausted | Self::Limit { .. } | Self::Endless(_) => ErrorKind::Limit,
            Self::Deadline(_) => ErrorKind::Deadline,
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::Kernel { .. } => "docs/gpu.md lists every kernel with its fields and inputs",
            Self::Shader(_) => "docs/gpu.md says what a plugin's shader may use",
            Self::Absent(_) => "`karman gpu list` shows what this machine has",
            Self::Memory { .. } | Self::Exhausted | Self::Limit { .. } => {
                "split the work into smaller pieces"
            }
            Self::Endless(_) => "bound the shader's loops, or spread the work over more invocations",
            Self::Deadline(_) => "split the work into smaller pieces, or give the call more time",
            Self::Lost(_) => "try again; `karman gpu check` tries the device alone",
        }
    }
}

impl From<GpuError> for TaskError {
    fn from(error: GpuError) -> Self {
        let field = match &error {
            GpuError::Kernel { field, .. } => Some(field.clone()),
            _ => None,
        };
        Self {
            field,
            ..Self::new(error.kind(), error.to_string()).with_hint(error.hint())
        }
    }
}
