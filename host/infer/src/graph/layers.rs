//! Nodes that belong together, and the places between them where a cut is worth a thought.

use super::{CutError, Edge, Graph, OpClass, Scaled};
use karman_tensor::ElementType;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Nodes between which a cut makes no sense: an operation with the activation that follows it, or with its quantisation.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The name of the node that it is about.
    pub name: String,
    /// Its operators, joined: `Conv+Relu`.
    pub op: String,
    /// The class of the node that it is about.
    pub class: OpClass,
    /// Its nodes, in order.
    pub nodes: Vec<usize>,
    /// See [`Node::parameters`](super::Node::parameters).
    pub parameters: u64,
    /// See [`Node::parameter_bytes`](super::Node::parameter_bytes).
    pub parameter_bytes: u64,
    /// See [`Node::macs`](super::Node::macs).
    pub macs: Scaled,
}

/// An edge of the graph that leads from one layer to others.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LayerEdge {
    /// The edge of the graph.
    pub edge: usize,
    /// The layer that makes it; `None` for an input.
    pub from: Option<usize>,
    /// The layers that take it, each once, in order.
    pub to: Vec<usize>,
}

/// A place between two layers. What lies before it is the first `after` layers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CutPoint {
    /// The number of layers before it: 0 is before all of them, where the inputs cross.
    pub after: usize,
    /// The tensors that cross it: [`Graph::crossing`] says which.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: Scaled,
}

/// What crosses the place where one is, on the way from layer to layer.
#[derive(Default)]
struct Crossing {
    tensors: usize,
    /// How many of them are shapes.
    shapes: usize,
    /// Their bytes, summed so wide that what has crossed can be taken off again.
    fixed: u128,
    per_item: u128,
}

impl Crossing {
    fn begin(&mut self, edge: &Edge) {
        let bytes = edge.bytes();
        self.tensors += 1;
        self.shapes += usize::from(is_shape(edge));
        self.fixed += u128::from(bytes.fixed);
        self.per_item += u128::from(bytes.per_item);
    }

    fn end(&mut self, edge: &Edge) {
        let bytes = edge.bytes();
        self.tensors -= 1;
        self.shapes -= usize::from(is_shape(edge));
        self.fixed -= u128::from(bytes.fixed);
        self.per_item -= u128::from(bytes.per_item);
    }

    fn bytes(&self) -> Scaled {
        let narrow = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
        Scaled {
            fixed: narrow(self.fixed),
            per_item: narrow(self.per_item),
        }
    }
}

fn is_shape(edge: &Edge) -> bool {
    edge.info.element == ElementType::I64 && edge.from.is_some()
}

/// A graph of layers, in order: each comes after all that it needs. A chain is a graph where each takes what the one before it
/// makes, but every graph may be cut like one, at [`Layers::cut_points`].
#[derive(Clone, Debug)]
pub struct Layers {
    /// The layers.
    pub layers: Vec<Layer>,
    /// What leads from one to another, and the outputs of the model.
    pub edges: Vec<LayerEdge>,
    /// For each node its layer.
    pub of_node: Vec<usize>,
}

impl Graph {
    /// Joins nodes to layers. A node that only reworks the single tensor it takes (an activation, a normalisation, a reshape)
    /// joins the node that makes it when nobody else takes that; dequantisation joins the node that uses it, or the one whose
    /// result it widens where several use it.
    pub fn layers(&self) -> Layers {
        let mut group: Vec<usize> = (0..self.nodes.len()).collect();
        for (at, node) in self.nodes.iter().enumerate() {
            let only_input = match node.inputs[..] {
                [edge] => self.edges[edge].from.map(|maker| (maker, &self.edges[edge])),
                _ => None,
            };
            let reworks = matches!(
                node.class,
                OpClass::Activation | OpClass::Normalization | OpClass::Movement | OpClass::Quantization
            ) && !self.is_dequantization(at);
            if let Some((maker, edge)) = only_input
                && reworks
                && edge.to == [at]
                && !edge.is_output
                && self.nodes[maker].outputs.len() == 1
            {
                group[at] = group[maker];
            }
        }
        // From the back, so that a dequantisation finds the layer of its user settled.
        for at in (0..self.nodes.len()).rev() {
            if !self.is_dequantization(at) {
                continue;
            }
            let maker = self.edges[self.nodes[at].inputs[0]].from;
            let maker = maker.map(|maker| root(&mut group, maker));
            if let Some(layer) = self.only_user(at, &mut group).or(maker) {
                group[at] = layer;
            }
        }
        let group: Vec<usize> = (0..self.nodes.len()).map(|at| root(&mut group, at)).collect();
        self.ordered(&group)
    }

    /// The group that all users of a node belong to, if it is not its own.
    fn only_user(&self, node: usize, group: &mut [usize]) -> Option<usize> {
        let mut only = None;
        for edge in &self.nodes[node].outputs {
            let edge = &self.edges[*edge];
            for user in &edge.to {
                let user = root(group, *user);
                if edge.is_output || user == node || only.is_some_and(|only| only != user) {
                    return None;
                }
                only = Some(user);
            }
        }
        only
    }

