//! What brings numbers to a common measure, and what makes one of several.

use super::concat::place_of;
use super::draft::Slot;
use super::translate::{Translation, count, refuse};
use crate::InferError;
use crate::graph::Operation;
use karman_gpu::{Arithmetic, Fold, Kernel, Norm, Normalise, Padding, Pool, Reduce, Sides, Step, Window};

/// Millionths of one.
const MILLION: f32 = 1e6;

impl Translation<'_> {
    /// Over one dimension, which is brought to the end for that.
    pub(super) fn softmax(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (values, dims) = self.edge(operation, 0)?;
        let axis = operation.int("axis", -1);
        let Some(axis) = place_of(axis, dims.len()) else {
            return refuse(operation, format!("its `axis` is {axis}"));
        };
        let order: Vec<usize> = others(dims.len(), &[axis]).chain([axis]).collect();
        let (slot, permuted) = self.permuted(values, &dims, &order)?;
        let Ok(rows) = u32::try_from(count(&permuted[..dims.len() - 1])) else {
            return refuse(operation, "it has too many rows");
        };
        let shape = Norm {
            normalise: Normalise::Softmax,
            rows,
            columns: dims[axis],
            epsilon_millionths: 10,
        };
        let slot = self.draft.call(Kernel::Norm(shape), vec![slot])?;
        let mut back = vec![0; order.len()];
        for (place, axis) in order.iter().enumerate() {
            back[*axis] = place;
        }
        self.permuted(slot, &permuted, &back).map(|(slot, _)| slot)
    }

    /// Mean 0 and variance 1 over the last dimensions.
    pub(super) fn layer_norm(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (values, dims) = self.edge(operation, 0)?;
        let axis = operation.int("axis", -1);
        let Some((before, after)) = place_of(axis, dims.len()).and_then(|axis| dims.split_at_checked(axis))
        else {
            return refuse(operation, format!("its `axis` is {axis}"));
        };
        let (Ok(rows), Ok(columns)) = (u32::try_from(count(before)), u32::try_from(count(after))) else {
            return refuse(operation, "it has too many rows");
        };
        let gain = self.constant(operation, 1)?.values;
        let shift = self.optional(operation, 2)?.map(|weight| weight.values);
        let shift = shift.unwrap_or_else(|| vec![0.0; gain.len()]);
        if [gain.len(), shift.len()] != [columns as usize; 2] {
            return refuse(
                operation,
                "its weights are not as long as what it brings to one measure",
            );
        }
        let (gain, shift) = (self.hold(gain)?, self.hold(shift)?);
        let epsilon = operation.float("epsilon", 1e-5);
        if let Some(epsilon_millionths) = millionths(epsilon) {
            let shape = Norm {
                normalise: Normalise::Layer,
                rows,
                columns,
                epsilon_millionths,
            };
            return Ok(self.draft.call(Kernel::Norm(shape), vec![values, gain, shift])?);
        }
        self.normal((values, rows, columns), epsilon, gain, shift)
    }

    /// The same step by step, for an epsilon that is no whole number of millionths.
    fn normal(
        &mut self,
        (values, rows, columns): (Slot, u32, u32),
        epsilon: f32,
        gain: Slot,
        shift: Slot,
    ) -> Result<Slot, InferError> {
        let (all, each, row) = (vec![rows, columns], vec![rows, 1], vec![columns]);
        let share = Step::Scale(1.0 / columns as f32);
        let reduce = |fold| Kernel::Reduce(Reduce { fold, rows, columns });
        self.draft.keep(values);
        let sum = self.draft.call(reduce(Fold::Sum), vec![values])?;
        let mean = self.draft.steps(sum, &[share])?;
        let centred = self.broadcast(Arithmetic::Subtract, (values, all.clone()), (mean, each.clone()))?;
        let squares = self.draft.call(reduce(Fold::SumOfSquares), vec![centred])?;
        let deviation = [share, Step::Offset(epsilon), Step::SquareRoot];
        let deviation = self.draft.steps(squares, &deviation)?;
        let one = self.broadcast(Arithmetic::Divide, (centred, all.clone()), (deviation, each))?;
        let scaled = self.broadcast(Arithmetic::Multiply, (one, all.clone()), (gain, row.clone()))?;
        self.broadcast(Arithmetic::Add, (scaled, all), (shift, row))
    }

    /// Each number over a root of the squares around it in other channels, as AlexNet has it.
    pub(super) fn response_norm(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (values, dims) = self.edge(operation, 0)?;
        let (&[batch, channels, ref sides @ ..], size) = (&dims[..], operation.int("size", 0)) else {
            return refuse(operation, "it is given no channels");
        };
        let (Ok(size), Ok(width)) = (u32::try_from(size), u32::try_from(count(sides))) else {
            return refuse(operation, "its `size` is no number of channels");
        };
        let around = size.saturating_sub(1);
        // A column of an image is a pixel through all channels; padding counts as zeros, so that the mean is the sum over the size.
        let mean = Pool {
            window: Window::Mean,
            planes: batch,
            height: channels,
            width,
            kernel_height: size,
            kernel_width: 1,
            stride: Sides::both(1),
            padding: Padding {
                top: around / 2,
                bottom: around.div_ceil(2),
                ..Padding::default()
            },
            dilation: Sides::both(1),
            counts_padding: true,
        };
        self.draft.keep(values);
        let squares = self.draft.combine(values, values, Step::Multiply)?;
        let mean = self.draft.call(Kernel::Pool(mean), vec![squares])?;
        let (alpha, bias) = (operation.float("alpha", 1e-4), operation.float("bias", 1.0));
        let sum = [Step::Scale(alpha), Step::Offset(bias)];
        let divisor = match operation.float("beta", 0.75) {
            1.0 => self.draft.steps(mean, &sum)?,
            0.5 => self
                .draft
                .steps(mean, &[&sum[..], &[Step::SquareRoot]].concat())?,
            0.75 => {
                let root = self
                    .draft
                    .steps(mean, &[&sum[..], &[Step::SquareRoot]].concat())?;
                self.draft.keep(root);
                let quarter = self.draft.steps(root, &[Step::SquareRoot])?;
                self.draft.combine(quarter, root, Step::Multiply)?
            }
            beta => return refuse(operation, format!("its `beta` is {beta}, and not 0.5, 0.75 or 1")),
        };
        self.broadcast(Arithmetic::Divide, (values, dims.clone()), (divisor, dims))
    }

    /// One number of all along some dimensions, which are brought to the end for that.
    pub(super) fn fold(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (values, dims) = self.edge(operation, 0)?;
        let axes = match self.axes(operation, 1, dims.len())? {
            Some(axes) if !axes.is_empty() => axes,
            _ if operation.int("noop_with_empty_axes", 0) != 0 => return Ok(values),
            _ => (0..dims.len()).collect(),
        };
        let kept: Vec<usize> = others(dims.len(), &axes).collect();
        let folded = others(dims.len(), &kept);
        let order: Vec<usize> = kept.iter().copied().chain(folded).collect();
        let (slot, permuted) = self.permuted(values, &dims, &order)?;
        let (rows, columns) = permuted.split_at(kept.len());
        let (Ok(rows), Ok(columns)) = (u32::try_from(count(rows)), u32::try_from(count(columns))) else {
            return refuse(operation, "it has too many rows");
        };
        let (fold, steps) = match operation.op.as_str() {
            "ReduceMax" => (Fold::Max, vec![]),
            "ReduceMin" => (Fold::Min, vec![]),
            "ReduceMean" => (Fold::Sum, vec![Step::Scale(1.0 / columns as f32)]),
            _ => (Fold::Sum, vec![]),
        };
        let shape = Reduce { fold, rows, columns };
        let slot = self.draft.call(Kernel::Reduce(shape), vec![slot])?;
        match steps.is_empty() {
            true => Ok(slot),
            false => Ok(self.draft.steps(slot, &steps)?),
        }
    }
}

/// The dimensions of this many that are not among these, in order.
fn others(rank: usize, these: &[usize]) -> impl Iterator<Item = usize> {
    (0..rank).filter(move |axis| !these.contains(axis))
}

/// A small number as millionths, where it is a whole number of them and not none.
fn millionths(number: f32) -> Option<u32> {
    let whole = (number * MILLION).round();
    let is_near = (whole / MILLION - number).abs() <= number.abs() * 1e-5;
    (is_near && (1.0..=MILLION).contains(&whole)).then_some(whole as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epsilon_is_a_number_of_millionths_or_none() {
        let known = [1e-5, 1e-6, 2e-5, 1e-3].map(millionths);
        assert_eq!(known, [Some(10), Some(1), Some(20), Some(1000)]);
        assert_eq!([1e-12, 1.5e-6, 0.0, -1e-5, f32::NAN].map(millionths), [None; 5]);
    }
}
