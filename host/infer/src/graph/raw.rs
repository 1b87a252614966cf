//! What stands in a file: nodes and constant tensors by name, not yet connected.

use crate::InferError;
use crate::screen::{bits_of, only, printable};
use crate::wire::{Fields, Value, Writer};
use std::collections::HashSet;

/// The oldest operators that tract reads, by which shapes are inferred.
const LEAST_OPERATOR_SET: u64 = 9;

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

    pub(super) fn bytes(&self) -> u64 {
        (self.elements() * bits_of(self.code).unwrap_or_default()).div_ceil(8)
    }

    pub(super) fn parameters(&self) -> u64 {
        counted(self.code, self.dims.len(), self.elements())
    }
}

/// Single values and 64-bit whole numbers are settings of operators, not weights.
pub(super) fn counted(code: u64, rank: usize, elements: u64) -> u64 {
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
    pub(super) name: &'a str,
    pub(super) operator_set: u64,
    pub(super) header: Vec<u8>,
}

impl<'a> Raw<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, InferError> {
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
        at_least(raw.operator_set, LEAST_OPERATOR_SET)?;
        // In that of the set 10 tract rounds another way than ONNX Runtime.
        if raw.nodes.iter().any(|node| node.op == "Resize") {
            at_least(raw.operator_set, 11)?;
        }
        Ok(raw)
    }
}

/// Refuses operators of before the set `least`.
pub(super) fn at_least(found: u64, least: u64) -> Result<(), InferError> {
    match found >= least {
        true => Ok(()),
        false => Err(InferError::OperatorSet { found, least }),
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
