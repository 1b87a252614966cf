//! Elements of a tensor in another order: transposed, cut out, repeated, or looked up.

use super::concat::place_of;
use super::draft::Slot;
use super::feed::Taken;
use super::translate::{Translation, count, refuse};
use crate::InferError;
use crate::graph::{Operand, Operation};
use karman_gpu::{Gather, Kernel, Rearrange};

/// A dimension of a result: its size, and how far its source goes on along it.
type Way = (u32, i64);

impl Translation<'_> {
    pub(super) fn transpose(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (slot, dims) = self.edge(operation, 0)?;
        let reversed: Vec<i64> = (0..dims.len() as i64).rev().collect();
        let given = operation.ints("perm").unwrap_or(&reversed);
        let order: Vec<usize> = given
            .iter()
            .filter_map(|axis| place_of(*axis, dims.len()))
            .collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..dims.len()) {
            return refuse(operation, format!("its `perm` is {given:?}"));
        }
        self.permuted(slot, &dims, &order).map(|(slot, _)| slot)
    }

    /// A tensor with its dimensions in this order, and their sizes.
    pub(super) fn permuted(
        &mut self,
        slot: Slot,
        dims: &[u32],
        order: &[usize],
    ) -> Result<(Slot, Vec<u32>), InferError> {
        let strides = strides(dims);
        let ways: Vec<Way> = order.iter().map(|axis| (dims[*axis], strides[*axis])).collect();
        let slot = self.rearranged(slot, 0, &ways)?;
        Ok((slot, ways.iter().map(|(size, _)| *size).collect()))
    }

    pub(super) fn slice(&mut self, operation: &Operation<'_>, output: usize) -> Result<Slot, InferError> {
        let (slot, dims) = self.edge(operation, 0)?;
        let (gives, rank) = (self.dims(output)?, dims.len());
        let starts = self.numbers(operation, 1)?.unwrap_or_default();
        let axes = self.axes(operation, 3, rank)?;
        let axes = axes.unwrap_or_else(|| (0..starts.len()).collect());
        // Ends that follow from sizes are as the output says.
        let ends = match operation.input(2) {
            Operand::Constant(_) => self.numbers(operation, 2)?,
            _ => None,
        };
        let steps = self
            .numbers(operation, 4)?
            .unwrap_or_else(|| vec![1; starts.len()]);
        let count = ends.as_ref().map_or(starts.len(), Vec::len);
        let is_whole = [axes.len(), steps.len(), count] == [starts.len(); 3] && gives.len() == rank;
        if !is_whole || axes.iter().any(|axis| *axis >= rank) || steps.contains(&0) {
            return refuse(operation, "its starts, axes and steps do not fit each other");
        }
        let strides = strides(&dims);
        let mut ways: Vec<Way> = dims.iter().copied().zip(strides.iter().copied()).collect();
        let mut begin = 0i64;
        for (place, ((axis, start), step)) in axes.into_iter().zip(starts).zip(steps).enumerate() {
            let first = first_of(dims[axis], start, step);
            begin = first.saturating_mul(strides[axis]).saturating_add(begin);
            let size = match &ends {
                Some(ends) => places(dims[axis], first, ends[place], step),
                None => gives[axis],
            };
            ways[axis] = (size, strides[axis].saturating_mul(step));
        }
        let sizes: Vec<u32> = ways.iter().map(|(size, _)| *size).collect();
        // At another batch what lies between two places need not be what it is at those that were inferred.
        if sizes != gives {
            return refuse(
                operation,
                format!("it makes {sizes:?}, and is taken to make {gives:?}"),
            );
        }
        self.rearranged(slot, begin, &ways)
    }

    /// The parts of a tensor, each for an output that is used.
    pub(super) fn split(
        &mut self,
        operation: &Operation<'_>,
        outputs: &[Option<usize>],
    ) -> Result<Vec<(usize, Slot)>, InferError> {
        let (slot, dims) = self.edge(operation, 0)?;
        let Some(axis) = place_of(operation.int("axis", 0), dims.len()) else {
            return refuse(operation, "its `axis` is none of its input's");
        };
        // Where nothing is said they are equal, but for the last.
        let equal = u64::from(dims[axis]).div_ceil(outputs.len().max(1) as u64) as i64;
        let widths = self.numbers(operation, 1)?;
        let widths = widths.unwrap_or_else(|| vec![equal; outputs.len()]);
        if widths.len() != outputs.len() || widths.iter().any(|width| *width < 0) {
            return refuse(operation, format!("its parts are {widths:?}"));
        }
        let strides = strides(&dims);
        let (mut begin, mut parts) = (0i64, Vec::new());
        for (width, output) in widths.into_iter().zip(outputs) {
            if let Some(output) = output {
                let gives = self.dims(*output)?;
                let left = i64::from(dims[axis]).saturating_sub(begin);
                if gives.get(axis).copied().map(i64::from) != Some(width.min(left)) {
                    return refuse(operation, format!("a part of {width} is taken to be {gives:?}"));
                }
                let ways: Vec<Way> = gives.into_iter().zip(strides.iter().copied()).collect();
                let first = begin.saturating_mul(strides[axis]);
                parts.push((*output, self.rearranged(slot, first, &ways)?));
            }
            begin = begin.saturating_add(width);
        }
        // Each of them is read for itself.
        self.draft.keep(slot);
        Ok(parts)
    }

    pub(super) fn expand(&mut self, operation: &Operation<'_>, output: usize) -> Result<Slot, InferError> {
        let gives = self.dims(output)?;
        if let Operand::Edge(_) = operation.input(0) {
            let (slot, dims) = self.edge(operation, 0)?;
            return match self.expanded(slot, &dims, &gives)? {
                Some(slot) => Ok(slot),
                None => refuse(operation, format!("it makes {gives:?} of {dims:?}")),
            };
        }
        let weight = self.constant(operation, 0)?;
        self.spread(operation, &weight.shape, &weight.values, &gives)
    }

    /// A tensor as long as these sizes: its dimensions of one, and those that it lacks in front, go on and on. None where it does not fit.
    pub(super) fn expanded(
        &mut self,
        slot: Slot,
        dims: &[u32],
        gives: &[u32],
    ) -> Result<Option<Slot>, InferError> {
        let Some(lacks) = gives.len().checked_sub(dims.len()) else {
            return Ok(None);
        };
        let mut ways: Vec<Way> = gives.iter().map(|size| (*size, 0)).collect();
        for (way, (size, stride)) in ways[lacks..].iter_mut().zip(dims.iter().zip(strides(dims))) {
            match *size {
                size if size == way.0 => way.1 = stride,
                1 => {}
                _ => return Ok(None),
            }
        }
        self.rearranged(slot, 0, &ways).map(Some)
    }

    /// Rows by numbers that stand in the file, or that are an input of the model.
    pub(super) fn gather(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (slot, dims) = self.operand(operation, 0)?;
        let Some((axis, (before, [rows, after @ ..]))) = place_of(operation.int("axis", 0), dims.len())
            .and_then(|axis| Some((axis, dims.split_at_checked(axis)?)))
        else {
            return refuse(operation, "its `axis` is none of its input's");
        };
        let (numbers, length) = match self.whole_input(operation, 1) {
            Some(input) => {
                let slot = self.feed(input, Taken::Rows(*rows))?;
                (slot, self.draft.words(slot))
            }
            None => {
                let numbers = self.numbers(operation, 1)?.unwrap_or_default();
                let known = -i64::from(*rows)..i64::from(*rows);
                if let Some(number) = numbers.iter().find(|number| !known.contains(number)) {
                    return refuse(operation, format!("it asks for row {number} of {rows}"));
                }
                if let &[number] = &numbers[..] {
                    let strides = strides(&dims);
                    let begin = number.rem_euclid(i64::from(*rows)).saturating_mul(strides[axis]);
                    let mut ways: Vec<Way> = dims.iter().copied().zip(strides).collect();
                    ways.remove(axis);
                    return self.rearranged(slot, begin, &ways);
                }
                // A constant holds words, whatever they mean.
                let words = numbers
                    .iter()
                    .map(|number| f32::from_bits((*number as i32).cast_unsigned()));
                (self.hold(words.collect())?, numbers.len())
            }
        };
        let shape = Gather {
            tables: short(count(before)),
            rows: *rows,
            width: short(count(after)),
            numbers: short(length as u64),
        };
        Ok(self.draft.call(Kernel::Gather(shape), vec![slot, numbers])?)
    }

    /// Each element several times, where that is what the nearest of them are.
    pub(super) fn resize(&mut self, operation: &Operation<'_>, output: usize) -> Result<Slot, InferError> {
        let (slot, dims) = self.edge(operation, 0)?;
        let gives = self.dims(output)?;
        let times = |(size, gives): (&u32, &u32)| match *size > 0 && gives.is_multiple_of(*size) {
            true => Some(gives / size),
            false => None,
        };
        let times: Option<Vec<u32>> = dims.iter().zip(&gives).map(times).collect();
        let Some(times) = times.filter(|times| times.len() == gives.len()) else {
            return refuse(
                operation,
                format!("it makes {gives:?} of {dims:?}: no whole multiple"),
            );
        };
        if operation.text("mode", "nearest") != "nearest" {
            return refuse(
                operation,
                format!("its `mode` is {:?}", operation.text("mode", "")),
            );
        }
        // What lies between two elements of which neither is nearer is left to the one before.
        let nearest = (
            operation.text("coordinate_transformation_mode", "half_pixel"),
            operation.text("nearest_mode", "round_prefer_floor"),
        );
        let most = times.iter().copied().max().unwrap_or(1);
        let is_before = match nearest {
            ("asymmetric", "floor") => true,
            ("asymmetric", "round_prefer_floor") => most <= 2,
            ("half_pixel" | "pytorch_half_pixel", "round_prefer_floor" | "round_prefer_ceil") => true,
            _ => most == 1,
        };
        if !is_before || !self.scales_are(operation, &times)? {
            return refuse(
                operation,
                format!("its nearest elements are those of {nearest:?}"),
            );
        }
        let mut ways: Vec<Way> = Vec::new();
        for ((size, stride), times) in dims.iter().zip(strides(&dims)).zip(times) {
            ways.push((*size, stride));
            if times > 1 {
                ways.push((times, 0));
            }
        }
        self.rearranged(slot, 0, &ways)
    }

    /// Whether the factors that stand in the file, if any do, are these.
    fn scales_are(&self, operation: &Operation<'_>, times: &[u32]) -> Result<bool, InferError> {
        let scales = self.optional(operation, 2)?.map(|weight| weight.values);
        Ok(match scales.as_deref() {
            None | Some([]) => true,
            Some(scales) => times.iter().map(|times| *times as f32).eq(scales.iter().copied()),
        })
    }

    /// Whole numbers of an input as `f32`.
    pub(super) fn cast(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        const FLOAT: i64 = 1;
        if operation.int("to", 0) != FLOAT {
            return refuse(operation, "it is no conversion to f32");
        }
        match self.whole_input(operation, 0) {
            Some(input) => self.feed(input, Taken::Converted),
            None => self.edge(operation, 0).map(|(slot, _)| slot),
        }
    }

    /// The dimensions that an operator is set to, or takes in this place; none where it leaves them out.
    pub(super) fn axes(
        &self,
        operation: &Operation<'_>,
        place: usize,
        rank: usize,
    ) -> Result<Option<Vec<usize>>, InferError> {
        let axes = match operation.ints("axes") {
            Some(axes) => axes.to_vec(),
            None => match self.numbers(operation, place)? {
                Some(axes) => axes,
                None => return Ok(None),
            },
        };
        let places: Option<Vec<usize>> = axes.iter().map(|axis| place_of(*axis, rank)).collect();
        match places {
            Some(places) => Ok(Some(places)),
            None => refuse(operation, format!("its `axes` are {axes:?}")),
        }
    }

    /// The elements of a slot, from this one on, along these ways: the slot itself where they lie there so.
    fn rearranged(&mut self, slot: Slot, begin: i64, ways: &[Way]) -> Result<Slot, InferError> {
        let sizes: Vec<u32> = ways.iter().map(|(size, _)| *size).collect();
        let mut each = ways.iter().zip(strides(&sizes));
        let is_plain = each.all(|((size, step), stride)| *size == 1 || *step == stride);
        let length = self.draft.words(slot) as u64;
        if is_plain && count(&sizes) == length {
            return Ok(slot);
        }
        let shape = Rearrange {
            length: short(length),
            begin: u32::try_from(begin).unwrap_or(u32::MAX),
            sizes,
            // Where there is one place only, no step is taken.
            steps: ways
                .iter()
                .map(|(size, step)| match size {
                    1 => 0,
                    _ => i32::try_from(*step).unwrap_or(i32::MAX),
                })
                .collect(),
        };
        Ok(self.draft.call(Kernel::Rearrange(shape), vec![slot])?)
    }
}

