//! An ONNX model as a graph: what each node costs, what each edge carries, and where it may be cut.
//!
//! [`Graph::read`] takes the bytes of a file within the limits that loading has. What depends on no input (weights, and nodes
//! that compute from weights only) is no part of the graph: it belongs to the nodes that use it, so that it never crosses a
//! cut. Types and shapes are those that tract infers, at a batch of one, of two, and of seven, so that every size is known for any
//! batch; where one does not grow evenly with it, the batch is fixed to one.
//!
//! | file | what |
//! |---|---|
//! | `raw` | what stands in a file: nodes and constant tensors by name |
//! | `order` | where each name comes from; the order of the nodes that an output needs; what is constant |
//! | `read` | from a file to nodes and edges |
//! | `shapes` | types and dimensions, inferred on a copy without weights |
//! | `settled` | what the model asks for of its shapes, as constants, once its dimensions are closed |
//! | `cost` | classes, multiply-accumulates, parameters |
//! | `operation` | a node with its arguments in their places |
//! | `layers` | nodes that belong together; the cut points between them |
//! | `cut` | any cut into any number of stages, and each stage as a model of its own |
//! | `exit` | the model up to an early exit |
//! | `sizes` | how large everything is that a run makes |

mod cost;
mod cut;
mod exit;
mod layers;
mod operation;
mod order;
mod raw;
mod read;
mod settled;
mod shapes;
mod sizes;

pub use cost::OpClass;
pub use cut::{CutError, Fragment};
pub use layers::{CutPoint, Layer, LayerEdge, Layers};
pub(crate) use operation::{Operand, Operation};
pub(crate) use settled::settled;
pub(crate) use sizes::Sizes;

use crate::{InferError, TensorInfo};
use bytes::Bytes;
use karman_types::Digest;
use serde::{Deserialize, Serialize};

/// A number that grows with the batch: bytes, elements, multiply-accumulates.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Scaled {
    /// The part that does not.
    pub fixed: u64,
    /// What each item of the batch adds.
    pub per_item: u64,
}

impl Scaled {
    /// A number that was `one` for a batch of one and `two` for a batch of two.
    pub(crate) fn through(one: u64, two: u64) -> Self {
        let per_item = two.saturating_sub(one);
        Self {
            fixed: one.saturating_sub(per_item),
            per_item,
        }
    }

    /// Its value for a batch of this size.
    pub fn at(self, batch: u32) -> u64 {
        self.fixed
            .saturating_add(self.per_item.saturating_mul(batch.into()))
    }

    fn times(self, factor: u64) -> Self {
        Self {
            fixed: self.fixed.saturating_mul(factor),
            per_item: self.per_item.saturating_mul(factor),
        }
    }
}

impl std::ops::Add for Scaled {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            fixed: self.fixed.saturating_add(other.fixed),
            per_item: self.per_item.saturating_add(other.per_item),
        }
    }
}

impl std::iter::Sum for Scaled {
    fn sum<I: Iterator<Item = Self>>(numbers: I) -> Self {
        numbers.fold(Self::default(), |sum, n| sum + n)
    }
}

/// One operation that depends on the inputs.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name in the model; that of its first output when it has none.
    pub name: String,
    /// The operator: `Conv`.
    pub op: String,
    /// What its time depends on.
    pub class: OpClass,
    /// The edges that it takes, each once, those that its subgraphs use among them.
    pub inputs: Vec<usize>,
    /// The edges that it makes and that are used.
    pub outputs: Vec<usize>,
    /// Weights: the elements of the constants it uses, other than single values and whole numbers of 64 bits (shapes, axes).
    pub parameters: u64,
    /// Bytes of all the constants it uses, as they lie in the file.
    pub parameter_bytes: u64,
    /// Multiply-accumulates of convolutions, matrix products and recurrent layers. Of other operators 0: their cost lies in
    /// the elements that they touch.
    pub macs: Scaled,
    body: Bytes,
    /// The constants that it names.
    constants: Vec<Supply>,
}

/// One tensor, from the node that makes it to all that take it.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Its name, type and dimensions; the batch is open.
    pub info: TensorInfo,
    /// Its elements; no more than an estimate beyond a batch of two where several dimensions grow with it.
    pub elements: Scaled,
    /// The node that makes it; `None` for an input of the model.
    pub from: Option<usize>,
    /// The nodes that take it, each once, in order.
    pub to: Vec<usize>,
    /// Whether it is an output of the model.
    pub is_output: bool,
}

impl Edge {
    /// Its bytes.
    pub fn bytes(&self) -> Scaled {
        self.elements.times(self.info.element.size() as u64)
    }
}

/// A constant: a tensor of the file, or an output of a node that computes from such tensors only.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Supply {
    Tensor(usize),
    Node(usize),
}

/// A tensor of the file.
#[derive(Clone, Debug)]
struct ConstantTensor {
    name: String,
    body: Bytes,
    /// Elements that count as parameters.
    parameters: u64,
    bytes: u64,
}

/// A node that depends on no input.
#[derive(Clone, Debug)]
struct ConstantNode {
    body: Bytes,
    uses: Vec<Supply>,
    /// Where it holds its value itself (`Constant`).
    parameters: u64,
    bytes: u64,
}

/// A model as a graph without cycles. Nodes and edges are named by their position: a node comes after all that it needs.
#[derive(Clone, Debug)]
pub struct Graph {
    digest: Digest,
    name: String,
    operator_set: u64,
    batch: Option<String>,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    tensors: Vec<ConstantTensor>,
    constant_nodes: Vec<ConstantNode>,
    /// What a fragment's file says of itself besides its graph: versions, operator sets, functions.
    header: Vec<u8>,
}

impl Graph {
    /// The digest of the file.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The version of the standard operators that the model is written in.
    pub fn operator_set(&self) -> u64 {
        self.operator_set
    }

    /// Refuses a model whose operators do not mean what [`Operation`] reads: in the sets before 13 many say as an attribute what is an
    /// input since, and `Softmax` goes over several dimensions.
    ///
    /// # Errors
    /// [`InferError::OperatorSet`].
    pub(crate) fn check_translatable(&self) -> Result<(), InferError> {
        raw::at_least(self.operator_set, 13)
    }

    /// The name of the dimension that is the batch, which may be empty; `None` when the model fixes it, or a size does not grow evenly
    /// with it.
    pub fn batch(&self) -> Option<&str> {
        self.batch.as_deref()
    }

    /// The nodes, each after all that it needs.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The edges: first the inputs, then what each node makes.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The edges that are the inputs, in the order of the model; one that nothing uses is among them.
    pub fn inputs(&self) -> &[usize] {
        &self.inputs
    }

    /// The edges that are the outputs, in the order of the model.
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// Multiply-accumulates of one run.
    pub fn macs(&self) -> Scaled {
        self.nodes.iter().map(|node| node.macs).sum()
    }

    /// Weights, each counted once however many nodes use it.
    pub fn parameters(&self) -> u64 {
        let used = self.supplies_of(0..self.nodes.len());
        used.parameters(self)
    }
}
