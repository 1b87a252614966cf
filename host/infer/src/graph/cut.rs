//! Any cut of the graph, and what lies between two cuts as a model of its own.

use super::shapes::write_info;
use super::{Graph, Supply};
use crate::TensorInfo;
use crate::outline::type_code;
use crate::wire::Writer;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Stages that are no cut.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CutError {
    /// Not one stage for each node or layer.
    #[error("{given} stages were given where {wanted} belong")]
    Length {
        /// How many were given.
        given: usize,
        /// How many nodes or layers there are.
        wanted: usize,
    },
    /// A node before one that it needs.
    #[error("`{node}` lies in stage {stage}, but takes `{tensor}`, which is made in stage {made}")]
    Backward {
        /// The node.
        node: String,
        /// Its stage.
        stage: usize,
        /// What it takes.
        tensor: String,
        /// The later stage.
        made: usize,
    },
    /// An edge that there is not.
    #[error("there is no edge {edge}: the graph has {edges}")]
    Edge {
        /// What was asked for.
        edge: usize,
        /// How many there are.
        edges: usize,
    },
    /// An output that there is not.
    #[error("the model has no output `{output}`; it has {outputs}")]
    Output {
        /// What was asked for.
        output: String,
        /// Those that there are.
        outputs: String,
    },
    /// An output that cannot answer in the place of another one.
    #[error("`{exit}` is no early exit for `{answer}`: {why}")]
    Exit {
        /// The output that should answer.
        exit: String,
        /// The one that it should stand for.
        answer: String,
        /// What is in the way.
        why: String,
    },
}

/// A part of a model as a model of its own: valid ONNX with typed inputs and outputs, the constants it needs and no others.
/// The same nodes give the same bytes, whatever the cut they come from.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// Its stage.
    pub stage: usize,
    /// Its nodes, among them the dequantisations that it does for itself.
    pub nodes: Vec<usize>,
    /// The edges it takes, in its order.
    pub takes: Vec<usize>,
    /// The edges it gives, in its order: those that a later stage takes, and outputs of the model.
    pub gives: Vec<usize>,
    /// What its inputs are.
    pub inputs: Vec<TensorInfo>,
    /// What its outputs are.
    pub outputs: Vec<TensorInfo>,
    /// The ONNX file.
    pub model: Bytes,
}

impl Graph {
    /// Cuts into stages: one for each node, none lower than that of a node it needs. A stage without nodes gives no fragment.
    /// A model of two stages is cut once; any set of nodes that holds all they need may be stage 0.
    ///
    /// Run in order, each on what the model was given and what those before it gave, the fragments give what the model gives.
    /// Every constant that two of them need is in both, and so is every dequantisation: 8-bit tensors cross, not what is made of
    /// them.
    ///
    /// # Errors
    /// [`CutError::Length`], [`CutError::Backward`].
    pub fn split(&self, stages: &[usize]) -> Result<Vec<Fragment>, CutError> {
        Ok(self.fragments(stages)?.collect())
    }

    /// The same, each written when it is asked for: together they are as large as the model.
    pub(crate) fn fragments(&self, stages: &[usize]) -> Result<impl Iterator<Item = Fragment>, CutError> {
        let parts = self.parts(stages)?;
        let crossing: BTreeSet<usize> = parts.iter().flat_map(|part| &part.takes).copied().collect();
        Ok(parts.into_iter().map(move |part| {
            let made = part
                .own
                .iter()
                .flat_map(|node| &self.nodes[*node].outputs)
                .copied();
            let gives = made
                .filter(|edge| crossing.contains(edge) || self.edges[*edge].is_output)
                .collect();
            self.write(part, gives)
        }))
    }

    /// The whole model as one fragment: what no output needs is left out.
    pub fn whole(&self) -> Fragment {
        let part = self.part(0, (0..self.nodes.len()).collect());
        self.write(
            part,
            self.outputs
                .iter()
                .copied()
                .filter(|edge| self.edges[*edge].from.is_some())
                .collect(),
        )
    }

