//! The published split: every layer in flat order, every board a run of its elements.
//!
//! It follows Lu et al. (arXiv 2605.09357) step by step, as the comparator of the split of this crate. A board waits until it has all
//! input that its outputs touch, padding included; computes its outputs; drops the input; and when its turn comes sends its
//! outputs, element by element, to the boards whose next outputs touch them. While it waits for its turn it receives. Boards
//! send in the order of the flat index, so what arrives is in order and is only appended.
//!
//! What is in its favour here: padding does not travel, an element for several boards is read once, and acknowledgements and the
//! asking for turns cost nothing.

use super::program::must_be_chain;
use super::{Account, Counted, SplitError};
use crate::quantised::{Layer, MaxPool, Network, Operator, Parameters, QuantisedError};
use std::collections::BTreeMap;
use std::ops::Range;

/// Payload of a packet: 1,400 bytes without a head of 6.
pub const PAYLOAD: usize = 1394;
/// Bytes of a head.
pub const HEAD: usize = 6;

/// Consecutive values of a row of the padded input.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stretch {
    /// Which channel.
    pub channel: usize,
    /// Which row, counted from the first of the padding.
    pub row: usize,
    /// The first column, counted from the first of the padding.
    pub column: usize,
    /// How many columns.
    pub count: usize,
}

/// One board's share of a layer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FlatShare {
    /// The elements of the output that it owns, counted channel by channel, row by row, column by column.
    pub own: Range<usize>,
    /// The padded input that they touch, in the same order.
    pub touched: Vec<Stretch>,
}

/// One layer on all boards.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FlatStage {
    /// Which layer; additions, which need no transfer, follow on it.
    pub layer: usize,
    /// The shares, board by board.
    pub shares: Vec<FlatShare>,
    /// For each producer of the input, where its elements go. The input of the network has one producer, the coordinator.
    pub phases: Vec<Vec<Phase>>,
}

/// Consecutive elements that go to the same boards.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Phase {
    /// How many.
    pub count: usize,
    /// The boards, a bit for each.
    pub targets: u128,
}

/// The cost of a run of the published split.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FlatOutcome {
    /// The output, in flat order.
    pub answer: Vec<i8>,
    /// The most live bytes of each board.
    pub peaks: Vec<usize>,
    /// For each stage and board, the bytes of input and output that it held to compute.
    pub in_and_out: Vec<Vec<(usize, usize)>>,
    /// Bytes between boards, from and to the coordinator, heads included.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
}

struct Board {
    account: Account,
    /// Its elements of the activations that are still needed.
    held: BTreeMap<usize, Counted<i8>>,
    input: Counted<i8>,
    /// What is still to come of the input: lengths of padding and of values, in turn.
    awaited: std::vec::IntoIter<(bool, usize)>,
    left: usize,
}

/// Runs all boards in this process. The input is in flat order.
///
/// # Errors
/// [`SplitError`] when the stages do not fit the network.
pub fn run_flat(network: &Network, stages: &[FlatStage], input: &[i8]) -> Result<FlatOutcome, SplitError> {
    must_be_chain(network)?;
    let count = stages.first().map_or(0, |stage| stage.shares.len());
    let mut boards: Vec<Board> = (0..count).map(|_| Board::new()).collect();
    let mut outcome = FlatOutcome {
        answer: Vec::new(),
        peaks: Vec::new(),
        in_and_out: Vec::new(),
        bytes: 0,
        packets: 0,
    };
    for stage in stages {
        let layer = &network.layers()[stage.layer];
        for (board, share) in boards.iter_mut().zip(&stage.shares) {
            board.await_input(layer, share);
        }
        for (producer, phases) in stage.phases.iter().enumerate() {
            let elements = match stage.layer {
                0 => input.to_vec(),
                _ => boards[producer].held[&stage.layer].to_vec(),
            };
            let producer = (stage.layer > 0).then_some(producer);
            send(
                &mut boards,
                producer,
                &elements,
                phases,
                zero_of(network, stage.layer),
                &mut outcome,
            );
            if let Some(producer) = producer.filter(|_| last_add(network.layers(), stage.layer).is_none()) {
                boards[producer].held.remove(&stage.layer);
            }
        }
        let mut sizes = Vec::new();
        for (board, share) in boards.iter_mut().zip(&stage.shares) {
            board.fill_padding(zero_of(network, stage.layer));
            sizes.push((board.input.len(), share.own.len()));
            board.compute(network, stage.layer, share)?;
        }
        outcome.in_and_out.push(sizes);
    }
    for board in &mut boards {
        let last = board.held.remove(&network.layers().len());
        let last = last.ok_or(SplitError::Program {
            stage: stages.len(),
            what: "the last layers are missing",
        })?;
        outcome.packets += last.len().div_ceil(PAYLOAD) as u64;
        outcome.bytes += (last.len() + last.len().div_ceil(PAYLOAD) * HEAD) as u64;
        outcome.answer.extend_from_slice(&last);
    }
    outcome.peaks = boards.iter().map(|board| board.account.peak()).collect();
    Ok(outcome)
}

