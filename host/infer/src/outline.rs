//! Reads from an ONNX file what its graph takes and gives, so that both back-ends say the same.

use crate::screen::{only, printable};
use crate::wire::{Fields, Value};
use crate::{Dim, InferError, ModelLimits, TensorInfo};
use karman_tensor::{ElementType, Shape};
use std::collections::HashSet;

/// What the graph takes and gives.
#[derive(Debug)]
pub(crate) struct Outline {
    pub(crate) inputs: Vec<TensorInfo>,
    pub(crate) outputs: Vec<TensorInfo>,
}

impl Outline {
    /// Screens the model and reads its outline.
    pub(crate) fn read(bytes: &[u8], limits: &ModelLimits) -> Result<Self, InferError> {
        crate::screen::screen(bytes, limits)?;
        let graph = only(bytes, 7)?.ok_or_else(|| InferError::malformed("it has no graph"))?;
        let (mut constants, mut inputs, mut outputs) = (HashSet::new(), Vec::new(), Vec::new());
        for field in Fields(graph) {
            match field? {
                (5, tensor) => constants.extend(only(tensor.bytes()?, 8)?),
                (11, value) => inputs.push(value.bytes()?),
                (12, value) => outputs.push(value.bytes()?),
                _ => {}
            }
        }
        // Older files list the constants among the inputs, too.
        let mut named = Vec::new();
        for input in inputs {
            if !constants.contains(only(input, 1)?.unwrap_or_default()) {
                named.push(value_info(input)?);
            }
        }
        let outline = Self {
            inputs: named,
            outputs: outputs.into_iter().map(value_info).collect::<Result<_, _>>()?,
        };
        for side in [&outline.inputs, &outline.outputs] {
            let mut seen = HashSet::new();
            if let Some(twice) = side.iter().find(|info| !seen.insert(&info.name)) {
                return Err(InferError::malformed(format!(
                    "it has `{}` twice",
                    printable(&twice.name)
                )));
            }
        }
        match outline.outputs.is_empty() {
            true => Err(InferError::malformed("it has no outputs")),
            false => Ok(outline),
        }
    }
}

pub(crate) fn value_info(bytes: &[u8]) -> Result<TensorInfo, InferError> {
    let name = Value::Bytes(only(bytes, 1)?.unwrap_or_default())
        .text()?
        .to_owned();
    let tensor = only(bytes, 2)?
        .map(|of_type| only(of_type, 1))
        .transpose()?
        .flatten()
        .ok_or_else(|| InferError::malformed(format!("`{}` is no tensor", printable(&name))))?;
    let (mut code, mut dims) = (0, None);
    for field in Fields(tensor) {
        match field? {
            (1, said) => code = said.varint()?,
            (2, shape) => dims = Some(shape_dims(shape.bytes()?, &name)?),
            _ => {}
        }
    }
    let element = element_type(code).ok_or_else(|| InferError::Type {
        name: printable(&name),
        found: type_name(code),
    })?;
    Ok(TensorInfo { name, element, dims })
}

fn shape_dims(shape: &[u8], name: &str) -> Result<Vec<Dim>, InferError> {
    let mut dims = Vec::new();
    for dim in Fields(shape) {
        let (field, dim) = dim?;
        if field != 1 {
            continue;
        }
        let mut size = Dim::Any(String::new());
        for field in Fields(dim.bytes()?) {
            match field? {
                // Exporters write 0 or -1 for a size that they do not know.
                (1, value) if value.varint()? as i64 <= 0 => {}
                (1, value) => {
                    size = Dim::Fixed(u32::try_from(value.varint()?).map_err(|_| {
                        InferError::malformed(format!("a dimension of `{}` is too large", printable(name)))
                    })?)
                }
                (2, symbol) => size = Dim::Any(name_of(symbol.text()?)),
                _ => {}
            }
        }
        dims.push(size);
        if dims.len() > Shape::MAX_RANK {
            return Err(InferError::malformed(format!(
                "`{}` has more than {} dimensions, the most that tensors here have",
                printable(name),
                Shape::MAX_RANK
            )));
        }
    }
    Ok(dims)
}

/// The name of an open dimension. Some exporters call each of them `?`, whatever their sizes.
fn name_of(symbol: &str) -> String {
    match symbol {
        "?" => String::new(),
        symbol => printable(symbol),
    }
}

/// `TensorProto.DataType` of onnx.proto.
pub(crate) fn element_type(code: u64) -> Option<ElementType> {
    Some(match code {
        1 => ElementType::F32,
        2 => ElementType::U8,
        3 => ElementType::I8,
        6 => ElementType::I32,
        7 => ElementType::I64,
        9 => ElementType::Bool,
        10 => ElementType::F16,
        11 => ElementType::F64,
        16 => ElementType::Bf16,
        _ => return None,
    })
}

/// The name of such a type in onnx.proto, for those that no tensor here has.
fn type_name(code: u64) -> String {
    let name = match code {
        0 => "UNDEFINED",
        4 => "UINT16",
        5 => "INT16",
        8 => "STRING",
        12 => "UINT32",
        13 => "UINT64",
        14 => "COMPLEX64",
        15 => "COMPLEX128",
        17..=20 | 24 => "FLOAT8",
        21 => "UINT4",
        22 => "INT4",
        23 => "FLOAT4",
        _ => return code.to_string(),
    };
    name.to_owned()
}

/// The same, the other way round.
pub(crate) fn type_code(element: ElementType) -> i64 {
    match element {
        ElementType::F32 => 1,
        ElementType::U8 => 2,
        ElementType::I8 => 3,
        ElementType::I32 => 6,
        ElementType::I64 => 7,
        ElementType::Bool => 9,
        ElementType::F16 => 10,
        ElementType::F64 => 11,
        ElementType::Bf16 => 16,
    }
}
