//! What is cut: layers, and the tensors between them.

use super::GraphError;
use petgraph::algo::toposort;
use petgraph::graph::DiGraph;
use serde::{Deserialize, Serialize};

/// Times that differ by less than this share are the same.
const SAME_TIME: f64 = 1e-3;
/// No correction makes a layer slower than this; sums stay finite.
const LONGEST_MS: f64 = 1e12;
/// No correction makes a layer faster than this share of its profile: no factor would lead back from 0.
const LEAST_SHARE: f64 = 1e-6;

/// A network as layers and the tensors that go between them. A chain is the plainest one.
///
/// It is checked when it is made: no cycles, indices that exist, finite times.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct LayerGraph {
    layers: Vec<Layer>,
    tensors: Vec<Tensor>,
    /// Every layer after those whose tensors it takes.
    order: Vec<usize>,
    /// Whether that is the only such order: then every cut is a place in it.
    line: bool,
}

/// One layer: what is never cut by these policies.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Layer {
    /// Its name in the model.
    pub name: String,
    /// How long it runs.
    pub time: LayerTime,
    /// Bytes of its weights, held for as long as its tier runs it.
    pub weight_bytes: u64,
    /// Bytes that are needed while it runs, beside the weights: inputs, outputs, scratch, and what is kept for later layers.
    pub working_bytes: u64,
}

/// How long a layer runs, before the [`slowdown`](super::Tier::slowdown) of the tier.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum LayerTime {
    /// Milliseconds measured on each tier; nothing where it cannot run.
    Measured(Vec<Option<f64>>),
    /// Milliseconds on a reference machine; the slowdown of a tier makes it that tier's. A correction holds for all tiers.
    Reference(f64),
}

/// What one layer makes and others take. It crosses a link once, however many layers on the other side take it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Tensor {
    /// Who makes it.
    pub from: Producer,
    /// The layers that take it.
    pub to: Vec<usize>,
    /// The tier that wants it as a result.
    pub wanted_at: Option<usize>,
    /// Its size on the wire.
    pub bytes: u64,
}

/// Where a tensor comes from.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Producer {
    /// It is there already, on this tier: an input, or an activation that is still held.
    Held(usize),
    /// This layer makes it.
    Layer(usize),
}

impl Layer {
    /// A layer measured on every tier.
    pub fn measured(name: impl Into<String>, ms: &[f64], weight_bytes: u64, working_bytes: u64) -> Self {
        Self {
            name: name.into(),
            time: LayerTime::Measured(ms.iter().copied().map(Some).collect()),
            weight_bytes,
            working_bytes,
        }
    }
}

impl LayerGraph {
    /// Checks the parts and orders the layers: as given where that order works.
    ///
    /// # Errors
    ///
    /// No layer, an index that does not exist, a layer or tensor that is its own ancestor, a time that is negative or no number.
    pub fn new(layers: Vec<Layer>, tensors: Vec<Tensor>) -> Result<Self, GraphError> {
        if layers.is_empty() {
            return Err(GraphError::NoLayers);
        }
        for (index, layer) in layers.iter().enumerate() {
            layer.check(index)?;
        }
        for (index, tensor) in tensors.iter().enumerate() {
            let missing = tensor.layers().find(|layer| *layer >= layers.len());
            if let Some(layer) = missing {
                return Err(GraphError::NoSuchLayer { tensor: index, layer });
            }
        }
        let order = order(layers.len(), &tensors)?;
        let mut place = vec![0; order.len()];
        for (at, layer) in order.iter().enumerate() {
            place[*layer] = at;
        }
        let mut follows = vec![false; order.len()];
        for (from, to) in tensors.iter().flat_map(Tensor::edges) {
            follows[place[from]] |= place[to] == place[from] + 1;
        }
        let line = follows[..order.len() - 1].iter().all(|follows| *follows);
        Ok(Self {
            layers,
            tensors,
            order,
            line,
        })
    }

    /// A chain whose input and result are at tier 0. `output_bytes` has the size of what each layer hands on.
    ///
    /// # Errors
    ///
    /// As [`LayerGraph::new`], or the lengths differ.
    pub fn chain(layers: Vec<Layer>, input_bytes: u64, output_bytes: &[u64]) -> Result<Self, GraphError> {
        if layers.len() != output_bytes.len() {
            return Err(GraphError::Lengths {
                layers: layers.len(),
                outputs: output_bytes.len(),
            });
        }
        let last = layers.len().saturating_sub(1);
        let outputs = output_bytes.iter().enumerate().map(|(layer, bytes)| Tensor {
            from: Producer::Layer(layer),
            to: if layer == last { vec![] } else { vec![layer + 1] },
            wanted_at: (layer == last).then_some(0),
            bytes: *bytes,
        });
        let input = Tensor {
            from: Producer::Held(0),
            to: vec![0],
            wanted_at: None,
            bytes: input_bytes,
        };
        Self::new(layers, std::iter::once(input).chain(outputs).collect())
    }

    /// The layers, by index.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The tensors, by index.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The layers in an order in which they can run.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// Whether the layers can run in one order only, as in a chain (with or without skip connections): then every cut is a
    /// place in that order, and policies that look at places only miss nothing.
    pub const fn is_line(&self) -> bool {
        self.line
    }

