use super::error::length;
use super::{Add, AveragePool, Convolution, Extent, Layer, MaxPool, Operator, Part, QuantisedError, Range8};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Layers with their parameters: a chain, or one with branches.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Network {
    layers: Vec<Layer>,
    /// Which activation each layer takes.
    takes: Vec<usize>,
    parameters: Vec<Parameters>,
}

/// Layers, which activation each of them takes, and what they were trained to.
type Written = (Vec<Layer>, Vec<usize>, Vec<Parameters>);

impl TryFrom<Written> for Network {
    type Error = QuantisedError;

    fn try_from((layers, takes, parameters): Written) -> Result<Self, QuantisedError> {
        Self::branching(layers, takes, parameters)
    }
}

impl From<Network> for Written {
    fn from(network: Network) -> Self {
        (network.layers, network.takes, network.parameters)
    }
}

/// The trained parameters of a layer.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Parameters {
    /// Of [`Operator::Convolution`].
    Convolution(Convolution),
    /// Of [`Operator::AveragePool`].
    AveragePool(AveragePool),
    /// Of [`Operator::Add`].
    Add(Add),
    /// Of [`Operator::MaxPool`].
    MaxPool(MaxPool),
}

/// A row of an activation, or of some channels of it.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    values: &'a [i8],
    first: usize,
    channels: usize,
}

impl<'a> RowView<'a> {
    /// The values of these channels, column by column.
    ///
    /// # Errors
    /// [`QuantisedError::Length`] when the values do not divide into columns.
    pub fn new(values: &'a [i8], channels: &Range<usize>) -> Result<Self, QuantisedError> {
        super::error::size("channels of a row", channels.len(), 1, Extent::MOST)?;
        length(
            "row",
            values.len(),
            values.len() / channels.len() * channels.len(),
        )?;
        Ok(Self {
            values,
            first: channels.start,
            channels: channels.len(),
        })
    }

    /// Some channels of a column. Both were checked before.
    pub(super) fn cell(&self, column: usize, channels: &Range<usize>) -> &'a [i8] {
        &self.values[column * self.channels + channels.start - self.first..][..channels.len()]
    }

    /// That it has all columns of an extent, and these channels of it.
    fn covers(&self, extent: Extent, channels: &Range<usize>) -> Result<(), QuantisedError> {
        length("row", self.values.len(), extent.width * self.channels)?;
        let last = self.first + self.channels;
        super::error::size("first channel of a row", self.first, 0, channels.start)?;
        super::error::size("last channel of a row", last, channels.end, extent.channels)
    }
}

impl Network {
    /// A network whose layers follow on each other and whose parameters fit them.
    ///
    /// # Errors
    /// [`QuantisedError`] names the first layer that does not fit.
    pub fn new(layers: Vec<Layer>, parameters: Vec<Parameters>) -> Result<Self, QuantisedError> {
        let takes = (0..layers.len()).collect();
        Self::branching(layers, takes, parameters)
    }

    /// The same where layers may lie side by side: which [activation](Self::activation) each of them takes.
    ///
    /// # Errors
    /// [`QuantisedError`] names the first layer that does not fit.
    pub fn branching(
        layers: Vec<Layer>,
        takes: Vec<usize>,
        parameters: Vec<Parameters>,
    ) -> Result<Self, QuantisedError> {
        check_layers(&layers, &takes)?;
        length("parameters", parameters.len(), layers.len())?;
        for (layer, (shape, parameters)) in layers.iter().zip(&parameters).enumerate() {
            match (shape.operator(), parameters) {
                (Operator::Convolution { .. }, Parameters::Convolution(convolution)) => {
                    convolution.check(shape)?
                }
                (Operator::AveragePool, Parameters::AveragePool(pool)) => pool.check(shape.input())?,
                (Operator::Add { .. }, Parameters::Add(add)) => {
                    add.output().check()?;
                }
                (Operator::MaxPool { .. }, Parameters::MaxPool(pool)) => {
                    pool.output().check()?;
                }
                _ => return Err(QuantisedError::Kind { layer }),
            }
        }
        Ok(Self {
            layers,
            takes,
            parameters,
        })
    }

