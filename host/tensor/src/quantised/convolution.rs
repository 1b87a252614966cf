use super::error::length;
use super::network::RowView;
use super::{Layer, Operator, QuantisedError, Range8, Rescale, depthwise};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The most products in one sum: their sum stays within 31 bits.
const MOST_PRODUCTS: usize = 1 << 16;

/// Weights, biases and factors of a convolution.
///
/// Weights lie output channel by output channel, in each row by row, column by column, input channel by input channel; those of
/// a depthwise one position by position, in each channel by channel.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Convolution {
    #[serde(with = "super::bytes")]
    weights: Vec<i8>,
    /// With the sum of weights times the zero point of the input taken off, so that sums are of plain products.
    bias: Vec<i32>,
    rescale: Vec<Rescale>,
    input_zero: i8,
    output: Range8,
}

impl Convolution {
    /// For a layer: weights as described above, a bias and a factor (input scale times weight scale over output scale) for each
    /// output channel.
    ///
    /// # Errors
    /// [`QuantisedError`] when the layer is no convolution, a list is too short or long, or sums could pass 32 bits.
    pub fn new(
        layer: &Layer,
        weights: Vec<i8>,
        bias: &[i32],
        rescale: Vec<Rescale>,
        input_zero: i8,
        output: Range8,
    ) -> Result<Self, QuantisedError> {
        let shape = Shape::of(layer)?;
        let (outputs, products) = (layer.output().channels, shape.products());
        super::error::size("products in one sum", products, 1, MOST_PRODUCTS)?;
        length("weights", weights.len(), outputs * products)?;
        length("biases", bias.len(), outputs)?;
        length("factors", rescale.len(), outputs)?;
        let weight_sum = |channel: usize| -> i64 {
            match shape.depthwise {
                true => weights[channel..]
                    .iter()
                    .step_by(outputs)
                    .map(|w| i64::from(*w))
                    .sum(),
                false => weights[channel * products..][..products]
                    .iter()
                    .map(|w| i64::from(*w))
                    .sum(),
            }
        };
        let fold = |(channel, bias): (usize, &i32)| {
            let folded = i64::from(*bias) - weight_sum(channel) * i64::from(input_zero);
            i32::try_from(folded).map_err(|_| QuantisedError::Overflow { channel })
        };
        let bias = bias.iter().enumerate().map(fold).collect::<Result<_, _>>()?;
        let convolution = Self {
            weights,
            bias,
            rescale,
            input_zero,
            output,
        };
        convolution.check(layer)?;
        Ok(convolution)
    }

    /// That it belongs to a layer of this shape, and its sums stay within 32 bits.
    pub(super) fn check(&self, layer: &Layer) -> Result<(), QuantisedError> {
        let (outputs, products) = (layer.output().channels, Shape::of(layer)?.products());
        super::error::size("products in one sum", products, 1, MOST_PRODUCTS)?;
        length("weights", self.weights.len(), outputs * products)?;
        length("biases", self.bias.len(), outputs)?;
        length("factors", self.rescale.len(), outputs)?;
        // The products sum to at most 2^30.
        if let Some(channel) = self.bias.iter().position(|bias| bias.unsigned_abs() >= 1 << 30) {
            return Err(QuantisedError::Overflow { channel });
        }
        self.output.check().map(|_| ())
    }

    /// Weights drawn from a source of random bits, and factors that spread the outputs over the 8 bits when the inputs are.
    ///
    /// # Errors
    /// Those of [`Convolution::new`].
    pub fn generated(
        layer: &Layer,
        input_zero: i8,
        output: Range8,
        mut random: impl FnMut() -> u32,
    ) -> Result<Self, QuantisedError> {
        let outputs = layer.output().channels;
        let products = Shape::of(layer)?.products();
        let mut byte = || ((random() >> 16) as u8) as i8;
        let weights = (0..outputs * products).map(|_| byte()).collect();
        // Even draws from 8 bits deviate by 74; such inputs and weights give sums that deviate by 74² times the root of n.
        let spread = 64.0 / (74.0 * 74.0 * (products as f64).sqrt());
        let bias: Vec<i32> = (0..outputs)
            .map(|_| (f64::from(byte()) / 2.0 / spread) as i32)
            .collect();
        let factor = |_| Rescale::new(spread * (1.0 + f64::from(byte()) / 512.0));
        let rescale = (0..outputs).map(factor).collect::<Result<_, _>>()?;
        Self::new(layer, weights, &bias, rescale, input_zero, output)
    }