    /// The edges that cross each border between stages: `crossing[i]` leads from a stage up to `i` to one after it. Inputs
    /// start before stage 0 and are listed where a later stage takes them.
    ///
    /// # Errors
    /// Those of [`Graph::split`].
    pub fn crossing(&self, stages: &[usize]) -> Result<Vec<Vec<usize>>, CutError> {
        let parts = self.parts(stages)?;
        let borders = stages.iter().max().copied().unwrap_or_default();
        let mut last: BTreeMap<usize, usize> = BTreeMap::new();
        for part in &parts {
            // Stages ascend.
            last.extend(part.takes.iter().map(|edge| (*edge, part.stage)));
        }
        let mut crossing = vec![Vec::new(); borders];
        for (edge, to) in last {
            let from = self.edges[edge].from.map_or(0, |node| stages[node]);
            crossing[from..to].iter_mut().for_each(|border| border.push(edge));
        }
        Ok(crossing)
    }

    /// The model with these edges as outputs, instead of its own, and the nodes they need.
    ///
    /// # Errors
    /// [`CutError::Edge`].
    pub fn tapped(&self, edges: &[usize]) -> Result<Fragment, CutError> {
        let nodes = self.needed(edges)?;
        let gives: BTreeSet<usize> = edges
            .iter()
            .copied()
            .filter(|edge| self.edges[*edge].from.is_some())
            .collect();
        Ok(self.write(self.part(0, nodes), gives))
    }

    /// The nodes that these edges need.
    ///
    /// # Errors
    /// [`CutError::Edge`].
    pub(crate) fn needed(&self, edges: &[usize]) -> Result<BTreeSet<usize>, CutError> {
        let mut needed = vec![false; self.nodes.len()];
        for edge in edges {
            let edge = self.edges.get(*edge).ok_or(CutError::Edge {
                edge: *edge,
                edges: self.edges.len(),
            })?;
            edge.from.into_iter().for_each(|node| needed[node] = true);
        }
        for at in (0..self.nodes.len()).rev() {
            if needed[at] {
                for edge in &self.nodes[at].inputs {
                    self.edges[*edge]
                        .from
                        .into_iter()
                        .for_each(|node| needed[node] = true);
                }
            }
        }
        Ok((0..needed.len()).filter(|at| needed[*at]).collect())
    }

    fn check(&self, stages: &[usize]) -> Result<(), CutError> {
        if stages.len() != self.nodes.len() {
            return Err(CutError::Length {
                given: stages.len(),
                wanted: self.nodes.len(),
            });
        }
        for edge in &self.edges {
            let Some(from) = edge.from else { continue };
            if let Some(node) = edge.to.iter().find(|node| stages[**node] < stages[from]) {
                return Err(CutError::Backward {
                    node: self.nodes[*node].name.clone(),
                    stage: stages[*node],
                    tensor: edge.info.name.clone(),
                    made: stages[from],
                });
            }
        }
        Ok(())
    }

    /// The nodes and inputs of each stage that has any.
    fn parts(&self, stages: &[usize]) -> Result<Vec<Part>, CutError> {
        self.check(stages)?;
        let mut of_stage: Vec<(usize, usize)> = stages.iter().copied().zip(0..).collect();
        // Stable: nodes keep their order within a stage.
        of_stage.sort_by_key(|(stage, _)| *stage);
        let parts = of_stage
            .chunk_by(|a, b| a.0 == b.0)
            .map(|nodes| self.part(nodes[0].0, nodes.iter().map(|(_, node)| *node).collect()));
        Ok(parts.filter(|part| !part.own.is_empty()).collect())
    }

    /// A stage of these nodes. Dequantisation is done again wherever its result is used, so that the 8-bit tensor crosses and
    /// not one four times as large; where nothing uses it, it is left out.
    pub(super) fn part(&self, stage: usize, mut own: BTreeSet<usize>) -> Part {
        let used: BTreeSet<usize> = own
            .iter()
            .flat_map(|node| &self.nodes[*node].inputs)
            .copied()
            .collect();
        own.retain(|node| {
            let mut made = self.nodes[*node].outputs.iter();
            !self.is_dequantization(*node)
                || made.any(|edge| used.contains(edge) || self.edges[*edge].is_output)
        });
        let again = used.iter().filter_map(|edge| self.edges[*edge].from);
        let again = again.filter(|node| !own.contains(node) && self.is_dequantization(*node));
        let nodes: BTreeSet<usize> = own.iter().copied().chain(again).collect();
        let made: BTreeSet<usize> = nodes
            .iter()
            .flat_map(|node| &self.nodes[*node].outputs)
            .copied()
            .collect();
        let taken = nodes.iter().flat_map(|node| &self.nodes[*node].inputs).copied();
        Part {
            stage,
            takes: taken.filter(|edge| !made.contains(edge)).collect(),
            nodes: nodes.into_iter().collect(),
            own,
        }
    }

