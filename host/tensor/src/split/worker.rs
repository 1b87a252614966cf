use super::arriving::Arriving;
use super::packet::{HEAD_BYTES, Head, MOST_BYTES, What};
use super::reduce::Sums;
use super::stream::Stream;
use super::{Account, Counted, Program, Share, SplitError, Stage, Work};
use crate::quantised::Network;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// One board, or the coordinator, at work on its program.
pub struct Worker {
    pub(super) network: Arc<Network>,
    pub(super) program: Program,
    pub(super) account: Account,
    pub(super) stage: usize,
    /// The rows that this board computed, or was given at the start, by activation.
    pub(super) held: BTreeMap<usize, Held>,
    /// Rows from others, for each input of the stage.
    pub(super) arriving: Vec<Arriving>,
    /// What is still to be sent, for each input of the stage and each share of it.
    owed: Vec<Vec<Owed>>,
    /// Rows before this one may be sent, by stage, input and peer. Others may be a stage further.
    granted: BTreeMap<(usize, usize, usize), usize>,
    outbox: VecDeque<Packet>,
    /// The next row of the stage's output.
    pub(super) next: usize,
    pub(super) stream: Stream,
    pub(super) sums: Option<Sums>,
}

/// Some channels of some rows of an activation.
pub(super) struct Held {
    pub(super) channels: Range<usize>,
    pub(super) rows: BTreeMap<usize, Counted<i8>>,
}

/// How far a share has been sent.
struct Owed {
    row: usize,
    offset: usize,
    /// The row's sums, while they are being sent.
    sums: Option<Counted<i32>>,
}

/// Bytes for a peer. They are the board's until dropped: its driver sends them first.
#[derive(Debug)]
pub struct Packet {
    /// Its index among the boards; the coordinator comes after the last board.
    pub to: usize,
    /// What goes over the wire.
    pub bytes: Counted<u8>,
}

impl Worker {
    /// A worker at the start of its program. `input` has the values of what the program says it [holds](Program::holds): the
    /// whole input row by row, column by column, channel by channel for the coordinator, nothing for a board.
    ///
    /// # Errors
    /// [`SplitError::Program`] when the program does not fit the network, [`SplitError::Input`] when the input has another length.
    pub fn new(network: Arc<Network>, program: Program, input: &[i8]) -> Result<Self, SplitError> {
        program.check(&network)?;
        let (extent, holds) = (network.input(), program.holds.clone());
        let row = extent.width * holds.channels.len();
        let expected = row * holds.rows.len();
        if input.len() != expected || holds.and(&extent.whole()) != holds {
            return Err(SplitError::Input {
                expected,
                given: input.len(),
            });
        }
        let account = Account::default();
        let mut rows = BTreeMap::new();
        for (row, values) in holds.rows.clone().zip(input.chunks(row.max(1))) {
            let mut held = account.empty();
            held.grow(values);
            rows.insert(row, held);
        }
        let channels = holds.channels;
        let mut worker = Self {
            network,
            program,
            account,
            stage: 0,
            held: BTreeMap::from([(0, Held { channels, rows })]),
            arriving: Vec::new(),
            owed: Vec::new(),
            granted: BTreeMap::new(),
            outbox: VecDeque::new(),
            next: 0,
            stream: Stream::default(),
            sums: None,
        };
        worker.enter();
        Ok(worker)
    }

    /// What it has and had in memory.
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// The stage that it is in; the number of stages when it is done.
    pub const fn stage(&self) -> usize {
        self.stage
    }

    /// Whether it has computed and sent everything.
    pub fn is_done(&self) -> bool {
        self.stage == self.program.stages.len() && self.outbox.is_empty()
    }

    /// The values of the last activation that it holds, once it is done: all for the coordinator.
    pub fn answer(&self) -> Vec<i8> {
        let last = self.network.layers().len();
        let rows = self.held.get(&last).map(|held| held.rows.values());
        rows.into_iter()
            .flatten()
            .flat_map(|row| row.iter().copied())
            .collect()
    }

