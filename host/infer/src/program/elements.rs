//! What is done to every element: bounds, arithmetic with constants and with other tensors, normalisation by batch.

use super::draft::Slot;
use super::translate::{Translation, count, refuse};
use crate::InferError;
use crate::graph::{Operand, Operation};
use crate::weights::Weight;
use karman_gpu::{Arithmetic, Broadcast, Kernel, Step};

impl Translation<'_> {
    pub(super) fn clip(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let mut steps = Vec::new();
        for (place, step) in [
            (1, Step::AtLeast as fn(f32) -> Step),
            (2, Step::AtMost as fn(f32) -> Step),
        ] {
            let Some(bound) = self.optional(operation, place)? else {
                continue;
            };
            let &[bound] = &bound.values[..] else {
                return refuse(operation, "its bounds are not the same for all elements");
            };
            steps.push(step(bound));
        }
        self.each(operation, &steps)
    }

    /// The mean and variance of its training as a factor and a shift of each channel.
    pub(super) fn normalisation(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (slot, dims) = self.edge(operation, 0)?;
        if operation.int("training_mode", 0) != 0 {
            return refuse(operation, "it is in training");
        }
        let [scale, shift, mean, variance] = [1, 2, 3, 4].map(|place| self.constant(operation, place));
        let (scale, shift, mean, variance) = (scale?, shift?, mean?, variance?);
        let Some(channels) = dims.get(1).copied() else {
            return refuse(operation, "it is given no channels");
        };
        let all = [&scale, &shift, &mean, &variance];
        if all.iter().any(|weight| weight.values.len() != channels as usize) {
            return refuse(operation, "its weights are for another number of channels");
        }
        let epsilon = operation.float("epsilon", 1e-5);
        let factors = scale.values.iter().zip(&variance.values);
        let factors: Vec<f32> = factors
            .map(|(scale, variance)| scale / (variance + epsilon).sqrt())
            .collect();
        let shifts = shift.values.iter().zip(&mean.values).zip(&factors);
        let shifts: Vec<f32> = shifts
            .map(|((shift, mean), factor)| shift - mean * factor)
            .collect();
        if self.draft.scale_channels(slot, &dims, &factors, &shifts) {
            return Ok(slot);
        }
        // As arrays of channels by one by one, which go on to all pixels of their channel.
        let mut shape = vec![1; dims.len() - 1];
        shape[0] = channels;
        let factors = self.spread(operation, &shape, &factors, &dims)?;
        let scaled = self.draft.combine(slot, factors, Step::Multiply)?;
        let shifts = self.spread(operation, &shape, &shifts, &dims)?;
        Ok(self.draft.combine(scaled, shifts, Step::Add)?)
    }

    pub(super) fn arithmetic(
        &mut self,
        operation: &Operation<'_>,
        output: usize,
    ) -> Result<Slot, InferError> {
        match (operation.input(0), operation.input(1)) {
            (Operand::Edge(_), Operand::Edge(_)) => self.two(operation),
            (Operand::Edge(_), _) => self.with_constant(operation, (0, 1), output),
            _ => self.with_constant(operation, (1, 0), output),
        }
    }

    /// Arithmetic of two tensors.
    fn two(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (first, second) = (self.edge(operation, 0)?, self.edge(operation, 1)?);
        if first.1 != second.1 || operation.op == "Div" {
            return self.pairwise(operation, first, second);
        }
        let (one, other) = (first.0, second.0);
        match operation.op.as_str() {
            "Add" => Ok(self.draft.combine(one, other, Step::Add)?),
            "Mul" => Ok(self.draft.combine(one, other, Step::Multiply)?),
            _ => {
                // Kept as it is: of `x - x` only one is turned around.
                self.draft.keep(other);
                let negative = self.draft.steps(other, &[Step::Scale(-1.0)])?;
                Ok(self.draft.combine(negative, one, Step::Add)?)
            }
        }
    }

    /// All tensors together.
    pub(super) fn sum(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (mut sum, mut dims) = self.operand(operation, 0)?;
        let mut others = Vec::new();
        for place in 1..operation.inputs.len() {
            others.push((place, self.operand(operation, place)?));
        }
        // The same may be among them more than once, and stays as it is until then.
        let slots = others.iter().map(|(_, (slot, _))| *slot);
        slots.chain([sum]).for_each(|slot| self.draft.keep(slot));
        for (place, (slot, more)) in others {
            if dims == more {
                sum = self.draft.combine(sum, slot, Step::Add)?;
                continue;
            }
            let shape = Broadcast {
                arithmetic: Arithmetic::Add,
                first: dims,
                second: more,
            };
            let Some(sizes) = shape.sizes() else {
                return refuse(
                    operation,
                    format!("its input {place} does not fit those before it"),
                );
            };
            sum = self.draft.call(Kernel::Broadcast(shape), vec![sum, slot])?;
            dims = sizes;
        }
        Ok(sum)
    }

    /// Arithmetic of two slots of these sizes, by a kernel of its own.
    fn pairwise(
        &mut self,
        operation: &Operation<'_>,
        first: (Slot, Vec<u32>),
        second: (Slot, Vec<u32>),
    ) -> Result<Slot, InferError> {
        let arithmetic = match operation.op.as_str() {
            "Add" => Arithmetic::Add,
            "Sub" => Arithmetic::Subtract,
            "Mul" => Arithmetic::Multiply,
            _ => Arithmetic::Divide,
        };
        self.broadcast(arithmetic, first, second)
    }

    /// The same where the operator has another name.
    pub(super) fn broadcast(
        &mut self,
        arithmetic: Arithmetic,
        (one, first): (Slot, Vec<u32>),
        (other, second): (Slot, Vec<u32>),
    ) -> Result<Slot, InferError> {
        let shape = Broadcast {
            arithmetic,
            first,
            second,
        };
        Ok(self.draft.call(Kernel::Broadcast(shape), vec![one, other])?)
    }

    /// Arithmetic of a tensor and a constant, in these places.
    fn with_constant(
        &mut self,
        operation: &Operation<'_>,
        (tensor, constant): (usize, usize),
        output: usize,
    ) -> Result<Slot, InferError> {
        let (slot, dims) = self.edge(operation, tensor)?;
        let weight = self.constant(operation, constant)?;
        let first = tensor == 0;
        if operation.op == "Div" && first && weight.values.contains(&0.0) {
            return refuse(operation, "no kernel here divides by zero");
        }
        // What it divides, and what it goes on along: no step on an element of the tensor.
        if self.dims(output)? != dims || operation.op == "Div" && !first {
            let constant = (self.hold(weight.values)?, weight.shape);
            return match first {
                true => self.pairwise(operation, (slot, dims), constant),
                false => self.pairwise(operation, constant, (slot, dims)),
            };
        }
        let is_sum = matches!(operation.op.as_str(), "Add" | "Sub");
        // `x - c` is `x + (-c)`, `x / c` is `x (1 / c)`, and `c - x` is `-x + c`.
        let turn = |value: &f32| match operation.op.as_str() {
            "Sub" if first => -value,
            "Div" => 1.0 / value,
            _ => *value,
        };
        let slot = match operation.op == "Sub" && !first {
            true => self.draft.steps(slot, &[Step::Scale(-1.0)])?,
            false => slot,
        };
        let values: Vec<f32> = weight.values.iter().map(turn).collect();
        if let &[value] = &values[..] {
            let step = if is_sum {
                Step::Offset(value)
            } else {
                Step::Scale(value)
            };
            return Ok(self.draft.steps(slot, &[step])?);
        }
        if is_sum && is_row(&weight, &dims) && self.draft.add_to_rows(slot, &values) {
            return Ok(slot);
        }
        let step = if is_sum { Step::Add } else { Step::Multiply };
        let values = self.spread(operation, &weight.shape, &values, &dims)?;
        Ok(self.draft.combine(slot, values, step)?)
    }

    /// A constant as long as the tensor that it is combined with.
    pub(super) fn spread(
        &mut self,
        operation: &Operation<'_>,
        shape: &[u32],
        values: &[f32],
        dims: &[u32],
    ) -> Result<Slot, InferError> {
        self.reserve(count(dims))?;
        match broadcast(shape, values, dims) {
            Some(values) => Ok(self.draft.constant(values)),
            None => refuse(
                operation,
                format!("its constant is {shape:?} and its tensor {dims:?}"),
            ),
        }
    }
}

