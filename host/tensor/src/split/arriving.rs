use super::packet::Head;
use super::{Account, Counted, Input, Share, SplitError};
use crate::quantised::RowView;
use std::collections::BTreeMap;
use std::ops::Range;

/// Rows of one input that others send, from when they are asked for until their last use.
pub(super) struct Arriving {
    rows: BTreeMap<usize, Row>,
    /// Rows before this one have been asked for.
    pub(super) opened: usize,
}

struct Row {
    values: Counted<i8>,
    missing: usize,
    /// How much of it each of the suppliers has sent.
    progress: Vec<usize>,
}

impl Arriving {
    pub(super) const fn new(input: &Input) -> Self {
        Self {
            rows: BTreeMap::new(),
            opened: input.part.rows.start,
        }
    }

    /// Makes room for a row; what this board holds of it itself is copied.
    pub(super) fn open(
        &mut self,
        row: usize,
        input: &Input,
        width: usize,
        own: Option<(&[i8], &Range<usize>)>,
        account: &Account,
    ) {
        let channels = &input.part.channels;
        let mut values = account.take(width * channels.len());
        let mut missing = values.len();
        if let Some((own, have)) = own {
            let both = have.start.max(channels.start)..have.end.min(channels.end);
            if !both.is_empty() {
                let cells = values
                    .chunks_exact_mut(channels.len())
                    .zip(own.chunks_exact(have.len()));
                for (cell, own) in cells {
                    cell[both.start - channels.start..both.end - channels.start]
                        .copy_from_slice(&own[both.start - have.start..both.end - have.start]);
                }
                missing -= width * both.len();
            }
        }
        let progress = vec![0; input.from.len()];
        let row_state = Row {
            values,
            missing,
            progress,
        };
        self.rows.insert(row, row_state);
    }

    /// Takes in the next values of a row from a supplier.
    pub(super) fn receive(
        &mut self,
        peer: usize,
        head: Head,
        payload: &[u8],
        input: &Input,
        width: usize,
    ) -> Result<(), SplitError> {
        let unasked = || head.unasked(peer);
        let owes = |share: &Share| share.peer == peer && share.part.rows.contains(&head.row);
        let supplier = input.from.iter().position(owes).ok_or_else(unasked)?;
        let row = self.rows.get_mut(&head.row).ok_or_else(unasked)?;
        let (sent, all) = (&input.from[supplier].part.channels, &input.part.channels);
        let last = head.offset + payload.len();
        if row.progress[supplier] != head.offset || last > width * sent.len() || payload.len() > row.missing {
            return Err(unasked());
        }
        let base = sent.start - all.start;
        for (place, byte) in (head.offset..last).zip(payload) {
            row.values[place / sent.len() * all.len() + base + place % sent.len()] = *byte as i8;
        }
        row.progress[supplier] = last;
        row.missing -= payload.len();
        Ok(())
    }

    /// Whether all rows before this one that were asked for are whole.
    pub(super) fn whole_before(&self, row: usize) -> bool {
        self.rows.range(..row).all(|(_, row)| row.missing == 0)
    }

    pub(super) fn view<'a>(&'a self, row: usize, channels: &Range<usize>) -> Option<RowView<'a>> {
        RowView::new(&self.rows.get(&row)?.values, channels).ok()
    }

    /// A whole row, no longer kept here.
    pub(super) fn take(&mut self, row: usize) -> Option<Counted<i8>> {
        Some(self.rows.remove(&row)?.values)
    }

    /// Drops the rows before this one. Those that a stride leaves out are awaited first: they were asked for.
    pub(super) fn drop_before(&mut self, row: usize) {
        self.rows.retain(|at, state| *at >= row || state.missing > 0);
    }
}
