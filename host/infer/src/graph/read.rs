//! From the bytes of a file to nodes and edges.

use super::order::{Names, constant, live, order};
use super::raw::{Raw, RawNode, counted};
use super::shapes::{Fact, Known};
use super::{ConstantNode, ConstantTensor, Edge, Graph, Node, Scaled, Supply, cost};
use crate::outline::Outline;
use crate::screen::printable;
use crate::{Dim, InferError, ModelLimits};
use bytes::Bytes;
use karman_types::Digest;
use std::collections::{HashMap, HashSet};

/// Constants that are counted for each message that a file may have. Those that are made of others without end would else take a time that
/// grows with the square of the file.
const MOST_LOOKS: u64 = 20;

impl Graph {
    /// Reads a model whose only open dimension is the batch: the first of its inputs.
    ///
    /// # Errors
    /// What loading refuses ([`InferError::Malformed`], [`InferError::Limit`], [`InferError::ExternalData`]), a name that
    /// nothing or two things make, a cycle, [`InferError::OperatorSet`], [`InferError::OpenDimension`], and
    /// [`InferError::Rejected`] when tract cannot infer the shapes.
    pub fn read(bytes: impl Into<Bytes>, limits: &ModelLimits) -> Result<Self, InferError> {
        let file = bytes.into();
        let outline = Outline::read(&file, limits)?;
        let raw = Raw::read(&file)?;
        let names = Names::of(&raw, &outline)?;
        let order = order(&raw, &names)?;
        let live = live(&raw, &outline, &names, &order)?;
        let constant = constant(&raw, &names, &live);
        let known = Known::infer(&raw, &outline, &live, limits)?.even();
        let mut graph = Self {
            digest: Digest::of(&file),
            name: raw.name.to_owned(),
            operator_set: raw.operator_set,
            batch: known.batch.clone(),
            nodes: Vec::new(),
            edges: Vec::new(),
            inputs: (0..outline.inputs.len()).collect(),
            outputs: Vec::new(),
            tensors: Vec::new(),
            constant_nodes: Vec::new(),
            header: raw.header.clone(),
        };
        graph.tensors = raw
            .tensors
            .iter()
            .map(|tensor| ConstantTensor {
                name: tensor.name.to_owned(),
                body: file.slice_ref(tensor.body),
                parameters: tensor.parameters(),
                bytes: tensor.bytes(),
            })
            .collect();
        let mut connect = Connect {
            graph,
            raw: &raw,
            known: &known,
            edges: HashMap::new(),
            constants: HashMap::new(),
            looks: 0,
            most_looks: MOST_LOOKS.saturating_mul(limits.entries),
        };
        for input in &outline.inputs {
            connect.edge(&input.name, None)?;
        }
        for (at, tensor) in raw.tensors.iter().enumerate() {
            connect.constants.insert(tensor.name, Supply::Tensor(at));
        }
        for at in live {
            match constant[at] {
                true => connect.constant(at, &file)?,
                false => connect.node(at, &file)?,
            }
        }
        connect.finish(&outline)
    }
}

/// Builds the graph node by node, in order.
struct Connect<'a> {
    graph: Graph,
    raw: &'a Raw<'a>,
    known: &'a Known<'a>,
    edges: HashMap<&'a str, usize>,
    constants: HashMap<&'a str, Supply>,
    /// Constants that were counted, each at every node that needs it.
    looks: u64,
    most_looks: u64,
}

impl<'a> Connect<'a> {
    fn edge(&mut self, name: &'a str, from: Option<usize>) -> Result<usize, InferError> {
        let Fact { element, dims, .. } = self.known.get(name)?;
        let info = crate::TensorInfo {
            name: name.to_owned(),
            element: *element,
            dims: Some(dims.clone()),
        };
        let at = self.graph.edges.len();
        self.graph.edges.push(Edge {
            info,
            elements: self.known.get(name)?.elements(),
            from,
            to: Vec::new(),
            is_output: false,
        });
        self.edges.insert(name, at);
        Ok(at)
    }