    /// Whether a node makes nothing but a wider copy of the one tensor that it takes.
    pub(super) fn is_dequantization(&self, node: usize) -> bool {
        let node = &self.nodes[node];
        node.op == "DequantizeLinear" && node.inputs.len() == 1
    }

    /// The edge that crosses a cut where this one would.
    pub(super) fn carried(&self, edge: usize) -> usize {
        match self.edges[edge].from {
            Some(node) if self.is_dequantization(node) => self.nodes[node].inputs[0],
            _ => edge,
        }
    }

    fn write(&self, part: Part, gives: BTreeSet<usize>) -> Fragment {
        let infos = |side: &BTreeSet<usize>| -> Vec<TensorInfo> {
            side.iter().map(|edge| self.edges[*edge].info.clone()).collect()
        };
        let (inputs, outputs) = (infos(&part.takes), infos(&gives));
        Fragment {
            stage: part.stage,
            model: self.file(&part.nodes, None, &inputs, &outputs),
            nodes: part.nodes,
            inputs,
            outputs,
            takes: part.takes.into_iter().collect(),
            gives: gives.into_iter().collect(),
        }
    }

    /// The ONNX file of these nodes, after which one more comes where there is one.
    pub(super) fn file(
        &self,
        nodes: &[usize],
        last: Option<Writer>,
        inputs: &[TensorInfo],
        outputs: &[TensorInfo],
    ) -> Bytes {
        let supplies = self.supplies_of(nodes.iter().copied());
        let mut graph = Writer::default();
        for at in &supplies.nodes {
            graph.bytes(1, &self.constant_nodes[*at].body);
        }
        for at in nodes {
            graph.bytes(1, &self.nodes[*at].body);
        }
        if let Some(last) = last {
            graph.bytes(1, last.0);
        }
        graph.bytes(2, if self.name.is_empty() { "graph" } else { &self.name });
        for at in &supplies.tensors {
            graph.bytes(5, &self.tensors[*at].body);
        }
        for (field, side) in [(11, inputs), (12, outputs)] {
            for info in side {
                let dims = info.dims.iter().flatten().cloned();
                write_info(&mut graph, field, &info.name, type_code(info.element), dims);
            }
        }
        let mut model = Writer(self.header.clone());
        model.bytes(7, graph.0);
        model.0.into()
    }

    /// The constants that these nodes need.
    pub(super) fn supplies_of(&self, nodes: impl IntoIterator<Item = usize>) -> Supplies {
        let mut supplies = Supplies::default();
        let mut open: Vec<Supply> = nodes
            .into_iter()
            .flat_map(|node| self.nodes[node].constants.iter().copied())
            .collect();
        while let Some(supply) = open.pop() {
            match supply {
                Supply::Tensor(at) => _ = supplies.tensors.insert(at),
                Supply::Node(at) => {
                    if supplies.nodes.insert(at) {
                        open.extend_from_slice(&self.constant_nodes[at].uses);
                    }
                }
            }
        }
        supplies
    }
}

/// A stage before it is written.
pub(super) struct Part {
    stage: usize,
    /// Its own nodes.
    own: BTreeSet<usize>,
    /// These and the dequantisations that it does again.
    pub(super) nodes: Vec<usize>,
    takes: BTreeSet<usize>,
}

/// Constants, each once; a node comes after those it uses.
#[derive(Default)]
pub(super) struct Supplies {
    tensors: BTreeSet<usize>,
    nodes: BTreeSet<usize>,
}

impl Supplies {
    pub(super) fn count(&self) -> u64 {
        (self.tensors.len() + self.nodes.len()) as u64
    }

    pub(super) fn parameters(&self, graph: &Graph) -> u64 {
        let tensors = self.tensors.iter().map(|at| graph.tensors[*at].parameters);
        let nodes = self.nodes.iter().map(|at| graph.constant_nodes[*at].parameters);
        tensors.chain(nodes).fold(0, u64::saturating_add)
    }

    pub(super) fn bytes(&self, graph: &Graph) -> u64 {
        let tensors = self.tensors.iter().map(|at| graph.tensors[*at].bytes);
        let nodes = self.nodes.iter().map(|at| graph.constant_nodes[*at].bytes);
        tensors.chain(nodes).fold(0, u64::saturating_add)
    }
}
