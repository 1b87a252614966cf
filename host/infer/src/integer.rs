//! The layers of a quantised model in whole numbers, for nodes that compute a share of one.
//!
//! [`Integer::read`] finds in a model of 8 bits (QDQ: what each layer takes goes through `QuantizeLinear` and `DequantizeLinear`) the
//! longest chain of layers from its input on that `karman_tensor::quantised` computes: convolutions, fully connected layers, means of
//! whole maps, additions of what came before, each with ReLU, ReLU6 or another clip. What comes after them is left as a
//! fragment, an ONNX model of its own, for a back-end ([`Integer::rest`]).
//!
//! Whole numbers give the same bits wherever they are computed. They are not the bits of a back-end: that rounds real numbers, and what
//! it gives may lie one step of the output's scale beside, layer by layer.
//!
//! | file | what |
//! |---|---|
//! | `walk` | from the nodes of a graph to layers, one after the other |
//! | `layers` | what an operator is as a layer |
//! | `constants` | weights, biases and scales as they stand in the file |

mod constants;
mod layers;
mod walk;

use crate::graph::{Fragment, Graph};
use crate::{InferError, TensorInfo};
use karman_tensor::quantised::{Extent, Network, QuantisedError};
use karman_tensor::{ElementType, Shape, Tensor};
use karman_types::ErrorKind;
use std::collections::BTreeSet;
use walk::{Entry, Walked};

/// Why a model, or what it is given, has no form in whole numbers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IntegerError {
    /// The file itself.
    #[error(transparent)]
    File(#[from] InferError),
    /// None of its layers.
    #[error(
        "no layer of this model can be computed in whole numbers, because of `{node}`: {why}; a model of 8 bits (QDQ) whose \
         input is quantised first can"
    )]
    None {
        /// The first node that could not be taken.
        node: String,
        /// What is wrong with it.
        why: String,
    },
    /// Inputs that do not fit.
    #[error("{given}: the model takes {takes}")]
    Input {
        /// What was given.
        given: String,
        /// What it takes.
        takes: TensorInfo,
    },
    /// Values that do not fit the layers.
    #[error(transparent)]
    Arithmetic(#[from] QuantisedError),
}

impl IntegerError {
    /// Whose fault it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::File(error) => error.kind(),
            Self::None { .. } => ErrorKind::Unavailable,
            Self::Input { .. } => ErrorKind::Invalid,
            Self::Arithmetic(_) => ErrorKind::Internal,
        }
    }
}

/// A model whose first layers are in whole numbers.
#[derive(Debug)]
pub struct Integer {
    network: Network,
    takes: TensorInfo,
    entry: Entry,
    /// What the last layer in whole numbers gives, as the rest of the model takes it.
    gives: TensorInfo,
    rest: Fragment,
    operators: Vec<String>,
    results: Vec<String>,
}

impl Integer {
    /// The longest chain of layers in whole numbers after which a single tensor goes on.
    ///
    /// # Errors
    /// [`IntegerError::None`] when there is none, [`IntegerError::File`] when a constant does not read.
    pub fn read(graph: &Graph) -> Result<Self, IntegerError> {
        let Walked {
            entry,
            stored,
            layers,
            parameters,
            stopped,
        } = walk::walk(graph)?;
        let none = || {
            let (node, why) = stopped.clone().unwrap_or_else(|| {
                let why = "what comes after it takes more than one tensor from before".to_owned();
                ("QuantizeLinear".to_owned(), why)
            });
            IntegerError::None { node, why }
        };
        let entry = entry.ok_or_else(none)?;
        for last in (1..stored.len()).rev() {
            let Some(rest) = rest_after(graph, stored[last])? else {
                continue;
            };
            let operators: BTreeSet<&str> = rest
                .nodes
                .iter()
                .map(|node| graph.nodes()[*node].op.as_str())
                .collect();
            let outputs = graph.outputs().iter();
            return Ok(Self {
                network: Network::new(layers[..last].to_vec(), parameters[..last].to_vec())?,
                takes: graph.edges()[entry.edge].info.clone(),
                gives: graph.edges()[stored[last]].info.clone(),
                operators: operators.into_iter().map(str::to_owned).collect(),
                results: outputs
                    .map(|edge| graph.edges()[*edge].info.name.clone())
                    .collect(),
                entry,
                rest,
            });
        }
        Err(none())
    }

    /// The layers in whole numbers.
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// The rest of the model, which takes what [`Integer::hand_over`] gives.
    pub const fn rest(&self) -> &Fragment {
        &self.rest
    }

    /// The kinds of operators of the rest.
    pub fn operators_of_rest(&self) -> &[String] {
        &self.operators
    }

