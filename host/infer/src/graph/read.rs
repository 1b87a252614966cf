//! From the bytes of a file to nodes and edges.

use super::shapes::{Fact, Known};
use super::{ConstantNode, ConstantTensor, Edge, Graph, Node, Scaled, Supply, cost};
use crate::outline::Outline;
use crate::screen::{bits_of, only, printable};
use crate::wire::{Fields, Value, Writer};
use crate::{Dim, InferError, ModelLimits};
use bytes::Bytes;
use karman_types::Digest;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

/// The oldest operators whose meaning is the same for both back-ends.
const LEAST_OPERATOR_SET: u64 = 13;

/// Operators that draw their output: two copies of one would draw two.
const RANDOM: [&str; 6] = [
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
];

/// The sizes of open dimensions other than the batch, by name.
pub type SizeOf<'a> = &'a [(&'a str, u32)];

/// A node as it stands in the file.
pub(super) struct RawNode<'a> {
    pub(super) body: &'a [u8],
    pub(super) name: &'a str,
    pub(super) op: &'a str,
    /// An empty one was left out.
    pub(super) inputs: Vec<&'a str>,
    pub(super) outputs: Vec<&'a str>,
    /// Names that its subgraphs take from around it.
    pub(super) captures: Vec<&'a str>,
}

impl<'a> RawNode<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, InferError> {
        let (mut name, mut op, mut inputs, mut outputs) = ("", "", Vec::new(), Vec::new());
        let mut captures = Vec::new();
        for field in Fields(body) {
            match field? {
                (1, input) => inputs.push(input.text()?),
                (2, output) => outputs.push(output.text()?),
                (3, text) => name = text.text()?,
                (4, text) => op = text.text()?,
                (5, attribute) => {
                    for field in Fields(attribute.bytes()?) {
                        if let (6 | 11, graph) = field? {
                            captures.extend(free_names(graph.bytes()?)?);
                        }
                    }
                }
                _ => {}
            }
        }
        let name = match name {
            "" => outputs.iter().find(|name| !name.is_empty()).unwrap_or(&op),
            name => name,
        };
        Ok(Self {
            body,
            name,
            op,
            inputs,
            outputs,
            captures,
        })
    }

    pub(super) fn takes(&self) -> impl Iterator<Item = &'a str> {
        self.inputs
            .iter()
            .chain(&self.captures)
            .copied()
            .filter(|name| !name.is_empty())
    }

    pub(super) fn makes(&self) -> impl Iterator<Item = &'a str> {
        self.outputs.iter().copied().filter(|name| !name.is_empty())
    }
}

/// The names that a subgraph uses and does not make. The screen has bounded how deep these lie in each other.
fn free_names(graph: &[u8]) -> Result<Vec<&str>, InferError> {
    let (mut used, mut made) = (Vec::new(), HashSet::new());
    for field in Fields(graph) {
        match field? {
            (1, node) => {
                let node = RawNode::read(node.bytes()?)?;
                used.extend(node.takes());
                made.extend(node.makes());
            }
            (5, tensor) => made.extend(text_of(tensor.bytes()?, 8)?),
            (11, input) => made.extend(text_of(input.bytes()?, 1)?),
            (12, output) => used.extend(text_of(output.bytes()?, 1)?),
            _ => {}
        }
    }
    used.retain(|name| !made.contains(name));
    Ok(used)
}

fn text_of(message: &[u8], field: u32) -> Result<Option<&str>, InferError> {
    only(message, field)?
        .map(|name| Value::Bytes(name).text())
        .transpose()
}

/// A constant tensor as it stands in the file.
pub(super) struct RawTensor<'a> {
    pub(super) body: &'a [u8],
    pub(super) name: &'a str,
    pub(super) code: u64,
    pub(super) dims: Vec<u32>,
}

impl<'a> RawTensor<'a> {
    fn read(body: &'a [u8]) -> Result<Self, InferError> {
        let (mut name, mut code, mut dims) = ("", 0, Vec::new());
        for field in Fields(body) {
            match field? {
                (1, value) => dims.extend(value.varints()?),
                (2, value) => code = value.varint()?,
                (8, value) => name = value.text()?,
                _ => {}
            }
        }
        let dims = dims.into_iter().map(u32::try_from).collect::<Result<_, _>>();
        let dims = dims.map_err(|_| {
            InferError::malformed(format!("a dimension of `{}` is too large", printable(name)))
        })?;
        Ok(Self {
            body,
            name,
            code,
            dims,
        })
    }

