//! Looks through an ONNX file before anything decodes it.
//!
//! A decoder builds hundreds of bytes from two, and a back-end believes the sizes that a file claims. So the file is walked
//! once as raw protobuf, without building anything: every message is counted, every constant tensor must hold exactly the
//! elements that its dimensions claim, and nothing may point outside the file.

use crate::wire::{Fields, Value};
use crate::{InferError, ModelLimits};

/// Passes a model that keeps the limits and is whole in itself.
pub(crate) fn screen(bytes: &[u8], limits: &ModelLimits) -> Result<(), InferError> {
    InferError::over("model", limits.model.0, bytes.len() as u64, || {
        "the model in bytes".into()
    })?;
    // ONNX Runtime takes these for its own flat format, past everything that is checked here.
    if bytes.get(4..8) == Some(b"ORTM") {
        return Err(InferError::malformed("it is in the ORT format"));
    }
    let mut screen = Screen {
        limits,
        nodes: 0,
        entries: 0,
        constants: 0,
    };
    screen.walk(Kind::Model, bytes, 0)?;
    screen.has_room()?;
    match screen.nodes {
        0 => Err(InferError::malformed("it has no nodes")),
        _ => Ok(()),
    }
}

/// The messages of onnx.proto that a decoder builds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    Sparse,
    ValueInfo,
    Type,
    /// A type of another type: sequences of it, or what may be there or not.
    Container,
    Map,
    TensorType,
    Shape,
    Dim,
    Function,
    Training,
    Annotation,
    /// Devices that a model names, and how a node is put onto them.
    Devices,
    Placement,
    Sharding,
    ShardedDim,
    /// A message of numbers and texts only, or a text.
    Leaf,
}

impl Kind {
    /// What a field holds if it takes memory of its own, and whether it may stand there again and again.
    fn child(self, field: u32) -> Option<(Self, bool)> {
        let (once, many) = (false, true);
        Some(match (self, field) {
            (Self::Model, 7) => (Self::Graph, once),
            (Self::Model, 20) => (Self::Training, many),
            (Self::Model, 25) => (Self::Function, many),
            (Self::Graph, 1) | (Self::Function, 7) => (Self::Node, many),
            (Self::Graph, 5) => (Self::Tensor, many),
            (Self::Graph, 11..=13) | (Self::Function, 12) => (Self::ValueInfo, many),
            (Self::Graph, 14) => (Self::Annotation, many),
            (Self::Graph, 15) | (Self::Attribute, 23) => (Self::Sparse, many),
            (Self::Node, 5) | (Self::Function, 11) => (Self::Attribute, many),
            (Self::Attribute, 5) => (Self::Tensor, once),
            (Self::Attribute, 6) => (Self::Graph, once),
            (Self::Attribute, 10) => (Self::Tensor, many),
            (Self::Attribute, 11) => (Self::Graph, many),
            (Self::Attribute, 14) => (Self::Type, once),
            (Self::Attribute, 15) => (Self::Type, many),
            (Self::Attribute, 22) => (Self::Sparse, once),
            (Self::ValueInfo, 2) => (Self::Type, once),
            (Self::Type, 1 | 8) => (Self::TensorType, once),
            (Self::Type, 4 | 9) => (Self::Container, once),
            (Self::Type, 5) => (Self::Map, once),
            (Self::Container, 1) | (Self::Map, 2) => (Self::Type, once),
            (Self::TensorType, 2) => (Self::Shape, once),
            (Self::Shape, 1) => (Self::Dim, many),
            (Self::Training, 1 | 2) => (Self::Graph, once),
            (Self::Model, 26) => (Self::Devices, many),
            (Self::Node, 10) => (Self::Placement, many),
            (Self::Placement, 2) => (Self::Sharding, many),
            (Self::Sharding, 4) => (Self::ShardedDim, many),
            (Self::Model, 8 | 14)
            | (Self::Graph, 16)
            | (Self::Node, 1 | 2 | 9)
            | (Self::ValueInfo, 4)
            | (Self::Devices, 3)
            | (Self::Sharding, 3)
            | (Self::ShardedDim, 2)
            | (Self::Attribute, 9)
            | (Self::Annotation, 2)
            | (Self::Training, 3 | 4)
            | (Self::Function, 4 | 5 | 6 | 9 | 14) => (Self::Leaf, many),
            _ => return None,
        })
    }

    /// Whether it may hold, further in, another of its kind.
    fn nests(self) -> bool {
        matches!(self, Self::Graph | Self::Container | Self::Map)
    }
}

struct Screen<'l> {
    limits: &'l ModelLimits,
    nodes: u64,
    entries: u64,
    constants: u64,
}