/// A place of a dimension, which may be counted from its end.
fn from_front(size: i64, place: i64) -> i64 {
    let from_end = if place < 0 { size } else { 0 };
    place.saturating_add(from_end)
}

/// Where a slice of a dimension begins.
fn first_of(size: u32, start: i64, step: i64) -> i64 {
    let size = i64::from(size);
    // The last that it may begin at is one that is there where it goes backwards.
    let most = if step < 0 { size - 1 } else { size };
    from_front(size, start).clamp(0, most.max(0))
}

/// How many places of a dimension a slice from there has.
fn places(size: u32, first: i64, end: i64, step: i64) -> u32 {
    let size = i64::from(size);
    let end = from_front(size, end);
    let reach = match step < 0 {
        true => first - end.clamp(-1, size - 1),
        false => end.clamp(0, size) - first,
    };
    short(reach.max(0).unsigned_abs().div_ceil(step.unsigned_abs()))
}

/// How far a tensor of these sizes goes on along each of them.
fn strides(dims: &[u32]) -> Vec<i64> {
    let mut stride = 1i64;
    let mut strides: Vec<i64> = dims
        .iter()
        .rev()
        .map(|size| {
            let own = stride;
            stride = stride.saturating_mul((*size).into());
            own
        })
        .collect();
    strides.reverse();
    strides
}

/// What 32 bits do not count is longer than any array may be, and refused.
fn short(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_has_the_places_between_its_ends() {
        let slice = |start, end, step| {
            let first = first_of(5, start, step);
            (first, places(5, first, end, step))
        };
        for (given, expected) in [
            ((0, 2, 1), (0, 2)),
            ((1, i64::MAX, 2), (1, 2)),
            ((0, -1, 1), (0, 4)),
            ((-2, 9, 1), (3, 2)),
            ((3, 3, 1), (3, 0)),
            ((9, 9, 1), (5, 0)),
            ((-1, i64::MIN, -1), (4, 5)),
            ((9, 0, -3), (4, 2)),
        ] {
            let (start, end, step) = given;
            assert_eq!(slice(start, end, step), expected, "{given:?}");
        }
    }

    #[test]
    fn the_last_dimension_goes_on_by_one() {
        assert_eq!(strides(&[2, 3, 4]), [12, 4, 1]);
        assert_eq!(strides(&[5]), [1]);
        assert!(strides(&[]).is_empty());
        assert_eq!(strides(&[u32::MAX; 4])[0], i64::MAX);
    }
}
