use karman_types::ByteSize;
use serde::{Deserialize, Serialize};

/// What a model may ask of this machine. Each bound is checked before the memory that it bounds is taken; on ONNX Runtime those of what
/// lies between inputs and outputs only where nothing but the batch is open.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ModelLimits {
    /// Bytes of the model. Default 64 MiB.
    pub model: ByteSize,
    /// Nodes of the graph, those of subgraphs among them. Default 100,000.
    pub nodes: u64,
    /// Messages in the file (nodes, attributes, tensors, dimensions, names); each takes some hundred bytes once decoded.
    /// Default 500,000.
    pub entries: u64,
    /// Bytes of all constant tensors, decoded. Default 64 MiB.
    pub constants: ByteSize,
    /// Graphs within graphs (the bodies of `If`, `Loop`, `Scan`). Default 4.
    pub depth: u32,
    /// Dimensions of a constant tensor. Default 8.
    pub rank: u32,
    /// Bytes of one tensor while the model runs: input, output or in between. Default 256 MiB.
    pub tensor: ByteSize,
    /// Bytes of all tensors that one run makes, even if not all at once; what lies within a `Scan` counts once. Default 1 GiB.
    pub run: ByteSize,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self {
            model: ByteSize::mib(64),
            nodes: 100_000,
            entries: 500_000,
            constants: ByteSize::mib(64),
            depth: 4,
            rank: 8,
            tensor: ByteSize::mib(256),
            run: ByteSize::gib(1),
        }
    }
}