/// Whether a constant is the same for every row of a tensor, of which all but the last dimension are rows.
fn is_row(weight: &Weight, dims: &[u32]) -> bool {
    let Some(last) = dims.last() else { return false };
    weight.shape.last() == Some(last) && count(&weight.shape) == u64::from(*last)
}

/// An array at every place of a larger one, as ONNX has it: dimensions of one, and those that it lacks in front, go on and on.
fn broadcast(shape: &[u32], values: &[f32], dims: &[u32]) -> Option<Vec<f32>> {
    let lacks = dims.len().checked_sub(shape.len())?;
    let (mut steps, mut step) = (vec![0usize; dims.len()], 1usize);
    for (axis, size) in shape.iter().enumerate().rev() {
        match *size {
            1 => {}
            size if size == dims[lacks + axis] => steps[lacks + axis] = step,
            _ => return None,
        }
        step = step.checked_mul(*size as usize)?;
    }
    let all = usize::try_from(count(dims)).ok()?;
    let place = |mut number: usize| {
        let mut at = 0;
        for (size, step) in dims.iter().zip(&steps).rev() {
            at += number % *size as usize * step;
            number /= *size as usize;
        }
        values.get(at).copied()
    };
    (0..all).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_goes_on_where_it_lacks_dimensions() {
        let channels = broadcast(&[2, 1, 1], &[1.0, 2.0], &[2, 2, 1, 3]).unwrap();
        let one = [1.0, 1.0, 1.0, 2.0, 2.0, 2.0];
        assert_eq!(channels, [one, one].concat());
        assert_eq!(
            broadcast(&[3], &[1.0, 2.0, 3.0], &[2, 3]),
            Some(vec![1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
        );
        assert_eq!(
            broadcast(&[2, 1], &[1.0, 2.0], &[2, 2]),
            Some(vec![1.0, 1.0, 2.0, 2.0])
        );
        assert_eq!(broadcast(&[2], &[1.0, 2.0], &[2, 3]), None);
        assert_eq!(broadcast(&[1, 1, 2], &[1.0, 2.0], &[2, 2]), None);
    }
}