    /// The edges and the constants that a node takes, each once.
    fn taken(&self, node: &RawNode<'a>) -> (Vec<usize>, Vec<Supply>) {
        let (mut edges, mut supplies, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        for name in node.takes().filter(|name| seen.insert(*name)) {
            match (self.edges.get(name), self.constants.get(name)) {
                (Some(edge), _) => edges.push(*edge),
                (None, Some(supply)) => supplies.push(*supply),
                (None, None) => {}
            }
        }
        (edges, supplies)
    }

    fn constant(&mut self, at: usize, file: &Bytes) -> Result<(), InferError> {
        let node = &self.raw.nodes[at];
        let (_, uses) = self.taken(node);
        let (mut parameters, mut bytes) = (0u64, 0u64);
        for name in node.makes() {
            self.constants
                .insert(name, Supply::Node(self.graph.constant_nodes.len()));
            if uses.is_empty()
                && let Ok(fact) = self.known.get(name)
            {
                let elements = fact.elements().at(1);
                let code = crate::outline::type_code(fact.element) as u64;
                // The file may have said any size.
                parameters = parameters.saturating_add(counted(code, fact.dims.len(), elements));
                bytes = bytes.saturating_add(elements.saturating_mul(fact.element.size() as u64));
            }
        }
        self.graph.constant_nodes.push(ConstantNode {
            body: file.slice_ref(node.body),
            uses,
            parameters,
            bytes,
        });
        Ok(())
    }

    fn node(&mut self, at: usize, file: &Bytes) -> Result<(), InferError> {
        let raw = &self.raw.nodes[at];
        let here = self.graph.nodes.len();
        let (inputs, constants) = self.taken(raw);
        for edge in &inputs {
            self.graph.edges[*edge].to.push(here);
        }
        let outputs = raw
            .makes()
            .filter(|name| self.known.is_used(name))
            .map(|name| self.edge(name, Some(here)))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| match error {
                InferError::Rejected { backend, reason } => InferError::Rejected {
                    backend,
                    reason: format!("`{}` ({}): {reason}", printable(raw.name), printable(raw.op)),
                },
                other => other,
            })?;
        self.graph.nodes.push(Node {
            name: printable(raw.name),
            op: printable(raw.op),
            class: cost::class(raw, self.known),
            inputs,
            outputs,
            parameters: 0,
            parameter_bytes: 0,
            macs: cost::macs(raw, self.known),
            body: file.slice_ref(raw.body),
            constants,
        });
        let used = self.graph.supplies_of(here..here + 1);
        self.looks = self.looks.saturating_add(used.count());
        InferError::over("entries", self.most_looks, self.looks, || {
            "the number of constants, each counted at every node that needs it,".into()
        })?;
        let (parameters, bytes) = (used.parameters(&self.graph), used.bytes(&self.graph));
        let node = &mut self.graph.nodes[here];
        (node.parameters, node.parameter_bytes) = (parameters, bytes);
        Ok(())
    }

    fn finish(mut self, outline: &Outline) -> Result<Graph, InferError> {
        for output in &outline.outputs {
            let edge = *self.edges.get(output.name.as_str()).ok_or_else(|| {
                InferError::malformed(format!(
                    "its output `{}` depends on no input",
                    printable(&output.name)
                ))
            })?;
            self.graph.edges[edge].is_output = true;
            self.graph.outputs.push(edge);
        }
        match self.graph.nodes.is_empty() {
            true => Err(InferError::malformed("no node of it depends on an input")),
            false => Ok(self.graph),
        }
    }
}

impl Fact {
    pub(super) fn elements(&self) -> Scaled {
        let product = |dims: &[u32]| dims.iter().fold(1u64, |n, dim| n.saturating_mul(u64::from(*dim)));
        Scaled::through(product(&self.one), product(&self.two))
    }
}

/// The open dimension that is the batch: the first of the first input.
pub(super) fn batch_of(outline: &Outline) -> Option<&str> {
    match outline.inputs.first()?.dims.as_ref()?.first()? {
        Dim::Any(name) => Some(name),
        Dim::Fixed(_) => None,
    }
}
