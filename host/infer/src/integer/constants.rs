//! Weights, biases and scales as they stand in the file.

use super::walk::{Unfit, why};
use crate::graph::{Graph, Operand, Operation};
use crate::weights::{bytes8, constant, whole_numbers};

/// Weights of 8 bits around 0.
pub(super) struct Weights {
    /// As in the file.
    pub(super) dims: Vec<u32>,
    pub(super) values: Vec<i8>,
    /// One for each output.
    pub(super) scales: Vec<f64>,
}

/// The scale of an activation, and what stands for 0 in signed bytes.
pub(super) fn scale_and_zero(operation: &Operation<'_>, unsigned: bool) -> Result<(f64, i8), Unfit> {
    let scales = floats(operation.input(1))?.unwrap_or_default();
    let [scale] = scales[..] else {
        return Err(why("its activations have a scale for each channel"));
    };
    let zero = match operation.input(2) {
        Operand::Absent if unsigned => i8::MIN,
        Operand::Absent => 0,
        Operand::Constant(tensor) => match bytes8(tensor)? {
            Some(zero) if zero.unsigned == unsigned && zero.values.len() == 1 => zero.values[0],
            _ => return Err(why("its zero point is not one number of 8 bits like its values")),
        },
        _ => return Err(why("its zero point is computed")),
    };
    match scale.is_finite() && scale > 0.0 {
        true => Ok((scale, zero)),
        false => Err(why(format!("its scale is {scale}"))),
    }
}

/// The weights that a node takes in this place, quantised along this axis or as a whole.
pub(super) fn weights(graph: &Graph, at: usize, place: usize, axis: usize) -> Result<Weights, Unfit> {
    let made = graph.constant_operation(at, place)?;
    let made = made.filter(|made| made.op == "DequantizeLinear");
    let made = made.ok_or_else(|| why("its weights are not quantised"))?;
    let Operand::Constant(tensor) = made.input(0) else {
        return Err(why("its weights are computed"));
    };
    let stored = bytes8(tensor)?.ok_or_else(|| why("its weights do not have 8 bits"))?;
    if let Operand::Constant(zeros) = made.input(2) {
        let zeros = bytes8(zeros)?.ok_or_else(|| why("its weights have zero points of another type"))?;
        if zeros.unsigned != stored.unsigned || zeros.values.iter().any(|zero| *zero != 0) {
            return Err(why("its weights do not lie around 0"));
        }
    } else if stored.unsigned || !matches!(made.input(2), Operand::Absent) {
        return Err(why("its weights do not lie around 0"));
    }
    let outputs = stored.dims.get(axis).copied().unwrap_or_default() as usize;
    let scales = floats(made.input(1))?.unwrap_or_default();
    let along = made.int("axis", 1);
    let along = if along < 0 {
        along + stored.dims.len() as i64
    } else {
        along
    };
    let scales = match scales.len() {
        1 => vec![scales[0]; outputs],
        count if count == outputs && along == axis as i64 => scales,
        _ => return Err(why("its weights have scales along another axis than its outputs")),
    };
    Ok(Weights {
        dims: stored.dims,
        values: stored.values,
        scales,
    })
}

/// The bias that a node takes in this place, in real numbers, one for each output.
pub(super) fn bias(
    graph: &Graph,
    at: usize,
    operation: &Operation<'_>,
    place: usize,
    outputs: usize,
) -> Result<Vec<f64>, Unfit> {
    let values = match operation.input(place) {
        Operand::Absent => vec![0.0; outputs],
        Operand::Constant(_) => {
            floats(operation.input(place))?.ok_or_else(|| why("its bias is neither f32 nor quantised"))?
        }
        _ => {
            let made = graph.constant_operation(at, place)?;
            let made = made.filter(|made| made.op == "DequantizeLinear");
            let made = made.ok_or_else(|| why("its bias is computed"))?;
            quantised_bias(&made)?
        }
    };
    match values.len() == outputs {
        true => Ok(values),
        false => Err(why(format!(
            "it has {} biases for {outputs} outputs",
            values.len()
        ))),
    }
}

fn quantised_bias(made: &Operation<'_>) -> Result<Vec<f64>, Unfit> {
    let whole = |place| match made.input(place) {
        Operand::Constant(tensor) => whole_numbers(tensor),
        _ => Ok(None),
    };
    let stored = whole(0)?.ok_or_else(|| why("its bias is not in whole numbers of 32 bits"))?;
    let zeros = whole(2)?.unwrap_or_default();
    if zeros.iter().any(|zero| *zero != 0) {
        return Err(why("its bias does not lie around 0"));
    }
    let scales = floats(made.input(1))?.unwrap_or_default();
    if scales.len() != 1 && scales.len() != stored.len() {
        return Err(why("its bias has another number of scales than outputs"));
    }
    let scaled = stored.iter().zip(scales.iter().cycle());
    Ok(scaled.map(|(stored, scale)| *stored as f64 * scale).collect())
}

/// The numbers of a constant; none where it has others than `f32`.
pub(super) fn floats(operand: Operand<'_>) -> Result<Option<Vec<f64>>, Unfit> {
    let Operand::Constant(tensor) = operand else {
        return Ok(None);
    };
    let weight = constant(tensor)?;
    Ok(weight.map(|weight| weight.values.into_iter().map(f64::from).collect()))
}