    /// Layers with weights drawn from a source of random bits: for tests and studies of how a network is run, not of what it
    /// answers. Convolutions in front of a depthwise one and depthwise ones end in ReLU6.
    ///
    /// # Errors
    /// [`QuantisedError`] names the first layer that does not follow on the one before.
    pub fn generated(layers: Vec<Layer>, mut random: impl FnMut() -> u32) -> Result<Self, QuantisedError> {
        check_layers(&layers, &(0..layers.len()).collect::<Vec<_>>())?;
        let mut zeros = vec![0i8];
        let mut parameters = Vec::with_capacity(layers.len());
        for (index, layer) in layers.iter().enumerate() {
            let next_is_depthwise = layers.get(index + 1).is_some_and(Layer::is_depthwise);
            let zero = zeros[index];
            let output = match layer.operator() {
                Operator::Convolution { .. } if layer.is_depthwise() || next_is_depthwise => Range8::RELU6,
                Operator::AveragePool | Operator::MaxPool { .. } => Range8::full(zero),
                _ => Range8::full((random() >> 28) as i8 - 8),
            };
            zeros.push(output.zero);
            parameters.push(match *layer.operator() {
                Operator::Convolution { .. } => {
                    Parameters::Convolution(Convolution::generated(layer, zero, output, &mut random)?)
                }
                Operator::AveragePool => {
                    Parameters::AveragePool(AveragePool::new(layer.input(), 2.0, zero, output)?)
                }
                Operator::Add { other } => {
                    Parameters::Add(Add::new([0.75, 0.625], [zero, zeros[other]], output)?)
                }
                Operator::MaxPool { .. } => Parameters::MaxPool(MaxPool::new(1.0, zero, output)?),
            });
        }
        Self::new(layers, parameters)
    }

    /// The shapes of its layers.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Which activation each of them takes, besides what an addition adds.
    pub fn takes(&self) -> &[usize] {
        &self.takes
    }

    /// What its layers were trained to.
    pub fn parameters(&self) -> &[Parameters] {
        &self.parameters
    }

    /// The extent of its input. A network has at least one layer.
    pub fn input(&self) -> Extent {
        self.layers[0].input()
    }

    /// The extent of an activation: 0 is the input, `i + 1` the output of layer `i`.
    pub fn activation(&self, index: usize) -> Extent {
        match index.checked_sub(1) {
            None => self.input(),
            Some(layer) => self.layers[layer].output(),
        }
    }

    /// Computes it whole: what every split is compared with. Input and output are stored row by row, column by column, channel by
    /// channel.
    ///
    /// # Errors
    /// [`QuantisedError::Length`] when the input has another number of values than [`Network::input`].
    pub fn run(&self, input: &[i8]) -> Result<Vec<i8>, QuantisedError> {
        Ok(self.activations(input)?.pop().unwrap_or_default())
    }

