use super::predict::{bytes_of, width};
use super::{BoardCost, program};
use karman_tensor::quantised::{Convolution, Layer, Operator, Part};
use karman_tensor::split::{HEAD_BYTES, Input, MOST_BYTES, Share, Stage, Work, parts_of_run};

/// A board's stage in numbers: what its worker does, without values, with all packets as early and all grants as late as they
/// can be.
pub(super) struct Rehearsal<'a> {
    layers: &'a [Layer],
    stage: &'a Stage,
    own: Vec<Part>,
    /// The part of each layer's output.
    outputs: Vec<Part>,
    next: Vec<usize>,
    /// Rows before this one are dropped: of the layers' outputs, of the inputs.
    dropped: Vec<usize>,
    dropped_inputs: Vec<usize>,
    opened: Vec<usize>,
    /// Rows of the inputs before this one have arrived for sure.
    arrived: Vec<usize>,
    live: u64,
    peak: u64,
    pub(super) grants: u64,
}

impl<'a> Rehearsal<'a> {
    pub(super) fn new(layers: &'a [Layer], stage: &'a Stage, own: Vec<Part>, kept: u64) -> Self {
        let parts = parts_of_run(layers, &stage.layers, &stage.output);
        let outputs: Vec<Part> = stage
            .layers
            .clone()
            .map(|layer| parts[&(layer + 1)].clone())
            .collect();
        let first = |part: &Part| part.rows.start;
        let held = stage.inputs.iter().zip(&own);
        let held: u64 = held
            .map(|(input, own)| bytes_of(layers, input.activation, own))
            .sum();
        let inputs = stage.inputs.iter().map(|input| first(&input.part));
        Self {
            next: outputs.iter().map(first).collect(),
            dropped: outputs.iter().map(first).collect(),
            dropped_inputs: inputs.clone().collect(),
            opened: inputs.clone().collect(),
            arrived: inputs.collect(),
            layers,
            stage,
            own,
            outputs,
            live: held + kept,
            peak: held + kept,
            grants: 0,
        }
    }

    pub(super) fn cost(&self) -> BoardCost {
        let run = self.stage.layers.clone().zip(&self.outputs);
        let operations = run
            .clone()
            .map(|(layer, part)| self.layers[layer].operations(part));
        let weights = run.map(|(layer, part)| self.layers[layer].weight_bytes(&part.channels));
        let (mut operations, mut weights) = (operations.sum::<u64>(), weights.sum());
        if self.stage.work == Work::Reduce {
            // Each board sums over its part of the input, for all outputs.
            let layer = &self.layers[self.stage.layers.start];
            let (part, all, outputs) = (&self.stage.inputs[0].part, layer.input(), layer.output().whole());
            let share =
                |total: u64, held: usize, all: usize| (total as f64 * held as f64 / all as f64).ceil() as u64;
            operations = share(layer.operations(&outputs), part.cells(), all.whole().cells());
            weights = share(
                layer.weight_bytes(&outputs.channels),
                part.channels.len(),
                all.channels,
            );
        }
        BoardCost {
            peak: self.peak + self.packets(),
            operations,
            weights,
        }
    }

    /// A packet that comes, one that goes, and the grants of a row.
    fn packets(&self) -> u64 {
        let inputs = || self.stage.inputs.iter();
        let largest = |share: &Share, activation: usize, element: u64| {
            let row = share.part.channels.len() as u64 * width(self.layers, activation) * element;
            (row + HEAD_BYTES as u64).min(MOST_BYTES as u64)
        };
        let reduce = self.stage.work == Work::Reduce;
        let element = if reduce { 4 } else { 1 };
        let output = self.stage.layers.end;
        let sent = |input: &Input| if reduce { output } else { input.activation };
        let comes = inputs().flat_map(|input| {
            let own = Share {
                peer: 0,
                part: self.stage.output.clone(),
            };
            input.from.iter().map(move |share| match reduce {
                true => largest(&own, output, 4),
                false => largest(share, input.activation, 1),
            })
        });
        let goes = inputs().flat_map(|input| {
            input
                .to
                .iter()
                .map(move |share| largest(share, sent(input), element))
        });
        let grants: u64 = inputs().map(|input| input.from.len() as u64).sum();
        let asked = if goes.clone().next().is_some() {
            HEAD_BYTES as u64
        } else {
            0
        };
        comes.max().unwrap_or(asked).max(asked) + goes.max().unwrap_or(0) + grants * HEAD_BYTES as u64
    }

    fn take(&mut self, bytes: u64) {
        self.live += bytes;
        self.peak = self.peak.max(self.live);
    }

    fn row_bytes(&self, layer: usize) -> u64 {
        let part = &self.outputs[layer - self.stage.layers.start];
        part.channels.len() as u64 * width(self.layers, layer + 1)
    }

    pub(super) fn run(&mut self) {
        let rows = self.stage.output.rows.clone();
        for row in rows.clone() {
            self.open((row + 1 + program::AHEAD).min(rows.end));
            self.arrived = self.reach(row + 1);
            match self.stage.layers.clone().last() {
                Some(last) => self.produce(last, row),
                // What is collected was received.
                None => self.dropped_inputs[0] = row + 1,
            }
        }
    }

