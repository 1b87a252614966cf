use crate::quantised::{Layer, Network, Operator, Parameters, Part, QuantisedError, RowView, bytes};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// One board's share of one layer as a task of its own: shape, parameters and input in one message, the output as the answer.
///
/// It is for boards that run tasks but keep no state of a network between them. A share of the kernels is a layer with only
/// those outputs ([`ShareTask::new`] cuts it out); a share of the rows is the whole layer and `rows`. It comes from outside: it
/// is checked as a whole before anything is computed.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ShareTask {
    /// The layer, with the outputs of the share only.
    pub layer: Layer,
    /// Its parameters.
    pub parameters: Parameters,
    /// Which rows of the output are asked for.
    pub rows: Range<usize>,
    /// The rows of the input that they touch ([`Layer::rows`]), without padding: row by row, column by column, channel by channel.
    #[serde(with = "bytes")]
    pub input: Vec<i8>,
    /// The same rows of the other activation, for an addition; otherwise nothing.
    #[serde(default, with = "bytes")]
    pub other: Vec<i8>,
}

impl ShareTask {
    /// The most bytes of an answer: 64 MiB.
    pub const MOST_BYTES: usize = 64 << 20;

    /// The task for a part of a layer's output. `input` and `other` have the rows and channels that the part needs.
    ///
    /// # Errors
    /// [`QuantisedError`] when the part is not of the layer, or cuts through a group of channels.
    pub fn new(
        network: &Network,
        layer: usize,
        output: &Part,
        input: Vec<i8>,
        other: Vec<i8>,
    ) -> Result<Self, QuantisedError> {
        let last = network.layers().len() - 1;
        let there = network
            .layers()
            .get(layer)
            .filter(|layer| output.and(&layer.output().whole()) == *output);
        let shape = there.filter(|_| !output.is_empty()).ok_or(QuantisedError::Size {
            field: "layer with such a part",
            value: layer,
            least: 0,
            most: last,
        })?;
        let needed = shape.needs(output);
        let mut extent = shape.input();
        extent.channels = needed.channels.len();
        let channels = output.channels.clone();
        let (layer, parameters) = match (shape.operator(), &network.parameters()[layer]) {
            (
                Operator::Convolution {
                    window,
                    stride,
                    padding,
                    groups,
                },
                Parameters::Convolution(convolution),
            ) => {
                let (all, of_group) = (*groups, shape.output().channels / groups);
                let groups = groups * extent.channels / shape.input().channels;
                if groups > 1
                    && !(channels.start.is_multiple_of(of_group) && channels.end.is_multiple_of(of_group))
                {
                    return Err(QuantisedError::Groups {
                        channels: channels.len(),
                        groups: all,
                    });
                }
                let share = Layer::convolution(extent, channels.len(), *window, *stride, *padding, groups)?;
                let parameters = convolution.share(shape, &channels)?;
                (share, Parameters::Convolution(parameters))
            }
            (Operator::AveragePool, parameters) => (Layer::average_pool(extent), parameters.clone()),
            (
                Operator::MaxPool {
                    window,
                    stride,
                    padding,
                },
                parameters,
            ) => {
                let share = Layer::max_pool(extent, *window, *stride, *padding)?;
                (share, parameters.clone())
            }
            (_, parameters) => (Layer::add(extent, 0), parameters.clone()),
        };
        let rows = output.rows.clone();
        Ok(Self {
            layer,
            parameters,
            rows,
            input,
            other,
        })
    }