    /// The names of the model's outputs, in its order: the rest may give them in another.
    pub fn results(&self) -> &[String] {
        &self.results
    }

    /// What the network takes for each item of the batch, from the input of the model.
    ///
    /// # Errors
    /// [`IntegerError::Input`] when other tensors are given than the model takes.
    pub fn quantise(&self, inputs: &[(String, Tensor)]) -> Result<Vec<Vec<i8>>, IntegerError> {
        let refuse = |given: String| IntegerError::Input {
            given,
            takes: self.takes.clone(),
        };
        let [(name, tensor)] = inputs else {
            return Err(refuse(format!("{} tensors are given", inputs.len())));
        };
        let info = &self.takes;
        if *name != info.name || tensor.element() != info.element || !info.accepts(tensor.shape()) {
            let (element, shape) = (tensor.element(), tensor.shape());
            return Err(refuse(format!("`{name}` is {element} {shape}")));
        }
        let values = tensor.view::<f32>().map_err(|error| refuse(error.to_string()))?;
        let extent = self.network.input();
        let items = values.chunks_exact(extent.elements());
        Ok(items
            .map(|item| by_rows(extent, item, |value| self.entry.quantise(value)))
            .collect())
    }

    /// What the network gave for each item, as the rest of the model takes it.
    ///
    /// # Errors
    /// [`IntegerError::Arithmetic`] when an item has another number of values than the network gives.
    pub fn hand_over(&self, items: &[Vec<i8>]) -> Result<(String, Tensor), IntegerError> {
        let extent = self.network.activation(self.network.layers().len());
        let unsigned = self.gives.element == ElementType::U8;
        let mut bytes = Vec::with_capacity(items.len() * extent.elements());
        for item in items {
            if item.len() != extent.elements() {
                return Err(QuantisedError::Length {
                    field: "output",
                    expected: extent.elements(),
                    given: item.len(),
                }
                .into());
            }
            let flip = if unsigned { 0x80 } else { 0 };
            bytes.extend(by_channels(extent, item).map(|value| value as u8 ^ flip));
        }
        let sizes = self.gives.dims.iter().flatten().skip(1);
        let fixed = sizes.filter_map(|dim| match dim {
            crate::Dim::Fixed(size) => Some(*size),
            crate::Dim::Any(_) => None,
        });
        let dims: Vec<u32> = std::iter::once(items.len() as u32).chain(fixed).collect();
        let unfit = |error: karman_tensor::TensorError| InferError::malformed(error.to_string());
        let shape = Shape::new(&dims).map_err(unfit)?;
        let tensor = Tensor::new(self.gives.element, shape, &bytes).map_err(unfit)?;
        Ok((self.gives.name.clone(), tensor))
    }
}

/// What comes after an edge, if nothing else goes on from before it and no output of the model lies before it.
fn rest_after(graph: &Graph, edge: usize) -> Result<Option<Fragment>, IntegerError> {
    let mut before = vec![false; graph.nodes().len()];
    let mut open: Vec<usize> = graph.edges()[edge].from.into_iter().collect();
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut before[node], true) {
            let takes = graph.nodes()[node].inputs.iter();
            open.extend(takes.filter_map(|edge| graph.edges()[*edge].from));
        }
    }
    let lies_before = |edge: &usize| graph.edges()[*edge].from.is_none_or(|node| before[node]);
    if graph.outputs().iter().any(lies_before) {
        return Ok(None);
    }
    let stages: Vec<usize> = before.iter().map(|before| usize::from(!before)).collect();
    let cut = |error: crate::graph::CutError| InferError::malformed(error.to_string());
    if graph.crossing(&stages).map_err(cut)? != [vec![edge]] {
        return Ok(None);
    }
    let mut fragments = graph.split(&stages).map_err(cut)?;
    Ok(fragments
        .pop()
        .filter(|last| last.stage == 1 && last.takes == [edge]))
}

/// Channel by channel, row by row, column by column, as ONNX has it, into row by row, column by column, channel by channel.
fn by_rows<T: Copy>(extent: Extent, planar: &[T], each: impl Fn(T) -> i8) -> Vec<i8> {
    let cells = extent.height * extent.width;
    let cell = |cell: usize| (0..extent.channels).map(move |channel| channel * cells + cell);
    (0..cells).flat_map(cell).map(|at| each(planar[at])).collect()
}

/// The other way.
fn by_channels(extent: Extent, rows: &[i8]) -> impl Iterator<Item = i8> + '_ {
    let cells = extent.height * extent.width;
    (0..extent.channels)
        .flat_map(move |channel| (0..cells).map(move |cell| rows[cell * extent.channels + channel]))
}

#[cfg(test)]
mod tests;