    /// Takes in a packet from a peer. Packets of one peer arrive in the order in which it sent them.
    ///
    /// # Errors
    /// [`SplitError::Malformed`] and [`SplitError::Unasked`] blame the peer; the worker is as it was before.
    pub fn handle(&mut self, peer: usize, packet: &[u8]) -> Result<(), SplitError> {
        let mut received = self.account.empty();
        received.grow(packet);
        let (head, payload) = Head::read(peer, &received)?;
        let unasked = || head.unasked(peer);
        let stage = self.program.stages.get(head.stage).ok_or_else(unasked)?;
        let input = stage.inputs.get(head.input).ok_or_else(unasked)?;
        match (head.what, stage.work) {
            (What::Grant, _) => {
                let known = |share: &Share| share.peer == peer && head.row <= share.part.rows.end;
                if head.stage < self.stage || !input.to.iter().any(known) {
                    return Err(unasked());
                }
                let granted = self.granted.entry((head.stage, head.input, peer)).or_default();
                *granted = head.row.max(*granted);
                Ok(())
            }
            (What::Rows, Work::Run) if head.stage == self.stage => {
                let width = self.network.activation(input.activation).width;
                self.arriving[head.input].receive(peer, head, payload, input, width)
            }
            (What::Sums, Work::Reduce) if head.stage == self.stage => {
                let sums = self
                    .sums
                    .as_mut()
                    .filter(|_| head.row == self.next)
                    .ok_or_else(unasked)?;
                sums.receive(peer, head, payload, input)
            }
            _ => Err(unasked()),
        }
    }

    /// The next packet to send, computing as far as is needed for it; `None` when it waits for packets, or is done.
    ///
    /// # Errors
    /// [`SplitError`] when the program asks for what cannot be.
    pub fn poll(&mut self) -> Result<Option<Packet>, SplitError> {
        loop {
            if let Some(packet) = self.outbox.pop_front() {
                return Ok(Some(packet));
            }
            if let Some(packet) = self.pay()? {
                return Ok(Some(packet));
            }
            let Some(stage) = self.program.stages.get(self.stage) else {
                return Ok(None);
            };
            let (work, end) = (stage.work, stage.output.rows.end);
            let computed = match work {
                Work::Run => self.next_row()?,
                Work::Reduce => self.next_sums()?,
            };
            if computed || !self.outbox.is_empty() {
                continue;
            }
            if self.next < end || !self.paid() {
                return Ok(None);
            }
            self.leave();
        }
    }

    pub(super) fn current(&self) -> &Stage {
        &self.program.stages[self.stage]
    }

    /// Tells the suppliers of an input up to which row they may send, where there is one.
    pub(super) fn grant(&mut self, input: usize, until: impl Fn(&Share) -> Option<usize>) {
        let stage = self.stage;
        for share in &self.program.stages[stage].inputs[input].from {
            let Some(row) = until(share) else { continue };
            let head = Head {
                what: What::Grant,
                input,
                stage,
                row,
                offset: 0,
            };
            self.outbox.push_back(Packet {
                to: share.peer,
                bytes: head.write(&self.account),
            });
        }
    }

    /// The next packet of what this board owes and was asked for.
    fn pay(&mut self) -> Result<Option<Packet>, SplitError> {
        let Some(stage) = self.program.stages.get(self.stage) else {
            return Ok(None);
        };
        for (input, owing) in stage.inputs.iter().enumerate() {
            // A row of sums that was begun goes first: there is one of them at a time.
            let begun = self.owed[input].iter().position(|owed| owed.sums.is_some());
            for (at, share) in owing.to.iter().enumerate() {
                if begun.is_some_and(|begun| begun != at) {
                    continue;
                }
                let granted = self.granted.get(&(self.stage, input, share.peer));
                let owed = &self.owed[input][at];
                if owed.row >= granted.copied().unwrap_or(0).min(share.part.rows.end) {
                    continue;
                }
                let share = share.clone();
                return match stage.work {
                    Work::Run => self.pay_row(input, at, &share).map(Some),
                    Work::Reduce => self.pay_sums(input, at, &share).map(Some),
                };
            }
        }
        Ok(None)
    }

    fn pay_row(&mut self, input: usize, at: usize, share: &Share) -> Result<Packet, SplitError> {
        let activation = self.current().inputs[input].activation;
        let stage = self.stage;
        let wrong = || SplitError::Program {
            stage,
            what: "it owes what it does not hold",
        };
        let owed = &mut self.owed[input][at];
        let held = self.held.get(&activation).ok_or_else(wrong)?;
        let row = held.rows.get(&owed.row).ok_or_else(wrong)?;
        let (have, send) = (&held.channels, &share.part.channels);
        if send.start < have.start || send.end > have.end {
            return Err(wrong());
        }
        let cells = row.chunks_exact(have.len());
        let values = cells.flat_map(|cell| &cell[send.start - have.start..send.end - have.start]);
        let head = Head {
            what: What::Rows,
            input,
            stage: self.stage,
            row: owed.row,
            offset: owed.offset,
        };
        let mut bytes = head.write(&self.account);
        let payload: Vec<u8> = values
            .skip(owed.offset)
            .take(MOST_BYTES - HEAD_BYTES)
            .map(|value| *value as u8)
            .collect();
        bytes.grow(&payload);
        owed.offset += payload.len();
        if owed.offset == row.len() / have.len() * send.len() {
            (owed.row, owed.offset) = (owed.row + 1, 0);
            self.prune_held(input);
        }
        Ok(Packet {
            to: share.peer,
            bytes,
        })
    }