    pub(super) fn elements(&self) -> u64 {
        // The screen has multiplied them in 64 bits.
        self.dims.iter().map(|dim| u64::from(*dim)).product()
    }

    fn bytes(&self) -> u64 {
        (self.elements() * bits_of(self.code).unwrap_or_default()).div_ceil(8)
    }

    fn parameters(&self) -> u64 {
        counted(self.code, self.dims.len(), self.elements())
    }
}

/// Single values and 64-bit whole numbers are settings of operators, not weights.
fn counted(code: u64, rank: usize, elements: u64) -> u64 {
    match code == 7 || rank == 0 {
        true => 0,
        false => elements,
    }
}

/// What stands in a file, not yet connected.
pub(super) struct Raw<'a> {
    pub(super) nodes: Vec<RawNode<'a>>,
    pub(super) tensors: Vec<RawTensor<'a>>,
    /// What the file says of the types and sizes of its tensors.
    pub(super) declared: Vec<&'a [u8]>,
    name: &'a str,
    operator_set: u64,
    pub(super) header: Vec<u8>,
}

impl<'a> Raw<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, InferError> {
        let (mut header, mut operator_set) = (Writer::default(), 0);
        for field in Fields(bytes) {
            match field? {
                (1, version) => _ = header.number(1, version.varint()? as i64),
                (8, set) => {
                    let set = set.bytes()?;
                    header.bytes(8, set);
                    if matches!(text_of(set, 1)?.unwrap_or_default(), "" | "ai.onnx") {
                        operator_set = version_of(set)?;
                    }
                }
                (25, function) => _ = header.bytes(25, function.bytes()?),
                _ => {}
            }
        }
        let graph = only(bytes, 7)?.unwrap_or_default();
        let mut raw = Self {
            nodes: Vec::new(),
            tensors: Vec::new(),
            declared: Vec::new(),
            name: text_of(graph, 2)?.unwrap_or_default(),
            operator_set,
            header: header.0,
        };
        for field in Fields(graph) {
            match field? {
                (1, node) => raw.nodes.push(RawNode::read(node.bytes()?)?),
                (5, tensor) => raw.tensors.push(RawTensor::read(tensor.bytes()?)?),
                (12 | 13, info) => raw.declared.push(info.bytes()?),
                _ => {}
            }
        }
        match raw.operator_set {
            LEAST_OPERATOR_SET.. => Ok(raw),
            found => Err(InferError::OperatorSet {
                found,
                least: LEAST_OPERATOR_SET,
            }),
        }
    }
}

fn version_of(set: &[u8]) -> Result<u64, InferError> {
    for field in Fields(set) {
        if let (2, version) = field? {
            return version.varint();
        }
    }
    Ok(0)
}

/// Where a name comes from.
#[derive(Clone, Copy)]
enum Source {
    Input,
    Constant,
    Node(usize),
}

impl Graph {
    /// Reads a model whose only open dimension is the batch: the first of its inputs.
    ///
    /// # Errors
    /// What loading refuses ([`InferError::Malformed`], [`InferError::Limit`], [`InferError::ExternalData`]), a name that
    /// nothing or two things make, a cycle, [`InferError::OperatorSet`], [`InferError::OpenDimension`], and
    /// [`InferError::Rejected`] when tract cannot infer the shapes.
    pub fn read(bytes: impl Into<Bytes>, limits: &ModelLimits) -> Result<Self, InferError> {
        Self::read_sized(bytes, limits, &[])
    }

    /// Reads a model with these sizes for further open dimensions; its fragments fix them.
    ///
    /// # Errors
    /// Those of [`Graph::read`].
    pub fn read_sized(
        bytes: impl Into<Bytes>,
        limits: &ModelLimits,
        sizes: SizeOf<'_>,
    ) -> Result<Self, InferError> {
        let file = bytes.into();
        let outline = Outline::read(&file, limits)?;
        let raw = Raw::read(&file)?;
        let names = Names::of(&raw, &outline)?;
        let order = order(&raw, &names)?;
        let live = live(&raw, &outline, &names, &order)?;
        let constant = constant(&raw, &names, &live);
        let known = Known::infer(&raw, &outline, &live, limits, sizes)?;
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

struct Names<'a>(HashMap<&'a str, Source>);

impl<'a> Names<'a> {
    fn of(raw: &Raw<'a>, outline: &'a Outline) -> Result<Self, InferError> {
        let inputs = outline
            .inputs
            .iter()
            .map(|info| (info.name.as_str(), Source::Input));
        let tensors = raw.tensors.iter().map(|tensor| (tensor.name, Source::Constant));
        let made = raw
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(at, node)| node.makes().map(move |name| (name, Source::Node(at))));
        let mut names = HashMap::new();
        for (name, source) in inputs.chain(tensors).chain(made) {
            if names.insert(name, source).is_some() {
                return Err(InferError::malformed(format!(
                    "`{}` is made twice",
                    printable(name)
                )));
            }
        }
        Ok(Self(names))
    }

