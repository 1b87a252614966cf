use super::packet::Head;
use super::{Counted, Input, Share, SplitError, Worker};
use crate::quantised::{Layer, Part, RowView};
use std::ops::Range;

/// Sums of one row of the output, until all boards have added theirs.
pub(super) struct Sums {
    values: Counted<i32>,
    /// How much of the row each of the others has still to add.
    missing: Vec<usize>,
}

impl Sums {
    /// Adds the next sums from a board.
    pub(super) fn receive(
        &mut self,
        peer: usize,
        head: Head,
        payload: &[u8],
        input: &Input,
    ) -> Result<(), SplitError> {
        let unasked = || head.unasked(peer);
        let at = input.from.iter().position(|share| share.peer == peer);
        let missing = self
            .missing
            .get_mut(at.ok_or_else(unasked)?)
            .ok_or_else(unasked)?;
        let sums = payload.len() / 4;
        if sums > *missing || head.offset != self.values.len() - *missing {
            return Err(unasked());
        }
        let values = self.values[head.offset..].iter_mut();
        for (value, sum) in values.zip(payload.as_chunks::<4>().0) {
            *value = value.wrapping_add(i32::from_le_bytes(*sum));
        }
        *missing -= sums;
        Ok(())
    }
}

/// Whether what a board holds of the input takes part in a row of the output.
pub(super) fn takes_part(layer: &Layer, held: &Part, row: usize, outputs: &Range<usize>) -> bool {
    let needed = layer.needs(&Part::new(row..row + 1, outputs.clone()));
    !needed.and(held).is_empty()
}

impl Worker {
    /// Begins the sums of the next row, or finishes them when all have added theirs.
    pub(super) fn next_sums(&mut self) -> Result<bool, SplitError> {
        let stage = self.current();
        let (layer, output, row) = (stage.layers.start, stage.output.clone(), self.next);
        if row >= output.rows.end {
            return Ok(false);
        }
        let shape = self.network.layers()[layer].clone();
        let Some(sums) = self
            .sums
            .take_if(|sums| sums.missing.iter().all(|missing| *missing == 0))
        else {
            if self.sums.is_none() {
                self.begin_sums(&shape, row, &output.channels)?;
                return Ok(true);
            }
            return Ok(false);
        };
        let mut values = self.account.take(sums.values.len());
        self.network
            .finish(layer, &output.channels, &sums.values, &mut values)?;
        drop(sums);
        if let Some(held) = self.held.get_mut(&(layer + 1)) {
            held.rows.insert(row, values);
        }
        self.next += 1;
        Ok(true)
    }

    fn begin_sums(&mut self, shape: &Layer, row: usize, outputs: &Range<usize>) -> Result<(), SplitError> {
        let values = self.sums_of(row, outputs)?;
        let missing = |share: &Share| match takes_part(shape, &share.part, row, outputs) {
            true => values.len(),
            false => 0,
        };
        let missing = self.current().inputs[0].from.iter().map(missing).collect();
        self.sums = Some(Sums { values, missing });
        self.grant(0, |share| {
            takes_part(shape, &share.part, row, outputs).then_some(row + 1)
        });
        Ok(())
    }

    /// What this board's part of the input adds to a row of some output channels.
    pub(super) fn sums_of(&self, row: usize, outputs: &Range<usize>) -> Result<Counted<i32>, SplitError> {
        let stage = self.current();
        let (layer, part) = (stage.layers.start, &stage.inputs[0].part);
        let shape = &self.network.layers()[layer];
        let mut sums = self.account.take(shape.output().width * outputs.len());
        if part.is_empty() {
            return Ok(sums);
        }
        let mut scratch = self.account.take(self.network.scratch(layer));
        let lost = || SplitError::Program {
            stage: self.stage,
            what: "it sums over what it does not hold",
        };
        let held = self.held.get(&stage.inputs[0].activation).ok_or_else(lost)?;
        let tap = |row: isize| match usize::try_from(row) {
            Ok(row) if part.rows.contains(&row) => {
                let row = held.rows.get(&row).ok_or_else(lost)?;
                Ok(Some(RowView::new(row, &held.channels)?))
            }
            _ => Ok(None),
        };
        let taps = shape
            .window(row)
            .map(tap)
            .collect::<Result<Vec<_>, SplitError>>()?;
        self.network
            .add_sums(layer, &taps, outputs, &part.channels, &mut scratch, &mut sums)?;
        Ok(sums)
    }
}