    /// The zero point of the input: what padding is filled with.
    pub const fn input_zero(&self) -> i8 {
        self.input_zero
    }

    /// Where the values of the output lie.
    pub const fn output(&self) -> Range8 {
        self.output
    }

    /// The bytes that a row needs for the values under one window; none where a row can be read as it lies.
    pub fn scratch(layer: &Layer) -> usize {
        match Shape::of(layer) {
            Ok(shape) if !shape.depthwise && !shape.is_pointwise() => shape.products(),
            _ => 0,
        }
    }

    /// One row of some output channels, from the rows under the window, padding `None`.
    pub(super) fn row(
        &self,
        layer: &Layer,
        taps: &[Option<RowView<'_>>],
        outputs: &Range<usize>,
        scratch: &mut [i8],
        out: &mut [i8],
    ) -> Result<(), QuantisedError> {
        let shape = Shape::of(layer)?;
        if shape.depthwise {
            let finish = |channel, sum| self.finish(channel, sum);
            depthwise::row(
                layer,
                &shape,
                &self.weights,
                self.input_zero,
                taps,
                outputs,
                out,
                finish,
            );
            return Ok(());
        }
        self.each(
            layer,
            &shape,
            taps,
            outputs,
            &shape.all(),
            scratch,
            |place, channel, sum| {
                out[place] = self.finish(channel, sum);
            },
        );
        Ok(())
    }

    /// Adds what some input channels give to the sums of one row. Sums over all of them, in any order, are those that
    /// [`Convolution::row`] finishes.
    pub(super) fn add_sums(
        &self,
        layer: &Layer,
        taps: &[Option<RowView<'_>>],
        outputs: &Range<usize>,
        inputs: &Range<usize>,
        scratch: &mut [i8],
        sums: &mut [i32],
    ) -> Result<(), QuantisedError> {
        let shape = Shape::of(layer)?;
        self.each(layer, &shape, taps, outputs, inputs, scratch, |place, _, sum| {
            sums[place] += sum
        });
        Ok(())
    }

    /// A sum of products with its bias, as 8 bits.
    pub(super) fn finish(&self, channel: usize, sum: i32) -> i8 {
        self.output
            .place(self.rescale[channel].apply(sum + self.bias[channel]))
    }

    /// One value of an output channel, from the values under its window: row by row, column by column, channel by channel of the
    /// group.
    pub(crate) fn output_of(
        &self,
        layer: &Layer,
        channel: usize,
        window: &[i8],
    ) -> Result<i8, QuantisedError> {
        let shape = Shape::of(layer)?;
        length("window", window.len(), shape.products())?;
        let sum = match shape.depthwise {
            true => {
                let weights = self.weights[channel..].iter().step_by(layer.output().channels);
                weights
                    .zip(window)
                    .map(|(w, v)| i32::from(*w) * i32::from(*v))
                    .sum()
            }
            false => dot(
                &self.weights[channel * shape.products()..][..shape.products()],
                window,
            ),
        };
        Ok(self.finish(channel, sum))
    }

    /// The parameters of some output channels, for a layer that has only those.
    ///
    /// # Errors
    /// [`QuantisedError::Size`] when there are none, or not this many.
    pub fn share(&self, layer: &Layer, outputs: &Range<usize>) -> Result<Self, QuantisedError> {
        let shape = Shape::of(layer)?;
        let total = layer.output().channels;
        super::error::size("output channels", outputs.end, outputs.start + 1, total)?;
        let products = shape.products();
        let weights = match shape.depthwise {
            true => self
                .weights
                .chunks_exact(total)
                .flat_map(|position| &position[outputs.clone()])
                .copied()
                .collect(),
            false => self.weights[outputs.start * products..outputs.end * products].to_vec(),
        };
        Ok(Self {
            weights,
            bias: self.bias[outputs.clone()].to_vec(),
            rescale: self.rescale[outputs.clone()].to_vec(),
            ..*self
        })
    }

    /// Calls `sink` with place, channel and sum of products for each output of a row.
    #[allow(
        clippy::too_many_arguments,
        reason = "one inner loop; a struct for its operands would only rename them"
    )]
    fn each(
        &self,
        layer: &Layer,
        shape: &Shape,
        taps: &[Option<RowView<'_>>],
        outputs: &Range<usize>,
        inputs: &Range<usize>,
        scratch: &mut [i8],
        mut sink: impl FnMut(usize, usize, i32),
    ) {
        let width = layer.output().width;
        if shape.is_pointwise() {
            let Some(Some(view)) = taps.first() else { return };
            for (at, channel) in outputs.clone().enumerate() {
                let weights = &self.weights[channel * shape.inputs..][inputs.clone()];
                for column in 0..width {
                    let sum = dot(weights, view.cell(column * shape.stride, inputs));
                    sink(column * outputs.len() + at, channel, sum);
                }
            }
            return;
        }
        let positions = shape.window[0] * shape.window[1];
        let per_group = shape.outputs;
        for column in 0..width {
            let mut at = 0;
            for group in outputs.start / per_group..outputs.end.div_ceil(per_group) {
                let base = group * shape.inputs;
                let wanted = base + inputs.start..base + inputs.end;
                let patch = &mut scratch[..positions * inputs.len()];
                gather(layer, shape, self.input_zero, taps, column, &wanted, patch);
                let (first, last) = (
                    outputs.start.max(group * per_group),
                    outputs.end.min((group + 1) * per_group),
                );
                for channel in first..last {
                    let weights = &self.weights[channel * shape.products()..][..shape.products()];
                    let sum = match inputs.len() == shape.inputs {
                        true => dot(weights, patch),
                        false => weights
                            .chunks_exact(shape.inputs)
                            .zip(patch.chunks_exact(inputs.len()))
                            .map(|(weights, values)| dot(&weights[inputs.clone()], values))
                            .sum(),
                    };
                    sink(column * outputs.len() + at, channel, sum);
                    at += 1;
                }
            }
        }
    }
}

/// The numbers of a convolution that its loops need.
pub(super) struct Shape {
    pub(super) window: [usize; 2],
    pub(super) stride: usize,
    pub(super) padding: usize,
    /// Input channels of a group.
    inputs: usize,
    /// Output channels of a group.
    outputs: usize,
    groups: usize,
    depthwise: bool,
}

impl Shape {
    fn of(layer: &Layer) -> Result<Self, QuantisedError> {
        let Operator::Convolution {
            window,
            stride,
            padding,
            groups,
        } = *layer.operator()
        else {
            return Err(QuantisedError::Kind { layer: 0 });
        };
        Ok(Self {
            window,
            stride,
            padding,
            inputs: layer.input().channels / groups,
            outputs: layer.output().channels / groups,
            groups,
            depthwise: layer.is_depthwise() && groups > 1,
        })
    }