    pub(super) fn reduce(&mut self) {
        let input = &self.stage.inputs[0];
        let layer = self.stage.layers.start;
        let scratch = Convolution::scratch(&self.layers[layer]) as u64;
        let sums = |part: &Part| part.channels.len() as u64 * width(self.layers, layer + 1) * 4;
        let own = sums(&self.stage.output);
        let theirs = input.to.iter().map(|share| sums(&share.part)).max().unwrap_or(0);
        let rows = self.stage.output.rows.len() as u64;
        let takers = input.from.len() as u64;
        self.grants += rows * takers;
        self.take(own + theirs + scratch + rows * own / 4);
    }

    /// Asks for the rows of the inputs that the output up to a row needs.
    fn open(&mut self, end: usize) {
        let ends = self.reach(end);
        for (input, end) in ends.into_iter().enumerate() {
            let given = &self.stage.inputs[input];
            let rows = self.opened[input]..end;
            if rows.is_empty() {
                continue;
            }
            self.opened[input] = end;
            let overlaps =
                |share: &&Share| share.part.rows.start < rows.end && rows.start < share.part.rows.end;
            self.grants += given.from.iter().filter(overlaps).count() as u64;
            let row = given.part.channels.len() as u64 * width(self.layers, given.activation);
            let received = rows.filter(|row| !self.is_own(input, *row)).count() as u64;
            self.take(received * row);
        }
    }

    fn is_own(&self, input: usize, row: usize) -> bool {
        let (own, needed) = (&self.own[input], &self.stage.inputs[input].part);
        own.rows.contains(&row)
            && own.channels.start <= needed.channels.start
            && needed.channels.end <= own.channels.end
    }

    /// For each input, where the rows end that the output needs up to a row.
    fn reach(&self, end: usize) -> Vec<usize> {
        let run = &self.stage.layers;
        let mut inputs = vec![0; self.stage.inputs.len()];
        let mut ends = vec![0; self.outputs.len()];
        let mut include = |activation: usize, end: usize, ends: &mut Vec<usize>| {
            let reached = match activation.checked_sub(run.start + 1) {
                Some(line) => &mut ends[line],
                None => match self
                    .stage
                    .inputs
                    .iter()
                    .position(|input| input.activation == activation)
                {
                    Some(input) => &mut inputs[input],
                    None => return,
                },
            };
            *reached = end.max(*reached);
        };
        include(run.end, end, &mut ends);
        for layer in run.clone().rev() {
            let end = ends[layer - run.start];
            let shape = &self.layers[layer];
            include(layer, shape.rows(&(end - 1..end)).end, &mut ends);
            if let Operator::Add { other } = *shape.operator() {
                include(other, end, &mut ends);
            }
        }
        inputs
    }

    fn produce(&mut self, layer: usize, row: usize) {
        let start = self.stage.layers.start;
        while self.next[layer - start] <= row {
            let at = self.next[layer - start];
            let shape = &self.layers[layer];
            let other = match *shape.operator() {
                Operator::Add { other } => Some(other),
                _ => None,
            };
            let last = shape.rows(&(at..at + 1)).end - 1;
            for (activation, last) in [(Some(layer), last), (other, at)] {
                if let Some(activation) = activation.filter(|activation| *activation > start) {
                    self.produce(activation - 1, last);
                }
            }
            let scratch = Convolution::scratch(shape) as u64;
            self.take(self.row_bytes(layer) + scratch);
            self.live -= scratch;
            self.next[layer - start] += 1;
            for activation in [Some(layer), other].into_iter().flatten() {
                self.drop_rows(activation);
            }
        }
    }

    /// Drops the rows of an activation that no layer needs any more, unless they are kept or others may still ask for them.
    fn drop_rows(&mut self, activation: usize) {
        let low = self.low_water(activation);
        if let Some(line) = activation.checked_sub(self.stage.layers.start + 1) {
            let low = low.min(self.next[line]);
            let rows = low.saturating_sub(self.dropped[line]) as u64;
            self.live -= rows * self.row_bytes(activation - 1);
            self.dropped[line] = self.dropped[line].max(low);
            return;
        }
        let inputs = &self.stage.inputs;
        let Some(input) = inputs.iter().position(|input| input.activation == activation) else {
            return;
        };
        let (given, own) = (&inputs[input], &self.own[input]);
        let width = width(self.layers, activation);
        let low = low.min(self.arrived[input]);
        for row in self.dropped_inputs[input]..low {
            let owed = given.to.iter().any(|share| share.part.rows.contains(&row));
            if own.rows.contains(&row) && !owed && !given.keep {
                self.live -= own.channels.len() as u64 * width;
            }
            if !self.is_own(input, row) {
                self.live -= given.part.channels.len() as u64 * width;
            }
        }
        self.dropped_inputs[input] = self.dropped_inputs[input].max(low);
    }

    fn low_water(&self, activation: usize) -> usize {
        let run = self.stage.layers.clone();
        let needs = |layer: usize| {
            let next = self.next[layer - run.start];
            let shape = &self.layers[layer];
            if next >= self.outputs[layer - run.start].rows.end {
                return usize::MAX;
            }
            let main = match layer == activation {
                true => usize::try_from(shape.window(next).start).unwrap_or(0),
                false => usize::MAX,
            };
            match *shape.operator() {
                Operator::Add { other } if other == activation => main.min(next),
                _ => main,
            }
        };
        run.clone().map(needs).min().unwrap_or(usize::MAX)
    }
}