    /// The same graph with the time of one layer on one tier multiplied. `usual` is the profile, a graph with the same layers.
    pub(crate) fn scaled(&self, usual: &Self, layer: usize, tier: usize, factor: f64) -> Self {
        let least = LEAST_SHARE * usual.layers[layer].ms(tier).unwrap_or_default();
        // Also what is no number becomes the least.
        let scaled = |ms: f64| (ms * factor).max(least).min(LONGEST_MS);
        let mut graph = self.clone();
        match &mut graph.layers[layer].time {
            LayerTime::Reference(ms) => *ms = scaled(*ms),
            LayerTime::Measured(times) => {
                if let Some(Some(ms)) = times.get_mut(tier) {
                    *ms = scaled(*ms);
                }
            }
        }
        graph
    }

    /// The same graph with the times of layers on these tiers moved toward those of another one with the same layers, by this share;
    /// nothing where they are the same. Times of a reference machine stay: they are no tier's.
    pub(crate) fn toward(
        &self,
        usual: &Self,
        share: f64,
        which: impl Fn(usize, usize) -> bool,
    ) -> Option<Self> {
        let mut moved: Option<Self> = None;
        for (layer, (now, then)) in self.layers.iter().zip(&usual.layers).enumerate() {
            let (LayerTime::Measured(now), LayerTime::Measured(then)) = (&now.time, &then.time) else {
                continue;
            };
            for (tier, times) in now.iter().zip(then).enumerate() {
                let (Some(now), Some(then)) = times else { continue };
                let ratio = then / now;
                if (ratio - 1.0).abs() >= SAME_TIME && which(tier, layer) {
                    let graph = moved.as_ref().unwrap_or(self);
                    moved = Some(graph.scaled(usual, layer, tier, ratio.powf(share)));
                }
            }
        }
        moved
    }

    /// The same graph with one tensor of another size.
    pub(crate) fn sized(&self, tensor: usize, bytes: u64) -> Self {
        let mut graph = self.clone();
        if let Some(tensor) = graph.tensors.get_mut(tensor) {
            tensor.bytes = bytes;
        }
        graph
    }

    /// The tiers at which inputs and held activations lie, each once, ascending.
    pub(crate) fn held_at(&self) -> Vec<usize> {
        let held = |tensor: &Tensor| match tensor.from {
            Producer::Held(tier) if tensor.is_used() => Some(tier),
            _ => None,
        };
        let mut tiers: Vec<usize> = self.tensors.iter().filter_map(held).collect();
        tiers.sort_unstable();
        tiers.dedup();
        tiers
    }
}

impl Layer {
    fn check(&self, layer: usize) -> Result<(), GraphError> {
        let sound = |ms: f64| ms.is_finite() && ms >= 0.0;
        let bad = match &self.time {
            LayerTime::Reference(ms) => Some(*ms).filter(|ms| !sound(*ms)),
            LayerTime::Measured(times) => times.iter().flatten().copied().find(|ms| !sound(*ms)),
        };
        match bad {
            Some(ms) => Err(GraphError::Time { layer, ms }),
            None => Ok(()),
        }
    }

    /// Milliseconds on this tier before its slowdown, nothing where it cannot run.
    pub(crate) fn ms(&self, tier: usize) -> Option<f64> {
        match &self.time {
            LayerTime::Reference(ms) => Some(*ms),
            LayerTime::Measured(times) => times.get(tier).copied().flatten(),
        }
    }
}

impl Tensor {
    /// Whether anybody needs it.
    pub(crate) fn is_used(&self) -> bool {
        !self.to.is_empty() || self.wanted_at.is_some()
    }

    /// From which layer to which it goes.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (usize, usize)> {
        let from = match self.from {
            Producer::Layer(layer) => Some(layer),
            Producer::Held(_) => None,
        };
        from.into_iter()
            .flat_map(|from| self.to.iter().map(move |to| (from, *to)))
    }

    fn layers(&self) -> impl Iterator<Item = usize> {
        let from = match self.from {
            Producer::Layer(layer) => Some(layer),
            Producer::Held(_) => None,
        };
        from.into_iter().chain(self.to.iter().copied())
    }
}

fn order(layers: usize, tensors: &[Tensor]) -> Result<Vec<usize>, GraphError> {
    let edges = || tensors.iter().flat_map(Tensor::edges);
    if edges().all(|(from, to)| from < to) {
        return Ok((0..layers).collect());
    }
    let mut graph = DiGraph::<(), (), usize>::with_capacity(layers, tensors.len());
    for _ in 0..layers {
        graph.add_node(());
    }
    for (from, to) in edges() {
        graph.add_edge(from.into(), to.into(), ());
    }
    let order = toposort(&graph, None).map_err(|cycle| GraphError::Cycle {
        layer: cycle.node_id().index(),
    })?;
    Ok(order.into_iter().map(|node| node.index()).collect())
}

/// A graph as it is written down, before it is checked.
#[derive(Deserialize, Serialize)]
struct Parts {
    layers: Vec<Layer>,
    tensors: Vec<Tensor>,
}

impl TryFrom<Parts> for LayerGraph {
    type Error = GraphError;

    fn try_from(parts: Parts) -> Result<Self, GraphError> {
        Self::new(parts.layers, parts.tensors)
    }
}

impl From<LayerGraph> for Parts {
    fn from(graph: LayerGraph) -> Self {
        Self {
            layers: graph.layers,
            tensors: graph.tensors,
        }
    }
}
