use super::{Counted, Share, SplitError, Stage, Worker, parts_of_run};
use crate::quantised::{Layer, Operator, Part, RowView};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// How far the layers of a run are, and the rows between them.
#[derive(Default)]
pub(super) struct Stream {
    layers: Range<usize>,
    /// What is needed of each activation.
    parts: BTreeMap<usize, Part>,
    /// For each layer, the next row that it computes.
    next: Vec<usize>,
    /// For each layer, the rows of its output that are still needed; those of the last layer are held instead.
    lines: Vec<VecDeque<(usize, Counted<i8>)>>,
}

impl Stream {
    pub(super) fn new(layers: &[Layer], stage: &Stage) -> Self {
        let parts = parts_of_run(layers, &stage.layers, &stage.output);
        let first_row = |layer: usize| parts.get(&(layer + 1)).map_or(0, |part| part.rows.start);
        Self {
            next: stage.layers.clone().map(first_row).collect(),
            lines: stage.layers.clone().map(|_| VecDeque::new()).collect(),
            layers: stage.layers.clone(),
            parts,
        }
    }

    fn next_of(&mut self, layer: usize) -> &mut usize {
        &mut self.next[layer - self.layers.start]
    }

    fn part(&self, activation: usize) -> &Part {
        self.parts.get(&activation).unwrap_or(&Part::NONE)
    }
}

impl Worker {
    /// Asks for what the next row of the output needs, and computes the row if that is there.
    pub(super) fn next_row(&mut self) -> Result<bool, SplitError> {
        let stage = self.current();
        let (run, output) = (stage.layers.clone(), stage.output.clone());
        if self.next >= output.rows.end {
            return Ok(false);
        }
        let reach = |end: usize| {
            let rows = output.rows.start..end.min(output.rows.end);
            parts_of_run(
                self.network.layers(),
                &run,
                &Part::new(rows, output.channels.clone()),
            )
        };
        let (needed, wanted) = (reach(self.next + 1), reach(self.next + 1 + self.program.ahead));
        let mut ready = true;
        for input in 0..self.current().inputs.len() {
            let activation = self.current().inputs[input].activation;
            let end = |parts: &BTreeMap<usize, Part>| parts.get(&activation).map_or(0, |part| part.rows.end);
            self.open(input, end(&wanted));
            ready &= self.arriving[input].whole_before(end(&needed));
        }
        if !ready {
            return Ok(false);
        }
        match run.end.checked_sub(1).filter(|last| run.contains(last)) {
            Some(last) => self.produce(last, self.next)?,
            None => self.collect(run.end)?,
        }
        self.next += 1;
        Ok(true)
    }

    /// Makes room for the rows of an input up to one and asks its suppliers for them. A row that is held whole needs neither.
    fn open(&mut self, input: usize, end: usize) {
        let given = &self.program.stages[self.stage].inputs[input];
        let rows = self.arriving[input].opened..end;
        if rows.is_empty() {
            return;
        }
        let held = self.held.get(&given.activation);
        let width = self.network.activation(given.activation).width;
        for row in rows.clone() {
            let own = held.and_then(|held| Some((&held.rows.get(&row)?[..], &held.channels)));
            let channels = &given.part.channels;
            let whole = |have: &Range<usize>| have.start <= channels.start && channels.end <= have.end;
            if own.is_some_and(|(_, have)| whole(have)) {
                continue;
            }
            self.arriving[input].open(row, given, width, own, &self.account);
        }
        self.arriving[input].opened = end;
        self.grant(input, |Share { part, .. }| {
            let has_some = part.rows.start < rows.end && rows.start < part.rows.end;
            has_some.then_some(rows.end.min(part.rows.end))
        });
    }

    /// Computes the rows of a layer up to one, and before them those under their windows.
    fn produce(&mut self, layer: usize, row: usize) -> Result<(), SplitError> {
        while *self.stream.next_of(layer) <= row {
            let at = *self.stream.next_of(layer);
            let shape = &self.network.layers()[layer];
            let last_needed = shape.rows(&(at..at + 1)).end - 1;
            let other = match *shape.operator() {
                Operator::Add { other } => Some(other),
                _ => None,
            };
            for (activation, last) in [(Some(layer), last_needed), (other, at)] {
                if let Some(activation) =
                    activation.filter(|activation| *activation > self.stream.layers.start)
                {
                    self.produce(activation - 1, last)?;
                }
            }
            let values = self.compute(layer, at, other)?;
            *self.stream.next_of(layer) += 1;
            if layer + 1 == self.stream.layers.end {
                if let Some(held) = self.held.get_mut(&(layer + 1)) {
                    held.rows.insert(at, values);
                }
            } else {
                let line = layer - self.stream.layers.start;
                self.stream.lines[line].push_back((at, values));
            }
            for activation in [Some(layer), other].into_iter().flatten() {
                self.prune(activation);
            }
        }
        Ok(())
    }

