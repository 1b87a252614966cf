//! Tensors of ours as tract's, and back.

use super::run_error;
use crate::{InferError, TensorInfo};
use karman_tensor::{Element, ElementType, Shape, Tensor, f16};
use tract_onnx::prelude::*;

/// tract has no bf16.
pub(super) fn datum_type(element: ElementType) -> TractResult<DatumType> {
    Ok(match element {
        ElementType::F16 => DatumType::F16,
        ElementType::F32 => DatumType::F32,
        ElementType::F64 => DatumType::F64,
        ElementType::I8 => DatumType::I8,
        ElementType::U8 => DatumType::U8,
        ElementType::I32 => DatumType::I32,
        ElementType::I64 => DatumType::I64,
        ElementType::Bool => DatumType::Bool,
        ElementType::Bf16 => return Err(TractError::msg("tract has no bf16: convert to f32")),
    })
}

/// A type of tract's as ours; its symbolic sizes are whole numbers to everybody else.
pub(super) fn element_type(of: DatumType) -> Option<ElementType> {
    Some(match of {
        DatumType::F16 => ElementType::F16,
        DatumType::F32 => ElementType::F32,
        DatumType::F64 => ElementType::F64,
        DatumType::I8 | DatumType::QI8(_) => ElementType::I8,
        DatumType::U8 | DatumType::QU8(_) => ElementType::U8,
        DatumType::I32 | DatumType::QI32(_) => ElementType::I32,
        DatumType::I64 | DatumType::TDim => ElementType::I64,
        DatumType::Bool => ElementType::Bool,
        _ => return None,
    })
}

pub(super) fn to_tract(tensor: &Tensor) -> TractResult<tract_onnx::prelude::Tensor> {
    fn copy<T: Element + Datum>(tensor: &Tensor) -> TractResult<tract_onnx::prelude::Tensor> {
        let dims: TVec<usize> = tensor.shape().dims().iter().map(|dim| *dim as usize).collect();
        let elements = tensor.view::<T>().map_err(TractError::new)?;
        tract_onnx::prelude::Tensor::from_shape(&dims, elements)
    }
    match tensor.element() {
        ElementType::F16 => copy::<f16>(tensor),
        ElementType::F32 => copy::<f32>(tensor),
        ElementType::F64 => copy::<f64>(tensor),
        ElementType::I8 => copy::<i8>(tensor),
        ElementType::U8 => copy::<u8>(tensor),
        ElementType::I32 => copy::<i32>(tensor),
        ElementType::I64 => copy::<i64>(tensor),
        ElementType::Bool => copy::<bool>(tensor),
        element @ ElementType::Bf16 => datum_type(element).and_then(|_| copy::<f32>(tensor)),
    }
}

/// As the type that the model says: tract computes shapes, for one, in a type of its own.
pub(super) fn from_tract(value: &TValue, info: &TensorInfo) -> Result<Tensor, InferError> {
    fn copy<T: Element + Datum>(
        value: &tract_onnx::prelude::Tensor,
        name: &str,
    ) -> Result<Tensor, InferError> {
        let failed = |reason| InferError::Output {
            name: name.into(),
            reason,
        };
        let shape = Shape::from_dims(value.shape()).map_err(failed)?;
        let view = value.try_as_plain_ram().map_err(run_error)?;
        Tensor::from_slice(shape, view.as_slice::<T>().map_err(run_error)?).map_err(failed)
    }
    let wanted = datum_type(info.element).map_err(run_error)?;
    let value = value.cast_to_dt(wanted).map_err(run_error)?;
    match info.element {
        ElementType::F16 => copy::<f16>(&value, &info.name),
        ElementType::F32 | ElementType::Bf16 => copy::<f32>(&value, &info.name),
        ElementType::F64 => copy::<f64>(&value, &info.name),
        ElementType::I8 => copy::<i8>(&value, &info.name),
        ElementType::U8 => copy::<u8>(&value, &info.name),
        ElementType::I32 => copy::<i32>(&value, &info.name),
        ElementType::I64 => copy::<i64>(&value, &info.name),
        ElementType::Bool => copy::<bool>(&value, &info.name),
    }
}