    fn get(&self, name: &str, user: &str) -> Result<Source, InferError> {
        self.0.get(name).copied().ok_or_else(|| {
            InferError::malformed(format!(
                "`{}` takes `{}`, which nothing makes",
                printable(user),
                printable(name)
            ))
        })
    }

    /// The nodes that this one waits for.
    fn before(&self, node: &RawNode<'a>) -> Result<Vec<usize>, InferError> {
        let mut before = Vec::new();
        for name in node.takes() {
            if let Source::Node(at) = self.get(name, node.name)? {
                before.push(at);
            }
        }
        before.sort_unstable();
        before.dedup();
        Ok(before)
    }
}

/// The nodes in an order in which each comes after all that it needs; as they stand in the file where that is one.
fn order(raw: &Raw<'_>, names: &Names<'_>) -> Result<Vec<usize>, InferError> {
    let mut waiting = vec![0usize; raw.nodes.len()];
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); raw.nodes.len()];
    for (at, node) in raw.nodes.iter().enumerate() {
        for before in names.before(node)? {
            waiting[at] += 1;
            after[before].push(at);
        }
    }
    let mut ready: BinaryHeap<_> = (0..raw.nodes.len())
        .filter(|at| waiting[*at] == 0)
        .map(Reverse)
        .collect();
    let mut order = Vec::with_capacity(raw.nodes.len());
    while let Some(Reverse(at)) = ready.pop() {
        order.push(at);
        for next in &after[at] {
            waiting[*next] -= 1;
            if waiting[*next] == 0 {
                ready.push(Reverse(*next));
            }
        }
    }
    match waiting.iter().position(|count| *count > 0) {
        None => Ok(order),
        Some(at) => Err(InferError::malformed(format!(
            "`{}` lies on a cycle, or after one",
            printable(raw.nodes[at].name)
        ))),
    }
}

/// Those of the ordered nodes that an output needs.
fn live(
    raw: &Raw<'_>,
    outline: &Outline,
    names: &Names<'_>,
    order: &[usize],
) -> Result<Vec<usize>, InferError> {
    let mut needed = vec![false; raw.nodes.len()];
    for output in &outline.outputs {
        if let Source::Node(at) = names.get(&output.name, "the model")? {
            needed[at] = true;
        }
    }
    for at in order.iter().rev() {
        if needed[*at] {
            for before in names.before(&raw.nodes[*at])? {
                needed[before] = true;
            }
        }
    }
    Ok(order.iter().copied().filter(|at| needed[*at]).collect())
}

/// For each node whether it depends on no input.
fn constant(raw: &Raw<'_>, names: &Names<'_>, order: &[usize]) -> Vec<bool> {
    let mut constant = vec![false; raw.nodes.len()];
    for at in order {
        let node = &raw.nodes[*at];
        constant[*at] = !RANDOM.contains(&node.op)
            && node.takes().all(|name| match names.0.get(name) {
                Some(Source::Node(before)) => constant[*before],
                Some(Source::Constant) => true,
                Some(Source::Input) | None => false,
            });
    }
    constant
}

/// Builds the graph node by node, in order.
struct Connect<'a> {
    graph: Graph,
    raw: &'a Raw<'a>,
    known: &'a Known<'a>,
    edges: HashMap<&'a str, usize>,
    constants: HashMap<&'a str, Supply>,
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
        let (mut parameters, mut bytes) = (0, 0);
        for name in node.makes() {
            self.constants
                .insert(name, Supply::Node(self.graph.constant_nodes.len()));
            if uses.is_empty()
                && let Ok(fact) = self.known.get(name)
            {
                let elements = fact.elements().at(1);
                let code = crate::outline::type_code(fact.element) as u64;
                parameters += counted(code, fact.dims.len(), elements);
                bytes += elements * fact.element.size() as u64;
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