    fn pay_sums(&mut self, input: usize, at: usize, share: &Share) -> Result<Packet, SplitError> {
        let Owed { row, offset, sums } = &mut self.owed[input][at];
        let (row, offset, sums) = (*row, *offset, sums.take());
        let sums = match sums {
            Some(sums) => sums,
            None => self.sums_of(row, &share.part.channels)?,
        };
        let head = Head {
            what: What::Sums,
            input,
            stage: self.stage,
            row,
            offset,
        };
        let mut bytes = head.write(&self.account);
        let last = sums.len().min(offset + (MOST_BYTES - HEAD_BYTES) / 4);
        for sum in &sums[offset..last] {
            bytes.grow(&sum.to_le_bytes());
        }
        self.owed[input][at] = match last == sums.len() {
            true => Owed {
                row: row + 1,
                offset: 0,
                sums: None,
            },
            false => Owed {
                row,
                offset: last,
                sums: Some(sums),
            },
        };
        Ok(Packet {
            to: share.peer,
            bytes,
        })
    }

    /// Whether everything that this board owes in this stage was sent.
    fn paid(&self) -> bool {
        let inputs = self.current().inputs.iter().zip(&self.owed);
        let mut shares = inputs.flat_map(|(input, owed)| input.to.iter().zip(owed));
        shares.all(|(share, owed)| owed.row >= share.part.rows.end)
    }

    /// Whether no board waits for a held row of an input any more.
    fn is_paid(&self, input: usize, row: usize) -> bool {
        let shares = self.current().inputs[input].to.iter().zip(&self.owed[input]);
        let waits = |(share, owed): (&Share, &Owed)| share.part.rows.contains(&row) && owed.row <= row;
        !shares.into_iter().any(waits)
    }

    /// Drops the held rows of an input that neither this board nor another needs any more.
    pub(super) fn prune_held(&mut self, input: usize) {
        let given = &self.current().inputs[input];
        if given.keep || self.current().work == Work::Reduce {
            return;
        }
        let (activation, rows) = (given.activation, given.part.rows.clone());
        let low = self.low_water(activation);
        let done = |row: &usize| (*row < low || !rows.contains(row)) && self.is_paid(input, *row);
        let done: Vec<usize> = match self.held.get(&activation) {
            Some(held) => held.rows.keys().copied().filter(done).collect(),
            None => return,
        };
        if let Some(held) = self.held.get_mut(&activation) {
            held.rows.retain(|row, _| !done.contains(row));
        }
    }

    fn enter(&mut self) {
        let Some(stage) = self.program.stages.get(self.stage) else {
            return;
        };
        self.arriving = stage.inputs.iter().map(Arriving::new).collect();
        let owed = |share: &Share| Owed {
            row: share.part.rows.start,
            offset: 0,
            sums: None,
        };
        let inputs = stage.inputs.iter();
        self.owed = inputs.map(|input| input.to.iter().map(owed).collect()).collect();
        self.next = stage.output.rows.start;
        self.stream = Stream::new(self.network.layers(), stage);
        self.sums = None;
        if !stage.output.is_empty() {
            let channels = stage.output.channels.clone();
            let rows = BTreeMap::new();
            self.held.insert(stage.layers.end, Held { channels, rows });
        }
    }

    fn leave(&mut self) {
        let stage = &self.program.stages[self.stage];
        for input in &stage.inputs {
            // What is only collected stays, under the same number.
            if !input.keep && input.activation != stage.layers.end {
                self.held.remove(&input.activation);
            }
        }
        if stage.layers.is_empty() && stage.output.is_empty() {
            self.held.remove(&stage.layers.end);
        }
        let left = self.stage;
        self.granted.retain(|(stage, ..), _| *stage > left);
        self.stage += 1;
        self.enter();
        if self.stage == self.program.stages.len() {
            self.arriving.clear();
            self.owed.clear();
        }
    }
}
