//! Tensors one after the other.

use super::draft::Slot;
use super::translate::{Translation, count, refuse};
use crate::InferError;
use crate::graph::{Operand, Operation};
use karman_gpu::{Concat, Kernel};

impl Translation<'_> {
    /// Tensors and constants one after the other along an axis.
    pub(super) fn concat(&mut self, operation: &Operation<'_>, output: usize) -> Result<Slot, InferError> {
        let dims = self.dims(output)?;
        let axis = operation.int("axis", 0);
        let Some(at) = place_of(axis, dims.len()) else {
            return refuse(operation, format!("its `axis` is {axis}"));
        };
        let mut parts = Vec::with_capacity(operation.inputs.len());
        for place in 0..operation.inputs.len() {
            let (slot, part) = match operation.input(place) {
                Operand::Edge(_) => self.edge(operation, place)?,
                _ => {
                    let weight = self.constant(operation, place)?;
                    (self.hold(weight.values)?, weight.shape)
                }
            };
            let fits =
                part.len() == dims.len() && part[..at] == dims[..at] && part[at + 1..] == dims[at + 1..];
            if !fits {
                return refuse(
                    operation,
                    format!("its input {place} is {part:?}, and the whole {dims:?}"),
                );
            }
            parts.push((slot, count(&part[at..])));
        }
        self.beside(operation, count(&dims[..at]), parts)
    }

    /// Arrays of this many rows, each with its columns, beside each other: as many at once as a kernel takes.
    fn beside(
        &mut self,
        operation: &Operation<'_>,
        rows: u64,
        mut parts: Vec<(Slot, u64)>,
    ) -> Result<Slot, InferError> {
        // What 32 bits do not count is longer than any array may be, and refused.
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        while parts.len() > 1 {
            let rest = parts.split_off(parts.len().min(Concat::MOST));
            let shape = Concat {
                rows: short(rows),
                widths: parts.iter().map(|(_, width)| short(*width)).collect(),
            };
            let slots = parts.iter().map(|(slot, _)| *slot).collect();
            let width = parts
                .iter()
                .fold(0u64, |all, (_, width)| all.saturating_add(*width));
            let slot = self.draft.call(Kernel::Concat(shape), slots)?;
            parts = rest;
            parts.insert(0, (slot, width));
        }
        match parts.pop() {
            Some((slot, _)) => Ok(slot),
            None => refuse(operation, "it is given nothing"),
        }
    }
}

/// The dimension that an axis means, which may be counted from the end.
pub(super) fn place_of(axis: i64, dimensions: usize) -> Option<usize> {
    let from_end = if axis < 0 { dimensions as i64 } else { 0 };
    let place = usize::try_from(axis.saturating_add(from_end)).ok();
    place.filter(|place| *place < dimensions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_is_counted_from_either_end() {
        assert_eq!(place_of(1, 4), Some(1));
        assert_eq!(place_of(-1, 4), Some(3));
        assert_eq!(place_of(-4, 4), Some(0));
        for (axis, dimensions) in [(4, 4), (-5, 4), (0, 0), (i64::MIN, 4), (i64::MAX, 4)] {
            assert_eq!(place_of(axis, dimensions), None, "{axis}");
        }
    }
}