    fn compute(&self, layer: usize, row: usize, other: Option<usize>) -> Result<Counted<i8>, SplitError> {
        let shape = &self.network.layers()[layer];
        let channels = &self.stream.part(layer + 1).channels;
        let mut values = self.account.take(shape.output().width * channels.len());
        let mut scratch = self.account.take(self.network.scratch(layer));
        let height = shape.input().height;
        let tap = |row: isize| match usize::try_from(row) {
            Ok(row) if row < height => self.view(layer, row).map(Some),
            _ => Ok(None),
        };
        let taps = shape.window(row).map(tap).collect::<Result<Vec<_>, _>>()?;
        let other = other.map(|activation| self.view(activation, row)).transpose()?;
        self.network
            .row(layer, &taps, other, channels, &mut scratch, &mut values)?;
        Ok(values)
    }

    /// A row of an activation, wherever it is.
    fn view(&self, activation: usize, row: usize) -> Result<RowView<'_>, SplitError> {
        let lost = || self.lost();
        let found = match activation.checked_sub(self.stream.layers.start + 1) {
            Some(line) => {
                let (_, values) = self.stream.lines[line]
                    .iter()
                    .find(|(at, _)| *at == row)
                    .ok_or_else(lost)?;
                RowView::new(values, &self.stream.part(activation).channels)
            }
            None => {
                let mut inputs = self.current().inputs.iter().zip(&self.arriving);
                let found = inputs.find(|(input, _)| input.activation == activation);
                let (input, arriving) = found.ok_or_else(lost)?;
                if let Some(view) = arriving.view(row, &input.part.channels) {
                    return Ok(view);
                }
                let held = self.held.get(&activation).ok_or_else(lost)?;
                RowView::new(held.rows.get(&row).ok_or_else(lost)?, &held.channels)
            }
        };
        Ok(found?)
    }

    const fn lost(&self) -> SplitError {
        SplitError::Program {
            stage: self.stage,
            what: "a row that it needs was not kept",
        }
    }

    /// A row that was received is held.
    fn collect(&mut self, activation: usize) -> Result<(), SplitError> {
        let lost = self.lost();
        let inputs = self.current().inputs.iter();
        let input = inputs
            .into_iter()
            .position(|input| input.activation == activation);
        let row = input.and_then(|input| self.arriving[input].take(self.next));
        let row = row.ok_or(lost)?;
        if let Some(held) = self.held.get_mut(&activation) {
            held.rows.insert(self.next, row);
        }
        Ok(())
    }

    /// The first row of an activation that the run still needs.
    pub(super) fn low_water(&self, activation: usize) -> usize {
        let stream = &self.stream;
        let needs = |(layer, next): (usize, &usize)| {
            let shape = &self.network.layers()[layer];
            if *next >= stream.part(layer + 1).rows.end {
                return usize::MAX;
            }
            let main = match layer == activation {
                true => usize::try_from(shape.window(*next).start).unwrap_or(0),
                false => usize::MAX,
            };
            match *shape.operator() {
                Operator::Add { other } if other == activation => main.min(*next),
                _ => main,
            }
        };
        let layers = stream.layers.clone().zip(&stream.next);
        layers.map(needs).min().unwrap_or(usize::MAX)
    }

    /// Drops the rows of an activation that the run no longer needs.
    fn prune(&mut self, activation: usize) {
        let low = self.low_water(activation);
        if let Some(line) = activation.checked_sub(self.stream.layers.start + 1) {
            let line = &mut self.stream.lines[line];
            while line.front().is_some_and(|(row, _)| *row < low) {
                line.pop_front();
            }
            return;
        }
        let inputs = self.current().inputs.iter();
        if let Some(input) = inputs
            .into_iter()
            .position(|input| input.activation == activation)
        {
            self.arriving[input].drop_before(low);
            self.prune_held(input);
        }
    }
}