    const fn products(&self) -> usize {
        self.window[0] * self.window[1] * self.inputs
    }

    const fn all(&self) -> Range<usize> {
        0..self.inputs
    }

    /// Whether a window is one value of each channel, so that it can be read as it lies.
    fn is_pointwise(&self) -> bool {
        self.window == [1, 1] && self.padding == 0 && self.groups == 1
    }
}

/// Copies the values under a window, zero points where it is padding.
fn gather(
    layer: &Layer,
    shape: &Shape,
    zero: i8,
    taps: &[Option<RowView<'_>>],
    column: usize,
    channels: &Range<usize>,
    patch: &mut [i8],
) {
    let mut cells = patch.chunks_exact_mut(channels.len());
    for tap in taps {
        for dx in 0..shape.window[1] {
            let Some(cell) = cells.next() else { return };
            let x = (column * shape.stride + dx).checked_sub(shape.padding);
            match (tap, x) {
                (Some(view), Some(x)) if x < layer.input().width => {
                    cell.copy_from_slice(view.cell(x, channels))
                }
                _ => cell.fill(zero),
            }
        }
    }
}

/// The sum of products, exact: there are at most [`MOST_PRODUCTS`] of them.
fn dot(weights: &[i8], values: &[i8]) -> i32 {
    let products = weights.iter().zip(values);
    products.map(|(w, v)| i32::from(*w) * i32::from(*v)).sum()
}