    /// The groups as layers, in an order that the graph allows.
    fn ordered(&self, group: &[usize]) -> Layers {
        let groups = group.len();
        let mut waiting = vec![0usize; groups];
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); groups];
        for edge in &self.edges {
            let Some(from) = edge.from.map(|node| group[node]) else {
                continue;
            };
            for to in edge.to.iter().map(|node| group[*node]).filter(|to| *to != from) {
                waiting[to] += 1;
                after[from].push(to);
            }
        }
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); groups];
        for (node, of) in group.iter().enumerate() {
            members[*of].push(node);
        }
        let mut ready: BinaryHeap<_> = (0..groups)
            .filter(|of| waiting[*of] == 0 && !members[*of].is_empty())
            .map(|of| Reverse((members[of][0], of)))
            .collect();
        let (mut layers, mut of_node) = (Vec::new(), vec![0; groups]);
        while let Some(Reverse((_, of))) = ready.pop() {
            for node in &members[of] {
                of_node[*node] = layers.len();
            }
            layers.push(self.layer(std::mem::take(&mut members[of])));
            for to in &after[of] {
                waiting[*to] -= 1;
                if waiting[*to] == 0 {
                    ready.push(Reverse((members[*to][0], *to)));
                }
            }
        }
        let edges = self.edges_between(&of_node);
        Layers {
            layers,
            edges,
            of_node,
        }
    }

    fn layer(&self, nodes: Vec<usize>) -> Layer {
        // The first of those that compute most.
        let about = nodes
            .iter()
            .max_by_key(|node| {
                let of = &self.nodes[**node];
                (of.macs.at(1), of.class != OpClass::Quantization, Reverse(**node))
            })
            .map_or(0, |node| *node);
        let ops: Vec<&str> = nodes
            .iter()
            .map(|node| match self.nodes[*node].op.as_str() {
                "QuantizeLinear" => "Q",
                "DequantizeLinear" => "DQ",
                op => op,
            })
            .collect();
        let supplies = self.supplies_of(nodes.iter().copied());
        Layer {
            name: self.nodes[about].name.clone(),
            op: ops.join("+"),
            class: self.nodes[about].class,
            parameters: supplies.parameters(self),
            parameter_bytes: supplies.bytes(self),
            macs: nodes.iter().map(|node| self.nodes[*node].macs).sum(),
            nodes,
        }
    }

    /// What crosses from layer to layer, in the order of the graph's edges.
    fn edges_between(&self, of_node: &[usize]) -> Vec<LayerEdge> {
        let mut users: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (at, edge) in self.edges.iter().enumerate() {
            let carried = self.carried(at);
            let from = self.edges[carried].from.map(|node| of_node[node]);
            let to = edge
                .to
                .iter()
                .map(|node| of_node[*node])
                .filter(|to| Some(*to) != from);
            users.entry(carried).or_default().extend(to);
            if edge.is_output {
                users.entry(at).or_default();
            }
        }
        users
            .into_iter()
            .filter(|(edge, to)| !to.is_empty() || self.edges[*edge].is_output)
            .map(|(edge, to)| LayerEdge {
                edge,
                from: self.edges[edge].from.map(|node| of_node[node]),
                to: to.into_iter().collect(),
            })
            .collect()
    }
}

/// The node that a group is named by, found through those that joined it one after the other.
fn root(group: &mut [usize], mut node: usize) -> usize {
    while group[node] != node {
        group[node] = group[group[node]];
        node = group[node];
    }
    node
}

impl Layers {
    /// The places between layers, from before the first to before the last; after the last the outputs would cross. Whole
    /// numbers of 64 bits are shapes: where one would cross, a back-end that wants to know every shape beforehand refuses the
    /// rest, so that there is no such place.
    pub fn cut_points(&self, graph: &Graph) -> Vec<CutPoint> {
        let mut starts: Vec<Vec<usize>> = vec![Vec::new(); self.layers.len() + 1];
        let mut ends = starts.clone();
        for edge in &self.edges {
            if let Some(last) = edge.to.last() {
                starts[edge.from.map_or(0, |from| from + 1)].push(edge.edge);
                ends[last + 1].push(edge.edge);
            }
        }
        let mut crossing = Crossing::default();
        let mut points = Vec::new();
        for after in 0..self.layers.len() {
            ends[after]
                .iter()
                .for_each(|edge| crossing.end(&graph.edges[*edge]));
            starts[after]
                .iter()
                .for_each(|edge| crossing.begin(&graph.edges[*edge]));
            if crossing.shapes == 0 {
                points.push(CutPoint {
                    after,
                    tensors: crossing.tensors,
                    bytes: crossing.bytes(),
                });
            }
        }
        points
    }

    /// For each node the stage that its layer has here: what [`Graph::split`] takes.
    ///
    /// # Errors
    /// [`CutError::Length`].
    pub fn stages(&self, of_layer: &[usize]) -> Result<Vec<usize>, CutError> {
        match of_layer.len() == self.layers.len() {
            true => Ok(self.of_node.iter().map(|layer| of_layer[*layer]).collect()),
            false => Err(CutError::Length {
                given: of_layer.len(),
                wanted: self.layers.len(),
            }),
        }
    }

    /// The stages of a chain that is cut after these numbers of layers, which ascend.
    pub fn stages_of_chain(&self, cuts: &[usize]) -> Vec<usize> {
        self.of_node
            .iter()
            .map(|layer| cuts.iter().filter(|after| *layer >= **after).count())
            .collect()
    }
}