    /// The rows that were asked for: row by row, column by column, channel by channel.
    ///
    /// # Errors
    /// [`QuantisedError`] says what does not fit.
    pub fn run(self) -> Result<Vec<i8>, QuantisedError> {
        let (input, output) = (self.layer.input(), self.layer.output());
        let refuse = |field, value, most| QuantisedError::Size {
            field,
            value,
            least: 1,
            most,
        };
        if self.rows.is_empty() || self.rows.end > output.height {
            return Err(refuse("last row", self.rows.end, output.height));
        }
        let needed = self.layer.rows(&self.rows);
        let (row_in, row_out) = (input.width * input.channels, output.width * output.channels);
        let expected = needed.len() * row_in;
        let length = |field, given, expected| match given == expected {
            true => Ok(()),
            false => Err(QuantisedError::Length {
                field,
                expected,
                given,
            }),
        };
        length("input", self.input.len(), expected)?;
        let adds = matches!(self.layer.operator(), Operator::Add { .. });
        length("other", self.other.len(), if adds { expected } else { 0 })?;
        let bytes = row_out.saturating_mul(self.rows.len());
        if bytes > Self::MOST_BYTES {
            return Err(refuse("bytes of output", bytes, Self::MOST_BYTES));
        }
        let network = Network::new(vec![self.layer], vec![self.parameters])?;
        let mut values = vec![0; bytes];
        let mut scratch = vec![0; network.scratch(0)];
        let channels = 0..input.channels;
        let view = |rows: &'_ [i8], row: isize| -> Option<Range<usize>> {
            let row = usize::try_from(row).ok()?.checked_sub(needed.start)? * row_in;
            (row + row_in <= rows.len()).then_some(row..row + row_in)
        };
        for (row, out) in self.rows.zip(values.chunks_exact_mut(row_out)) {
            let tap = |row| view(&self.input, row).map(|at| RowView::new(&self.input[at], &channels));
            let taps = network.layers()[0].window(row).map(|row| tap(row).transpose());
            let taps = taps.collect::<Result<Vec<_>, _>>()?;
            let other = view(&self.other, row as isize).map(|at| RowView::new(&self.other[at], &channels));
            network.row(
                0,
                &taps,
                other.transpose()?,
                &(0..output.channels),
                &mut scratch,
                out,
            )?;
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantised::Extent;
    use proptest::prelude::*;

    fn network() -> Network {
        let input = Extent::new(4, 9, 5).unwrap();
        let mut layers = vec![Layer::convolution(input, 6, [3, 3], 2, 1, 2).unwrap()];
        let at = layers[0].output();
        layers.push(Layer::convolution(at, 6, [3, 3], 1, 1, 6).unwrap());
        layers.push(Layer::add(at, 1));
        let most = Layer::max_pool(at, [3, 2], 1, 1).unwrap();
        layers.push(Layer::average_pool(most.output()));
        layers.insert(3, most);
        layers.push(Layer::linear(layers[4].output(), 7).unwrap());
        let mut random = fastrand::Rng::with_seed(3);
        Network::generated(layers, || random.u32(..)).unwrap()
    }

    #[test]
    fn shares_of_rows_and_kernels_are_parts_of_the_whole() {
        let network = network();
        let mut random = fastrand::Rng::with_seed(4);
        let input: Vec<i8> = (0..network.input().elements()).map(|_| random.i8(..)).collect();
        let activations = network.activations(&input).unwrap();
        for (index, layer) in network.layers().iter().enumerate() {
            let output = layer.output();
            let rows = [0..output.height, 0..1, output.height / 2..output.height];
            // Groups of three and of one channel.
            let channels = [0..output.channels, 0..3, output.channels - 3..output.channels];
            for (rows, channels) in rows
                .iter()
                .flat_map(|rows| channels.iter().map(move |channels| (rows, channels)))
            {
                let part = Part::new(rows.clone(), channels.clone());
                let needed = layer.needs(&part);
                let given = needed.cut(layer.input(), &activations[index]);
                let other = match *layer.operator() {
                    Operator::Add { other } => part.cut(layer.input(), &activations[other]),
                    _ => Vec::new(),
                };
                let task = ShareTask::new(&network, index, &part, given, other).unwrap();
                let message = cbor4ii::serde::to_vec(Vec::new(), &task).unwrap();
                let arrived: ShareTask = cbor4ii::serde::from_slice(&message).unwrap();
                assert_eq!(
                    arrived.run().unwrap(),
                    part.cut(output, &activations[index + 1]),
                    "layer {index}, {part:?}"
                );
            }
        }
    }

    #[test]
    fn a_part_that_is_not_there_or_cuts_groups_is_refused() {
        let network = network();
        let new = |layer, part: Part| ShareTask::new(&network, layer, &part, Vec::new(), Vec::new());
        assert!(new(9, Part::new(0..1, 0..1)).is_err());
        assert!(new(0, Part::new(0..99, 0..1)).is_err());
        assert!(new(0, Part::NONE).is_err());
        assert!(matches!(
            new(0, Part::new(0..1, 2..4)),
            Err(QuantisedError::Groups {
                channels: 2,
                groups: 2
            })
        ));
    }

    proptest! {
        #[test]
        fn a_hostile_task_is_refused(
            at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>(), index in 0usize..6,
        ) {
            let network = network();
            let layer = &network.layers()[index];
            let part = layer.output().whole();
            let input = vec![1; layer.input().elements()];
            let other = if index == 2 { input.clone() } else { Vec::new() };
            let task = ShareTask::new(&network, index, &part, input, other).unwrap();
            let mut message = cbor4ii::serde::to_vec(Vec::new(), &task).unwrap();
            let place = at.index(message.len().min(400));
            message[place] = byte;
            for message in [&message[..], &message[..cut.index(message.len())]] {
                // Whatever it says: an answer of the size that it asks for, or an error.
                if let Ok(task) = cbor4ii::serde::from_slice::<ShareTask>(message) {
                    let cells = task.rows.len() * task.layer.output().width * task.layer.output().channels;
                    if let Ok(values) = task.run() {
                        prop_assert_eq!(values.len(), cells);
                    }
                }
            }
        }
    }
}
