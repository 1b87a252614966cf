//! A node as an operator with its arguments in their places: what a translation into something else than ONNX reads.

use super::raw::RawNode;
use super::{Graph, Node, Supply};
use crate::InferError;
use crate::screen::only;
use crate::wire::{Fields, Value};
use std::collections::HashMap;

/// What an operator takes in one place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand<'g> {
    /// Nothing: it was left out.
    Absent,
    /// A tensor that depends on the inputs: its edge.
    Edge(usize),
    /// A tensor of the file, as it stands there.
    Constant(&'g [u8]),
    /// A constant that is computed.
    Computed,
}

/// An operator, what it takes and how it is set.
pub(crate) struct Operation<'g> {
    /// The operator, `Conv`; with its domain where that is not the standard one.
    pub(crate) op: String,
    /// The name of the node.
    pub(crate) name: &'g str,
    /// What it takes, place by place.
    pub(crate) inputs: Vec<Operand<'g>>,
    attributes: HashMap<&'g str, Attribute<'g>>,
}

#[derive(Default)]
struct Attribute<'g> {
    float: f32,
    numbers: Vec<i64>,
    text: &'g str,
    tensor: Option<&'g [u8]>,
}

impl<'g> Attribute<'g> {
    fn read(body: &'g [u8]) -> Result<(&'g str, Self), InferError> {
        let (mut name, mut attribute) = ("", Self::default());
        for field in Fields(body) {
            match field? {
                (1, text) => name = text.text()?,
                (2, float) => attribute.float = float.float()?,
                (3, number) => attribute.numbers.push(number.varint()? as i64),
                (4, text) => attribute.text = text.text()?,
                (5, tensor) => attribute.tensor = Some(tensor.bytes()?),
                (8, numbers) => attribute.numbers.extend(numbers.varints()?),
                _ => {}
            }
        }
        Ok((name, attribute))
    }

    fn all(node: &'g [u8]) -> Result<HashMap<&'g str, Self>, InferError> {
        let mut all = HashMap::new();
        for field in Fields(node) {
            if let (5, attribute) = field? {
                all.extend([Self::read(attribute.bytes()?)?]);
            }
        }
        Ok(all)
    }
}

impl<'g> Operation<'g> {
    /// A whole number that it is set to.
    pub(crate) fn int(&self, name: &str, or: i64) -> i64 {
        let numbers = self.ints(name);
        numbers.and_then(|numbers| numbers.first()).copied().unwrap_or(or)
    }

    /// Whole numbers that it is set to; none where it leaves them out.
    pub(crate) fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attributes
            .get(name)
            .map(|attribute| attribute.numbers.as_slice())
    }

    /// A number that it is set to.
    pub(crate) fn float(&self, name: &str, or: f32) -> f32 {
        self.attributes.get(name).map_or(or, |attribute| attribute.float)
    }

    /// A text that it is set to.
    pub(crate) fn text<'a>(&'a self, name: &str, or: &'a str) -> &'a str {
        self.attributes.get(name).map_or(or, |attribute| attribute.text)
    }

    /// What it takes in this place.
    pub(crate) fn input(&self, place: usize) -> Operand<'g> {
        self.inputs.get(place).copied().unwrap_or(Operand::Absent)
    }
}

