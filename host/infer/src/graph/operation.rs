//! A node as an operator with its arguments in their places: what a translation into something else than ONNX reads.

use super::raw::RawNode;
use super::{Graph, Supply};
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
pub(super) struct Attribute<'g> {
    float: f32,
    pub(super) numbers: Vec<i64>,
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

    pub(super) fn all(node: &'g [u8]) -> Result<HashMap<&'g str, Self>, InferError> {
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
    /// A node that takes these by their names. What it takes beside them is computed.
    fn read(node: &'g [u8], known: &HashMap<&str, Operand<'g>>) -> Result<Self, InferError> {
        let raw = RawNode::read(node)?;
        let operand = |name: &&str| match *name {
            "" => Operand::Absent,
            name => known.get(name).copied().unwrap_or(Operand::Computed),
        };
        Ok(Self {
            op: operator(node, raw.op)?,
            name: raw.name,
            inputs: raw.inputs.iter().map(operand).collect(),
            attributes: Attribute::all(node)?,
        })
    }

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
        let mut known = self.constants_of(&node.constants)?;
        known.extend(
            self.named(&node.inputs)
                .map(|(name, edge)| (name, Operand::Edge(edge))),
        );
        Operation::read(&node.body, &known)
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
            return Operation::read(&maker.body, &self.constants_of(&maker.uses)?).map(Some);
        }
        Ok(None)
    }

    /// The edges of a node's outputs, place by place; none where nothing uses one.
    pub(crate) fn outputs_of(&self, at: usize) -> Result<Vec<Option<usize>>, InferError> {
        let node = &self.nodes[at];
        let raw = RawNode::read(&node.body)?;
        let used: HashMap<&str, usize> = self.named(&node.outputs).collect();
        Ok(raw.outputs.iter().map(|name| used.get(name).copied()).collect())
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

    /// These edges with their names.
    fn named<'g>(&'g self, edges: &'g [usize]) -> impl Iterator<Item = (&'g str, usize)> {
        edges
            .iter()
            .map(|edge| (self.edges[*edge].info.name.as_str(), *edge))
    }

    /// What stands in the file of these constants, by name.
    fn constants_of(&self, supplies: &[Supply]) -> Result<HashMap<&str, Operand<'_>>, InferError> {
        let mut known = HashMap::with_capacity(supplies.len());
        for supply in supplies {
            let found = match supply {
                Supply::Tensor(at) => {
                    let tensor = &self.tensors[*at];
                    Some((tensor.name.as_str(), &tensor.body[..]))
                }
                Supply::Node(at) => value_of(&self.constant_nodes[*at].body)?,
            };
            known.extend(found.map(|(name, tensor)| (name, Operand::Constant(tensor))));
        }
        Ok(known)
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

/// The tensor that a `Constant` holds, with its name; none where the node is another, or holds something else.
fn value_of(node: &[u8]) -> Result<Option<(&str, &[u8])>, InferError> {
    let raw = RawNode::read(node)?;
    if raw.op != "Constant" {
        return Ok(None);
    }
    let value = Attribute::all(node)?.remove("value");
    let tensor = value.and_then(|value| value.tensor);
    Ok(raw.outputs.first().copied().zip(tensor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelLimits;
    use crate::graph::shapes::write_info;
    use crate::wire::Writer;

    /// A look at all of them for each would be a hundred million.
    #[test]
    fn a_node_finds_each_of_very_many_constants() {
        let names: Vec<String> = (0..10_000).map(|at| format!("c{at}")).collect();
        let mut graph = Writer::default();
        graph.message(1, |node| {
            node.bytes(1, "x");
            names.iter().for_each(|name| _ = node.bytes(1, name));
            node.bytes(2, "y").bytes(4, "Sum");
        });
        for name in &names {
            graph.message(5, |tensor| {
                tensor.number(1, 1).number(2, 1).bytes(8, name).bytes(9, [0; 4]);
            });
        }
        for (field, name) in [(11, "x"), (12, "y")] {
            write_info(&mut graph, field, name, 1, std::iter::once(crate::Dim::Fixed(1)));
        }
        let mut model = Writer::default();
        model.number(1, 8).bytes(7, graph.0);
        model.message(8, |set| _ = set.number(2, 17));
        let graph = Graph::read(model.0, &ModelLimits::default()).unwrap();
        let operation = graph.operation(0).unwrap();
        assert_eq!(operation.inputs.len(), names.len() + 1);
        assert!(matches!(operation.input(0), Operand::Edge(0)));
        assert!(matches!(operation.input(names.len()), Operand::Constant(_)));
    }
}
