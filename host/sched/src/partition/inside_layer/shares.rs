//! Shares of layers as tasks of their own: who computes which pieces of a layer, where the boards keep nothing between calls.
//!
//! The node that has the network sends each board a piece of a layer: the weights that it takes, the part of the input that it
//! touches, and what is asked for ([`ShareTask`](karman_tensor::split::ShareTask)). So a board needs the memory of one piece and
//! nothing else; where the part that falls to it takes more than that, it is done in several pieces, one after the other. Each
//! layer is divided for itself, by rows or by channels, whichever takes less time; [`super::plan`] is for boards that keep their
//! weights and send each other rows.

use super::board::check;
use super::{Board, Form, Link, PlanError, divide, portions};
use karman_tensor::quantised::{Layer, Operator, Part};
use std::ops::Range;

/// The most bytes of a request or an answer, and the most seconds of a piece: what the manifest of `split-worker` allows, with room.
const MOST_BYTES: u64 = 7 << 20;
const MOST_SECONDS: f64 = 5.0;
/// What a message takes besides its numbers.
const HEAD_BYTES: u64 = 512;
/// The most bytes in CBOR that a bias of four bytes and its factor add to what [`Layer::weight_bytes`] counts.
const WRITTEN_CHANNEL: u64 = 9;
/// The bytes of a factor in memory.
const FACTOR_BYTES: u64 = 8;

/// What a piece takes, or all pieces of a board.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ShareCost {
    /// The most bytes of buffers at once: the message, what is read from it, the values under a window, and the answer.
    pub peak: u64,
    /// Bytes to the board: an upper bound.
    pub sent: u64,
    /// Bytes from the board: exact.
    pub received: u64,
    /// Multiplications.
    pub operations: u64,
    /// Calls.
    pub calls: u64,
}

/// A layer in pieces.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedLayer {
    /// Along what it is cut.
    pub form: Form,
    /// For each board its pieces of the output, in the order in which they are done.
    pub pieces: Vec<Vec<Part>>,
    /// What each board takes for it.
    pub boards: Vec<ShareCost>,
    /// How long it should take.
    pub seconds: f64,
}

/// A network in pieces.
#[derive(Clone, Debug, PartialEq)]
pub struct SharePlan {
    /// How much each board takes, where it can.
    pub portions: Vec<u32>,
    /// Layer by layer.
    pub layers: Vec<SharedLayer>,
    /// What each board takes over all layers.
    pub boards: Vec<ShareCost>,
    /// What one board alone would need, each layer being one piece.
    pub alone: u64,
    /// How long it should take.
    pub seconds: f64,
}

/// Divides every layer among boards within their memory.
///
/// A board for which even the smallest piece of a layer is too large has no part in that layer.
///
/// # Errors
/// [`PlanError`] when a figure is no positive number, and [`PlanError::Memory`] where no board has the memory for the
/// smallest piece of a layer.
pub fn share(layers: &[Layer], boards: &[Board], link: Link) -> Result<SharePlan, PlanError> {
    check(boards, link)?;
    if layers.is_empty() {
        return Err(PlanError::NoLayers);
    }
    let portions = portions(boards);
    let sharing = Sharing {
        boards,
        portions: &portions,
        link,
    };
    let shared = layers.iter().map(|layer| sharing.layer(layer));
    let shared = shared.collect::<Result<Vec<_>, _>>()?;
    let mut total = vec![ShareCost::default(); boards.len()];
    for layer in &shared {
        for (total, cost) in total.iter_mut().zip(&layer.boards) {
            *total = total.and(*cost);
        }
    }
    let whole = |layer: &Layer| cost_of_share(layer, &layer.output().whole()).peak;
    Ok(SharePlan {
        seconds: shared.iter().map(|layer| layer.seconds).sum(),
        alone: layers.iter().map(whole).max().unwrap_or_default(),
        boards: total,
        layers: shared,
        portions,
    })
}

/// What the piece of a layer takes that gives this part of its output.
pub fn cost_of_share(layer: &Layer, output: &Part) -> ShareCost {
    let bytes = |part: &Part, width: usize| part.cells() as u64 * width as u64;
    let mut input = bytes(&layer.needs(output), layer.input().width);
    if matches!(layer.operator(), Operator::Add { .. }) {
        input *= 2;
    }
    let answer = bytes(output, layer.output().width);
    let (mut weights, mut channels, mut window) = (0, 0, 0);
    if let Operator::Convolution {
        window: [rows, columns],
        groups,
        ..
    } = layer.operator()
    {
        weights = layer.weight_bytes(&output.channels);
        channels = output.channels.len() as u64;
        // Values under one window are laid side by side, except where a board can do without.
        window = (rows * columns * (layer.input().channels / groups)) as u64;
    }
    let sent = HEAD_BYTES + input + weights + WRITTEN_CHANNEL * channels;
    let read = input + weights + FACTOR_BYTES * channels;
    ShareCost {
        peak: sent + read + answer + window,
        sent,
        received: answer,
        operations: layer.operations(output),
        calls: 1,
    }
}

impl ShareCost {
    /// One after the other.
    fn and(self, other: Self) -> Self {
        Self {
            peak: self.peak.max(other.peak),
            sent: self.sent + other.sent,
            received: self.received + other.received,
            operations: self.operations + other.operations,
            calls: self.calls + other.calls,
        }
    }
}