impl Graph {
    /// A node of the graph, with what it takes in its places.
    pub(crate) fn operation(&self, at: usize) -> Result<Operation<'_>, InferError> {
        let node = &self.nodes[at];
        let raw = RawNode::read(&node.body)?;
        let inputs = raw.inputs.iter().map(|name| self.operand(node, name));
        Ok(Operation {
            op: operator(&node.body, raw.op)?,
            name: raw.name,
            inputs: inputs.collect::<Result<_, _>>()?,
            attributes: Attribute::all(&node.body)?,
        })
    }

    /// The operator of constants whose first output a node takes in this place; none where nothing computes what it takes there.
    pub(crate) fn constant_operation(
        &self,
        at: usize,
        place: usize,
    ) -> Result<Option<Operation<'_>>, InferError> {
        let node = &self.nodes[at];
        let taken = RawNode::read(&node.body)?;
        for supply in &node.constants {
            let Supply::Node(maker) = supply else { continue };
            let maker = &self.constant_nodes[*maker];
            let raw = RawNode::read(&maker.body)?;
            if raw.outputs.is_empty() || raw.outputs.first() != taken.inputs.get(place) {
                continue;
            }
            let inputs = raw
                .inputs
                .iter()
                .map(|name| self.constant_operand(&maker.uses, name));
            return Ok(Some(Operation {
                op: operator(&maker.body, raw.op)?,
                name: raw.name,
                inputs: inputs.collect::<Result<_, _>>()?,
                attributes: Attribute::all(&maker.body)?,
            }));
        }
        Ok(None)
    }

    /// The edges of a node's outputs, place by place; none where nothing uses one.
    pub(crate) fn outputs_of(&self, at: usize) -> Result<Vec<Option<usize>>, InferError> {
        let node = &self.nodes[at];
        let raw = RawNode::read(&node.body)?;
        let edge = |name: &&str| {
            let mut edges = node.outputs.iter().copied();
            edges.find(|edge| self.edges[*edge].info.name == **name)
        };
        Ok(raw.outputs.iter().map(edge).collect())
    }

    /// The sizes of an edge at this batch; none where more than one of them is open.
    pub(crate) fn dims_at(&self, edge: usize, batch: u32) -> Option<Vec<u32>> {
        let edge = &self.edges[edge];
        let (mut dims, mut open, mut fixed) = (Vec::new(), None, 1u64);
        for (axis, dim) in edge.info.dims.as_ref()?.iter().enumerate() {
            match dim {
                crate::Dim::Fixed(size) => {
                    fixed = fixed.saturating_mul(u64::from(*size));
                    dims.push(*size);
                }
                crate::Dim::Any(_) if open.replace(axis).is_some() => return None,
                crate::Dim::Any(_) => dims.push(0),
            }
        }
        if let Some(axis) = open {
            let size = edge.elements.at(batch).checked_div(fixed)?;
            dims[axis] = u32::try_from(size).ok()?;
        }
        Some(dims)
    }

    fn operand<'g>(&'g self, node: &'g Node, name: &str) -> Result<Operand<'g>, InferError> {
        let mut edges = node.inputs.iter();
        match edges.find(|edge| self.edges[**edge].info.name == name && !name.is_empty()) {
            Some(edge) => Ok(Operand::Edge(*edge)),
            None => self.constant_operand(&node.constants, name),
        }
    }

    /// The same where it can only be one of these constants.
    fn constant_operand<'g>(&'g self, supplies: &[Supply], name: &str) -> Result<Operand<'g>, InferError> {
        if name.is_empty() {
            return Ok(Operand::Absent);
        }
        for supply in supplies {
            let tensor = match supply {
                Supply::Tensor(at) => {
                    let body = &self.tensors[*at].body[..];
                    (only(body, 8)? == Some(name.as_bytes())).then_some(body)
                }
                Supply::Node(at) => value_of(&self.constant_nodes[*at].body, name)?,
            };
            if let Some(tensor) = tensor {
                return Ok(Operand::Constant(tensor));
            }
        }
        Ok(Operand::Computed)
    }
}

/// An operator as it is written, with its domain where that is not the standard one.
fn operator(node: &[u8], op: &str) -> Result<String, InferError> {
    let domain = only(node, 7)?.map(|domain| Value::Bytes(domain).text());
    Ok(match domain.transpose()?.unwrap_or_default() {
        "" | "ai.onnx" => op.to_owned(),
        domain => format!("{domain}.{op}"),
    })
}

/// The tensor that a `Constant` of this name holds; none where the node is another, or holds something else.
fn value_of<'g>(node: &'g [u8], name: &str) -> Result<Option<&'g [u8]>, InferError> {
    let raw = RawNode::read(node)?;
    if raw.op != "Constant" || raw.outputs.first() != Some(&name) {
        return Ok(None);
    }
    let value = Attribute::all(node)?.remove("value");
    Ok(value.and_then(|value| value.tensor))
}