impl Screen<'_> {
    /// `depth` is the number of graphs, and of types of other types, around this message.
    fn walk(&mut self, kind: Kind, bytes: &[u8], depth: u32) -> Result<(), InferError> {
        self.entry()?;
        match kind {
            Kind::Leaf => return Ok(()),
            Kind::Tensor => return self.tensor(bytes),
            Kind::Sparse => {
                return Err(InferError::malformed(
                    "it has sparse tensors, which no back-end here takes",
                ));
            }
            kind if kind.nests() => {
                InferError::over("depth", self.limits.depth.into(), depth.into(), || {
                    "the depth of graphs and types within each other".into()
                })?
            }
            Kind::Node => {
                self.nodes += 1;
                InferError::over("nodes", self.limits.nodes, self.nodes, || {
                    "the number of nodes".into()
                })?;
            }
            _ => {}
        }
        let depth = depth + u32::from(kind.nests());
        let mut seen = 0u32;
        for field in Fields(bytes) {
            let (field, value) = field?;
            if let Some((child, many)) = kind.child(field) {
                // A decoder merges the two, so that neither is what was checked.
                if !many && seen & (1 << field) != 0 {
                    return Err(InferError::malformed(format!(
                        "a {kind:?} has field {field} twice"
                    )));
                }
                seen |= 1 << field;
                self.walk(child, value.bytes()?, depth)?;
            } else if kind == Kind::Attribute {
                match field {
                    7 => self.constant(value.count_fixed(4) * 4),
                    8 => self.constant(value.count_varints() * 8),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self) -> Result<(), InferError> {
        self.entries += 1;
        InferError::over("entries", self.limits.entries, self.entries, || {
            "the number of messages".into()
        })
    }

    const fn constant(&mut self, bytes: u64) {
        self.constants = self.constants.saturating_add(bytes);
    }

    /// Whether there is room for all constants: said once all are counted, so that the limit can be raised to what there is.
    fn has_room(&self) -> Result<(), InferError> {
        InferError::over("constants", self.limits.constants.0, self.constants, || {
            "all constant tensors together in bytes".into()
        })
    }

    /// A tensor's data must be there, and be exactly what its dimensions say.
    fn tensor(&mut self, bytes: &[u8]) -> Result<(), InferError> {
        let (mut name, mut data_type, mut dims) = ("", 0, Vec::new());
        let (mut raw, mut typed, mut external) = (None, 0u64, false);
        for field in Fields(bytes) {
            let (field, value) = field?;
            match field {
                1 => {
                    InferError::over("rank", self.limits.rank.into(), value.count_varints(), || {
                        "the number of dimensions of a constant tensor".into()
                    })?;
                    dims.extend(value.varints()?);
                }
                2 => data_type = value.varint()?,
                4 => typed += value.count_fixed(4),
                5 | 7 | 11 => typed += value.count_varints(),
                6 => {
                    self.entry()?;
                    typed += 1;
                }
                8 => name = value.text()?,
                9 if raw.is_some() => return Err(InferError::malformed("a tensor has its data twice")),
                9 => raw = Some(value.bytes()?.len() as u64),
                10 => typed += value.count_fixed(8),
                13 => external = true,
                16 => self.entry()?,
                14 => external |= value.varint()? != 0,
                _ => {}
            }
            InferError::over("rank", self.limits.rank.into(), dims.len() as u64, || {
                "the number of dimensions of a constant tensor".into()
            })?;
        }
        if external {
            return Err(InferError::ExternalData {
                tensor: printable(name),
            });
        }
        let elements = dims
            .iter()
            .try_fold(1u64, |n, dim| n.checked_mul(u64::try_from(*dim).ok()?))
            .ok_or_else(|| {
                InferError::malformed(format!("tensor `{}` has dimensions {dims:?}", printable(name)))
            })?;
        let bits = bits_of(data_type).ok_or_else(|| {
            InferError::malformed(format!(
                "tensor `{}` has the unknown type {data_type}",
                printable(name)
            ))
        })?;
        let expected = elements.saturating_mul(bits).div_ceil(8);
        self.constant(expected.max(typed.saturating_mul(8)));
        let (given, wanted) = match raw {
            Some(raw) if typed == 0 => (raw, expected),
            Some(_) => return Err(InferError::malformed("a tensor has its data twice")),
            None => (typed, elements),
        };
        if given != wanted {
            self.has_room()?;
            return Err(InferError::malformed(format!(
                "tensor `{}` of dimensions {dims:?} holds {given} where {wanted} should be",
                printable(name)
            )));
        }
        Ok(())
    }
}

/// The bits of one element of this `TensorProto.DataType`; 0 for texts, which have no fixed size.
pub(crate) fn bits_of(data_type: u64) -> Option<u64> {
    Some(match data_type {
        2 | 3 | 9 | 17..=20 => 8,
        4 | 5 | 10 | 16 => 16,
        1 | 6 | 12 => 32,
        7 | 11 | 13 => 64,
        21..=23 => 4,
        8 => 0,
        _ => return None,
    })
}

/// A name of the file as it may stand in a message: short, without control characters.
pub(crate) fn printable(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(80).collect()
}

/// The one field of a message that holds another message.
pub(crate) fn only(bytes: &[u8], wanted: u32) -> Result<Option<&[u8]>, InferError> {
    for field in Fields(bytes) {
        match field? {
            (field, Value::Bytes(value)) if field == wanted => return Ok(Some(value)),
            _ => {}
        }
    }
    Ok(None)
}