/// One producer's turn: its elements in order, each to all boards that need it, in packets of their own.
fn send(
    boards: &mut [Board],
    producer: Option<usize>,
    elements: &[i8],
    phases: &[Phase],
    zero: i8,
    outcome: &mut FlatOutcome,
) {
    for target in 0..boards.len() {
        // What a board needs of its own it copies.
        let local = producer == Some(target);
        let mut packet: Vec<i8> = Vec::with_capacity(PAYLOAD);
        let mut flush = |packet: &mut Vec<i8>, boards: &mut [Board]| {
            if packet.is_empty() {
                return;
            }
            let mut copies = Vec::new();
            if !local {
                outcome.packets += 1;
                outcome.bytes += (HEAD + packet.len()) as u64;
                // The packet lies at the sender until it is acknowledged, and at the receiver until it is unpacked.
                for board in producer.into_iter().chain([target]) {
                    copies.push(boards[board].account.take::<u8>(HEAD + packet.len()));
                }
            }
            boards[target].append(packet, zero);
            packet.clear();
        };
        let mut at = 0;
        for phase in phases {
            if phase.targets >> target & 1 == 1 {
                for element in &elements[at..at + phase.count] {
                    packet.push(*element);
                    if packet.len() == PAYLOAD {
                        flush(&mut packet, boards);
                    }
                }
            }
            at += phase.count;
        }
        flush(&mut packet, boards);
    }
}

/// What stands for nothing in a layer's input.
fn zero_of(network: &Network, layer: usize) -> i8 {
    match &network.parameters()[layer] {
        Parameters::Convolution(convolution) => convolution.input_zero(),
        Parameters::MaxPool(_) => MaxPool::PADDING,
        Parameters::AveragePool(_) | Parameters::Add(_) => 0,
    }
}

/// The last addition that takes an activation from further up.
fn last_add(layers: &[Layer], activation: usize) -> Option<usize> {
    let adds = |layer: &Layer| matches!(layer.operator(), Operator::Add { other } if *other == activation);
    layers.iter().rposition(adds)
}

impl Board {
    fn new() -> Self {
        let account = Account::default();
        Self {
            input: account.empty(),
            account,
            held: BTreeMap::new(),
            awaited: Vec::new().into_iter(),
            left: 0,
        }
    }

    fn await_input(&mut self, layer: &Layer, share: &FlatShare) {
        let padding = layer.padding();
        let (height, width) = (layer.input().height, layer.input().width);
        let mut awaited: Vec<(bool, usize)> = Vec::new();
        let mut push = |pads: bool, count: usize| match awaited.last_mut() {
            Some((last, total)) if *last == pads => *total += count,
            _ => awaited.push((pads, count)),
        };
        for stretch in &share.touched {
            let end = stretch.column + stretch.count;
            if !(padding..padding + height).contains(&stretch.row) {
                push(true, stretch.count);
                continue;
            }
            let (first, last) = (
                stretch.column.clamp(padding, padding + width),
                end.clamp(padding, padding + width),
            );
            push(true, first - stretch.column);
            push(false, last - first);
            push(true, end - last);
        }
        awaited.retain(|(_, count)| *count > 0);
        self.input = self.account.empty();
        self.awaited = awaited.into_iter();
        self.left = 0;
    }

    /// Takes in the next values, the padding before them filled in.
    fn append(&mut self, mut values: &[i8], zero: i8) {
        while !values.is_empty() {
            if self.left == 0 {
                match self.awaited.next() {
                    None => return,
                    Some((true, count)) => self.input.grow(&vec![zero; count]),
                    Some((false, count)) => self.left = count,
                }
                continue;
            }
            let (now, later) = values.split_at(self.left.min(values.len()));
            self.input.grow(now);
            self.left -= now.len();
            values = later;
        }
    }

    fn fill_padding(&mut self, zero: i8) {
        for (pads, count) in self.awaited.by_ref() {
            if pads {
                self.input.grow(&vec![zero; count]);
            }
        }
    }

