//! The layers of a quantised model in whole numbers, for nodes that compute a share of one.
//!
//! [`Integer::read`] finds in a model of 8 bits (QDQ: what each layer takes goes through `QuantizeLinear` and `DequantizeLinear`) all
//! layers from its input on that `karman_tensor::quantised` computes: convolutions, fully connected layers, means of
//! whole maps, largest values under a window, additions of what came before, each with ReLU, ReLU6 or another clip. What comes after them is left as a
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
    /// The activations that the rest of the model takes, and as what.
    gives: Vec<(usize, TensorInfo)>,
    rest: Fragment,
    operators: Vec<String>,
    results: Vec<String>,
}

impl Integer {
    /// The layers in whole numbers, as many as there are with nothing but tensors of 8 bits going on from them.
    ///
    /// # Errors
    /// [`IntegerError::None`] when there is none, [`IntegerError::File`] when a constant does not read.
    pub fn read(graph: &Graph) -> Result<Self, IntegerError> {
        let Walked {
            entry,
            stored,
            layers,
            takes,
            parameters,
            stopped,
        } = walk::walk(graph)?;
        let none = || {
            let (node, why) = stopped.clone().unwrap_or_else(|| {
                let why = "what comes after it takes something else than tensors of 8 bits".to_owned();
                ("QuantizeLinear".to_owned(), why)
            });
            IntegerError::None { node, why }
        };
        let entry = entry.ok_or_else(none)?;
        for last in (1..stored.len()).rev() {
            let Some(rest) = rest_after(graph, &stored[..=last])? else {
                continue;
            };
            let gives = rest.takes.iter().filter_map(|edge| {
                let activation = stored.iter().position(|stored| stored == edge)?;
                Some((activation, graph.edges()[*edge].info.clone()))
            });
            let operators: BTreeSet<&str> = rest
                .nodes
                .iter()
                .map(|node| graph.nodes()[*node].op.as_str())
                .collect();
            let outputs = graph.outputs().iter();
            return Ok(Self {
                network: Network::branching(
                    layers[..last].to_vec(),
                    takes[..last].to_vec(),
                    parameters[..last].to_vec(),
                )?,
                takes: graph.edges()[entry.edge].info.clone(),
                gives: gives.collect(),
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

    /// The activations of the network that the rest of the model takes.
    pub fn gives(&self) -> Vec<usize> {
        self.gives.iter().map(|(activation, _)| *activation).collect()
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

    /// What the network gave for each item, the activations that it [`gives`](Self::gives) in their order, as the rest of the model takes
    /// them.
    ///
    /// # Errors
    /// [`IntegerError::Arithmetic`] when an item has another number of values than the network gives.
    pub fn hand_over(&self, items: &[Vec<Vec<i8>>]) -> Result<Vec<(String, Tensor)>, IntegerError> {
        let given = self.gives.iter().enumerate();
        given
            .map(|(at, (activation, info))| {
                let items = items
                    .iter()
                    .map(|item| item.get(at).map_or(&[][..], Vec::as_slice));
                stacked(self.network.activation(*activation), info, items)
            })
            .collect()
    }
}

/// An activation of each item as one tensor.
fn stacked<'a>(
    extent: Extent,
    info: &TensorInfo,
    items: impl ExactSizeIterator<Item = &'a [i8]>,
) -> Result<(String, Tensor), IntegerError> {
    let (count, unsigned) = (items.len(), info.element == ElementType::U8);
    let mut bytes = Vec::with_capacity(count * extent.elements());
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
    let sizes = info.dims.iter().flatten().skip(1);
    let fixed = sizes.filter_map(|dim| match dim {
        crate::Dim::Fixed(size) => Some(*size),
        crate::Dim::Any(_) => None,
    });
    let dims: Vec<u32> = std::iter::once(count as u32).chain(fixed).collect();
    let unfit = |error: karman_tensor::TensorError| InferError::malformed(error.to_string());
    let shape = Shape::new(&dims).map_err(unfit)?;
    let tensor = Tensor::new(info.element, shape, &bytes).map_err(unfit)?;
    Ok((info.name.clone(), tensor))
}

/// What comes after these edges, if it takes nothing else from before them and no output of the model lies before them.
fn rest_after(graph: &Graph, stored: &[usize]) -> Result<Option<Fragment>, IntegerError> {
    let cut = |error: crate::graph::CutError| InferError::malformed(error.to_string());
    let before = graph.needed(stored).map_err(cut)?;
    let lies_before = |edge: &usize| {
        graph.edges()[*edge]
            .from
            .is_none_or(|node| before.contains(&node))
    };
    if graph.outputs().iter().any(lies_before) {
        return Ok(None);
    }
    let nodes = 0..graph.nodes().len();
    let stages: Vec<usize> = nodes.map(|node| usize::from(!before.contains(&node))).collect();
    let crossing = graph.crossing(&stages).map_err(cut)?;
    let only_stored = |edges: &Vec<usize>| edges.iter().all(|edge| stored.contains(edge));
    if !crossing.first().is_some_and(only_stored) {
        return Ok(None);
    }
    let mut fragments = graph.split(&stages).map_err(cut)?;
    Ok(fragments.pop().filter(|last| last.stage == 1))
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