    /// The same with all that lies between: the input, then what each layer gives.
    ///
    /// # Errors
    /// Those of [`Network::run`].
    pub fn activations(&self, input: &[i8]) -> Result<Vec<Vec<i8>>, QuantisedError> {
        length("input", input.len(), self.input().elements())?;
        let mut activations = vec![input.to_vec()];
        for (index, layer) in self.layers.iter().enumerate() {
            let output = layer.output();
            let channels = 0..output.channels;
            let mut scratch = vec![0; self.scratch(index)];
            let mut values = vec![0; output.elements()];
            for (row, out) in values
                .chunks_exact_mut(output.width * output.channels)
                .enumerate()
            {
                let view = |activation: usize, row: isize| -> Option<RowView<'_>> {
                    let extent = self.activation(activation);
                    let (row, length) = (usize::try_from(row).ok()?, extent.width * extent.channels);
                    let values = activations[activation].chunks_exact(length).nth(row)?;
                    RowView::new(values, &(0..extent.channels)).ok()
                };
                let taken = self.takes[index];
                let taps: Vec<_> = layer.window(row).map(|row| view(taken, row)).collect();
                let other = match *layer.operator() {
                    Operator::Add { other } => view(other, row as isize),
                    _ => None,
                };
                self.row(index, &taps, other, &channels, &mut scratch, out)?;
            }
            activations.push(values);
        }
        Ok(activations)
    }

    /// Bytes of scratch that [`Network::row`] and [`Network::add_sums`] need for a layer.
    pub fn scratch(&self, layer: usize) -> usize {
        Convolution::scratch(&self.layers[layer])
    }

    /// One row of some output channels of a layer: from the rows of its input under [`Layer::window`], `None` where they are
    /// padding, and for an addition the row of the other activation.
    ///
    /// # Errors
    /// [`QuantisedError`] when rows, channels or lengths do not fit the layer. A mean takes sums: see [`Network::add_sums`].
    pub fn row(
        &self,
        layer: usize,
        taps: &[Option<RowView<'_>>],
        other: Option<RowView<'_>>,
        outputs: &Range<usize>,
        scratch: &mut [i8],
        out: &mut [i8],
    ) -> Result<(), QuantisedError> {
        let shape = self.check(layer, taps, outputs, scratch)?;
        length("output", out.len(), shape.output().width * outputs.len())?;
        let needed = shape.needs(&Part::of_row(outputs));
        for view in taps.iter().flatten() {
            view.covers(shape.input(), &needed.channels)?;
        }
        match &self.parameters[layer] {
            Parameters::Convolution(convolution) => convolution.row(shape, taps, outputs, scratch, out),
            Parameters::Add(add) => {
                let other = other.ok_or(QuantisedError::Length {
                    field: "other row",
                    expected: 1,
                    given: 0,
                })?;
                other.covers(shape.input(), outputs)?;
                let Some(Some(one)) = taps.first() else {
                    return length("rows", 0, 1);
                };
                for (column, out) in out.chunks_exact_mut(outputs.len()).enumerate() {
                    let pairs = one.cell(column, outputs).iter().zip(other.cell(column, outputs));
                    for (out, (one, other)) in out.iter_mut().zip(pairs) {
                        *out = add.sum(*one, *other);
                    }
                }
                Ok(())
            }
            Parameters::AveragePool(pool) => {
                length("rows", taps.iter().flatten().count(), shape.input().height)?;
                // Channel by channel, so that no sums need storing.
                for (channel, out) in outputs.clone().zip(out) {
                    let mut sum = [0];
                    for row in taps.iter().flatten() {
                        AveragePool::add_sums(shape.input().width, *row, &(channel..channel + 1), &mut sum);
                    }
                    *out = pool.finish(sum[0]);
                }
                Ok(())
            }
            Parameters::MaxPool(pool) => pool.row(shape, taps, outputs, out),
        }
    }

    /// Adds to the sums of one output row what some of the input gives: some channels of a convolution without groups, some
    /// rows (the others `None`) of a mean. When all of the input was added once, in whatever order and wherever,
    /// [`Network::finish`] gives what [`Network::row`] does.
    ///
    /// # Errors
    /// [`QuantisedError`] when rows, channels or lengths do not fit, or the layer has no such sums ([`Network::has_sums`]).
    pub fn add_sums(
        &self,
        layer: usize,
        taps: &[Option<RowView<'_>>],
        outputs: &Range<usize>,
        inputs: &Range<usize>,
        scratch: &mut [i8],
        sums: &mut [i32],
    ) -> Result<(), QuantisedError> {
        let shape = self.check(layer, taps, outputs, scratch)?;
        length("sums", sums.len(), shape.output().width * outputs.len())?;
        match &self.parameters[layer] {
            Parameters::Convolution(convolution) if Self::has_sums(shape) => {
                super::error::size("input channels", inputs.end, inputs.start, shape.input().channels)?;
                for view in taps.iter().flatten() {
                    view.covers(shape.input(), inputs)?;
                }
                convolution.add_sums(shape, taps, outputs, inputs, scratch, sums)
            }
            Parameters::AveragePool(_) => {
                for view in taps.iter().flatten() {
                    let given = view.first..view.first + view.channels;
                    let both = given.start.max(outputs.start)..given.end.min(outputs.end);
                    if both.is_empty() {
                        continue;
                    }
                    view.covers(shape.input(), &both)?;
                    let sums = &mut sums[both.start - outputs.start..];
                    AveragePool::add_sums(shape.input().width, *view, &both, sums);
                }
                Ok(())
            }
            _ => Err(QuantisedError::Kind { layer }),
        }
    }

    /// Sums over all of the input as a row of 8 bits.
    ///
    /// # Errors
    /// [`QuantisedError`] when lengths do not fit, or the layer has no such sums.
    pub fn finish(
        &self,
        layer: usize,
        outputs: &Range<usize>,
        sums: &[i32],
        out: &mut [i8],
    ) -> Result<(), QuantisedError> {
        super::error::size("layer", layer, 0, self.layers.len() - 1)?;
        let shape = &self.layers[layer];
        super::error::size(
            "output channels",
            outputs.end,
            outputs.start + 1,
            shape.output().channels,
        )?;
        length("sums", sums.len(), shape.output().width * outputs.len())?;
        length("output", out.len(), sums.len())?;
        for (sums, out) in sums
            .chunks_exact(outputs.len())
            .zip(out.chunks_exact_mut(outputs.len()))
        {
            for (channel, (sum, out)) in outputs.clone().zip(sums.iter().zip(out)) {
                *out = match &self.parameters[layer] {
                    Parameters::Convolution(convolution) => convolution.finish(channel, *sum),
                    Parameters::AveragePool(pool) => pool.finish(*sum),
                    Parameters::Add(_) | Parameters::MaxPool(_) => {
                        return Err(QuantisedError::Kind { layer });
                    }
                };
            }
        }
        Ok(())
    }

    /// Whether a layer can be computed from sums over parts of its input.
    pub fn has_sums(layer: &Layer) -> bool {
        matches!(
            layer.operator(),
            Operator::Convolution { groups: 1, .. } | Operator::AveragePool
        )
    }

    fn check(
        &self,
        layer: usize,
        taps: &[Option<RowView<'_>>],
        outputs: &Range<usize>,
        scratch: &[i8],
    ) -> Result<&Layer, QuantisedError> {
        super::error::size("layer", layer, 0, self.layers.len() - 1)?;
        let shape = &self.layers[layer];
        length("rows", taps.len(), shape.window(0).len())?;
        super::error::size(
            "output channels",
            outputs.end,
            outputs.start + 1,
            shape.output().channels,
        )?;
        super::error::size("scratch", scratch.len(), self.scratch(layer), usize::MAX)?;
        Ok(shape)
    }
}

/// That each layer takes what one before gives, and adds what has the same extent.
fn check_layers(layers: &[Layer], takes: &[usize]) -> Result<(), QuantisedError> {
    let first = layers.first().ok_or(QuantisedError::Empty)?;
    length("activations that are taken", takes.len(), layers.len())?;
    let mut given = vec![first.input()];
    for (index, (layer, taken)) in layers.iter().zip(takes).enumerate() {
        let other = match *layer.operator() {
            Operator::Add { other } => Some(other),
            _ => None,
        };
        for activation in std::iter::once(*taken).chain(other) {
            let reach = QuantisedError::Reach {
                layer: index,
                other: activation,
            };
            let given = *given.get(activation).ok_or(reach)?;
            if layer.input() != given {
                return Err(QuantisedError::Chain {
                    layer: index,
                    takes: layer.input(),
                    given,
                });
            }
        }
        given.push(layer.output());
    }
    Ok(())
}