    /// Computes its outputs of a layer, drops the input, and adds what a residual adds.
    fn compute(&mut self, network: &Network, layer: usize, share: &FlatShare) -> Result<(), SplitError> {
        let shape = &network.layers()[layer];
        let mut output = self.account.take(share.own.len());
        let input = std::mem::replace(&mut self.input, self.account.empty());
        match &network.parameters()[layer] {
            Parameters::Convolution(_) | Parameters::MaxPool(_) => {
                slide(network, layer, share, &input, &self.account, &mut output)?;
            }
            Parameters::AveragePool(pool) => {
                // Each of its channels is whole.
                let cells = shape.input().height * shape.input().width;
                for (out, values) in output.iter_mut().zip(input.chunks_exact(cells)) {
                    *out = pool.mean(values);
                }
            }
            Parameters::Add(_) => return Err(QuantisedError::Kind { layer }.into()),
        }
        drop(input);
        let mut activation = layer + 1;
        while let Some(Parameters::Add(add)) = network.parameters().get(activation) {
            if let Operator::Add { other } = *network.layers()[activation].operator() {
                if last_add(network.layers(), activation).is_some() {
                    let mut kept = self.account.empty();
                    kept.grow(&output);
                    self.held.insert(activation, kept);
                }
                let lost = SplitError::Program {
                    stage: layer,
                    what: "a share that it adds was not kept",
                };
                for (out, other) in output.iter_mut().zip(self.held.get(&other).ok_or(lost)?.iter()) {
                    *out = add.sum(*out, *other);
                }
                if last_add(network.layers(), other) == Some(activation) {
                    self.held.remove(&other);
                }
            }
            activation += 1;
        }
        self.held.insert(activation, output);
        Ok(())
    }
}

/// Position by position: the values under the window side by side, then the channels that the board owns there.
fn slide(
    network: &Network,
    layer: usize,
    share: &FlatShare,
    input: &[i8],
    account: &Account,
    output: &mut [i8],
) -> Result<(), SplitError> {
    let (shape, kind) = (&network.layers()[layer], QuantisedError::Kind { layer });
    let (window, stride, groups) = match *shape.operator() {
        Operator::Convolution {
            window,
            stride,
            groups,
            ..
        } => (window, stride, groups),
        Operator::MaxPool { window, stride, .. } => (window, stride, shape.input().channels),
        _ => return Err(kind.into()),
    };
    let output_of = |channel: usize, patch: &[i8]| match &network.parameters()[layer] {
        Parameters::Convolution(convolution) => convolution.output_of(shape, channel, patch),
        Parameters::MaxPool(pool) => Ok(pool.most(patch)),
        _ => Err(kind.clone()),
    };
    // Where each stretch begins in what was received.
    let mut places: BTreeMap<(usize, usize), Vec<(Stretch, usize)>> = BTreeMap::new();
    let mut at = 0;
    for stretch in &share.touched {
        places
            .entry((stretch.channel, stretch.row))
            .or_default()
            .push((*stretch, at));
        at += stretch.count;
    }
    let (inputs, outputs) = (shape.input().channels / groups, shape.output().channels / groups);
    let (width, cells) = (shape.output().width, shape.output().height * shape.output().width);
    let mut patch = account.take::<i8>(window[0] * window[1] * inputs);
    let lost = || SplitError::Program {
        stage: layer,
        what: "an input that it needs was not received",
    };
    for position in 0..cells {
        // The channels of which the board owns this position.
        let first = |index: usize| index.saturating_sub(position).div_ceil(cells);
        let channels = first(share.own.start)..first(share.own.end);
        let (row, column) = (position / width * stride, position % width * stride);
        let mut gathered = None;
        for channel in channels {
            let group = channel / outputs;
            if gathered.replace(group) != Some(group) {
                for (channel, dy) in
                    (0..inputs).flat_map(|channel| (0..window[0]).map(move |dy| (channel, dy)))
                {
                    let stretches = places
                        .get(&(group * inputs + channel, row + dy))
                        .ok_or_else(lost)?;
                    let covers = |(stretch, _): &&(Stretch, usize)| {
                        (stretch.column..stretch.column + stretch.count).contains(&column)
                    };
                    let (stretch, at) = stretches.iter().find(covers).ok_or_else(lost)?;
                    let at = at + column - stretch.column;
                    for (dx, value) in input[at..at + window[1]].iter().enumerate() {
                        patch[(dy * window[1] + dx) * inputs + channel] = *value;
                    }
                }
            }
            output[channel * cells + position - share.own.start] = output_of(channel, &patch)?;
        }
    }
    Ok(())
}