struct Sharing<'a> {
    boards: &'a [Board],
    portions: &'a [u32],
    link: Link,
}

impl Sharing<'_> {
    fn layer(&self, layer: &Layer) -> Result<SharedLayer, PlanError> {
        let forms = [Form::Rows, Form::Channels].map(|form| self.in_form(layer, form));
        let possible = forms.into_iter().flatten();
        possible
            .min_by(|one, other| one.seconds.total_cmp(&other.seconds))
            .ok_or_else(|| self.too_large(layer))
    }

    /// The layer cut in a form; boards without the memory for their pieces leave them to the others.
    fn in_form(&self, layer: &Layer, form: Form) -> Option<SharedLayer> {
        let (units, step) = units(layer, form);
        let mut portions = self.portions.to_vec();
        loop {
            if portions.iter().all(|portion| *portion == 0) {
                return None;
            }
            let ranges = divide(units, &portions);
            let pieces = ranges
                .iter()
                .zip(self.boards)
                .map(|(range, board)| pieces(layer, (form, step), range, board));
            let pieces: Vec<Option<Vec<Part>>> = pieces.collect();
            if pieces.iter().all(Option::is_some) {
                return Some(self.shared(layer, form, pieces.into_iter().flatten().collect()));
            }
            for (portion, pieces) in portions.iter_mut().zip(&pieces) {
                if pieces.is_none() {
                    *portion = 0;
                }
            }
        }
    }

    fn shared(&self, layer: &Layer, form: Form, pieces: Vec<Vec<Part>>) -> SharedLayer {
        let cost = |pieces: &Vec<Part>| {
            let costs = pieces.iter().map(|part| cost_of_share(layer, part));
            costs.fold(ShareCost::default(), ShareCost::and)
        };
        let boards: Vec<ShareCost> = pieces.iter().map(cost).collect();
        let slowest = boards.iter().zip(self.boards).map(|(cost, board)| {
            let calls = cost.calls as f64 * self.link.seconds_per_packet;
            cost.operations as f64 / board.operations_per_second + calls
        });
        let slowest = slowest.fold(0.0, f64::max);
        let bytes: u64 = boards.iter().map(|cost| cost.sent + cost.received).sum();
        SharedLayer {
            seconds: slowest + bytes as f64 / self.link.bytes_per_second,
            form,
            pieces,
            boards,
        }
    }

    /// The board with the most memory, and the least that a piece of the layer takes; where that fits, it is too long or takes too long.
    fn too_large(&self, layer: &Layer) -> PlanError {
        let least = [Form::Rows, Form::Channels].map(|form| {
            let (units, step) = units(layer, form);
            let costs =
                (0..units).map(|unit| cost_of_share(layer, &part(layer, (form, step), unit..unit + 1)).peak);
            costs.max().unwrap_or_default()
        });
        let largest = self
            .boards
            .iter()
            .enumerate()
            .max_by_key(|(_, board)| board.free_memory);
        let (board, free) = largest.map_or((0, 0), |(at, board)| (at, board.free_memory));
        let needed = least.into_iter().min().unwrap_or_default();
        match needed <= free {
            true => PlanError::Piece {
                most_seconds: MOST_SECONDS,
                most_bytes: MOST_BYTES,
            },
            false => PlanError::Memory { board, free, needed },
        }
    }
}

/// Into how many parts a layer can be cut in a form, and how many rows or channels one has.
fn units(layer: &Layer, form: Form) -> (usize, usize) {
    let output = layer.output();
    match (form, layer.operator()) {
        (Form::Rows, _) => (output.height, 1),
        // A group of channels is computed as a whole, unless there is only one.
        (Form::Channels, Operator::Convolution { groups, .. }) if *groups > 1 => {
            (*groups, output.channels / groups)
        }
        (Form::Channels, _) => (output.channels, 1),
    }
}

fn part(layer: &Layer, (form, step): (Form, usize), units: Range<usize>) -> Part {
    let (whole, range) = (layer.output().whole(), units.start * step..units.end * step);
    match form {
        Form::Rows => Part::new(range, whole.channels),
        Form::Channels => Part::new(whole.rows, range),
    }
}

/// A board's part of a layer, in the largest pieces that it can do; none where even the smallest are too large for it.
fn pieces(layer: &Layer, cut: (Form, usize), units: &Range<usize>, board: &Board) -> Option<Vec<Part>> {
    let cut_by = |length: usize| {
        let starts = units.clone().step_by(length);
        starts.map(move |start| part(layer, cut, start..units.end.min(start + length)))
    };
    let fits = |length: usize| {
        cut_by(length).all(|part| {
            let cost = cost_of_share(layer, &part);
            cost.peak <= board.free_memory
                && cost.sent.max(cost.received) <= MOST_BYTES
                && cost.operations as f64 / board.operations_per_second <= MOST_SECONDS
        })
    };
    if units.is_empty() {
        return Some(Vec::new());
    }
    // Between a length that fits and one that does not, as far as they are known.
    let (mut short, mut long) = (0, units.len() + 1);
    while long - short > 1 {
        let middle = short + (long - short) / 2;
        match fits(middle) {
            true => short = middle,
            false => long = middle,
        }
    }
    (short > 0).then(|| cut_by(short).collect())
}
