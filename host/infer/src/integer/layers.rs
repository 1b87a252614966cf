//! What the operators of a graph are as layers.

use super::constants::{Weights, bias, weights};
use super::walk::{Real, Unfit, Value, Walk, why};
use crate::graph::Operation;
use karman_tensor::quantised::{
    Add, AveragePool, Convolution, Layer, MaxPool, Parameters, QuantisedError, Range8, Rescale,
};

/// A layer until it is known how what it gives is quantised.
pub(super) struct Pending {
    /// The activation that it takes.
    pub(super) takes: usize,
    pub(super) layer: Layer,
    work: Work,
    /// Of what it gives, in real numbers.
    pub(super) bounds: [f64; 2],
    /// Whether what it gives has no rows and columns any more.
    pub(super) flat: bool,
}

enum Work {
    Convolution {
        input: Real,
        weights: Weights,
        bias: Vec<f64>,
    },
    Mean(Real),
    Add(Real, Real),
    Maximum(Real),
}

impl Pending {
    /// What it was trained to, now that it is known how what it gives is quantised.
    pub(super) fn parameters(self, scale: f64, zero: i8) -> Result<Parameters, QuantisedError> {
        let step = |real: f64| {
            let steps = (real / scale).round_ties_even() + f64::from(zero);
            steps.clamp(i8::MIN.into(), i8::MAX.into()) as i8
        };
        let [low, high] = self.bounds.map(step);
        let output = Range8 { zero, low, high };
        let layer = &self.layer;
        Ok(match self.work {
            Work::Convolution { input, weights, bias } => {
                Parameters::Convolution(quantised(layer, input, weights, &bias, scale, output)?)
            }
            Work::Mean(input) => {
                let factor = input.scale / scale;
                Parameters::AveragePool(AveragePool::new(layer.input(), factor, input.zero, output)?)
            }
            Work::Add(one, other) => {
                let factors = [one.scale / scale, other.scale / scale];
                Parameters::Add(Add::new(factors, [one.zero, other.zero], output)?)
            }
            Work::Maximum(input) => {
                Parameters::MaxPool(MaxPool::new(input.scale / scale, input.zero, output)?)
            }
        })
    }
}

impl Walk<'_> {
    pub(super) fn convolution(&self, at: usize, operation: &Operation<'_>) -> Result<Value, Unfit> {
        let input = self.map(operation, 0)?;
        let mut weights = weights(self.graph, at, 1, 0)?;
        let [outputs, of_group, height, width] = weights.dims[..] else {
            return Err(why("its window has not two dimensions"));
        };
        let (stride, padding) = slides(operation)?;
        let groups = operation.int("group", 1).max(0) as usize;
        let extent = self.extent(input.activation)?;
        let window = [height as usize, width as usize];
        let layer = Layer::convolution(extent, outputs as usize, window, stride, padding, groups)?;
        if of_group as usize * groups != extent.channels {
            return Err(why("its weights are for another number of channels"));
        }
        let positions = window[0] * window[1];
        weights.values = match layer.is_depthwise() && groups > 1 {
            // Channel by channel: position by position.
            true => transposed(&weights.values, outputs as usize, positions),
            false => weights
                .values
                .chunks_exact((of_group as usize * positions).max(1))
                .flat_map(|kernel| transposed(kernel, of_group as usize, positions))
                .collect(),
        };
        self.weighted(at, operation, (input, layer, weights), false)
    }

    pub(super) fn fully_connected(&self, at: usize, operation: &Operation<'_>) -> Result<Value, Unfit> {
        let input = self.real(operation, 0)?;
        let scaled = [("alpha", 1.0), ("beta", 1.0)]
            .iter()
            .any(|(name, one)| operation.float(name, *one) != *one);
        if !input.flat || scaled || operation.int("transA", 0) != 0 {
            return Err(why("it is no plain product of a vector and weights"));
        }
        let by_outputs = operation.int("transB", 0) != 0;
        let mut weights = weights(self.graph, at, 1, usize::from(!by_outputs))?;
        let extent = self.extent(input.activation)?;
        let [rows, columns] = weights.dims[..] else {
            return Err(why("its weights are no matrix"));
        };
        let (rows, columns) = (rows as usize, columns as usize);
        let (outputs, inputs) = if by_outputs {
            (rows, columns)
        } else {
            (columns, rows)
        };
        if inputs != extent.elements() {
            return Err(why("its weights are for another number of inputs"));
        }
        if !by_outputs {
            weights.values = transposed(&weights.values, rows, columns);
        }
        // What was a map comes row by row, not channel by channel.
        let positions = extent.height * extent.width;
        let kernels = weights.values.chunks_exact(inputs.max(1));
        weights.values = kernels
            .flat_map(|kernel| transposed(kernel, extent.channels, positions))
            .collect();
        let layer = Layer::linear(extent, outputs)?;
        self.weighted(at, operation, (input, layer, weights), true)
    }

    fn weighted(
        &self,
        at: usize,
        operation: &Operation<'_>,
        (input, layer, weights): (Real, Layer, Weights),
        flat: bool,
    ) -> Result<Value, Unfit> {
        let bias = bias(self.graph, at, operation, 2, layer.output().channels)?;
        let work = Work::Convolution { input, weights, bias };
        Ok(pending(input.activation, layer, work, flat))
    }

    pub(super) fn mean(&self, operation: &Operation<'_>) -> Result<Value, Unfit> {
        let input = self.map(operation, 0)?;
        let layer = Layer::average_pool(self.extent(input.activation)?);
        Ok(pending(input.activation, layer, Work::Mean(input), false))
    }

    pub(super) fn maximum(&self, operation: &Operation<'_>) -> Result<Value, Unfit> {
        let input = self.map(operation, 0)?;
        let Some([height, width]) = operation.ints("kernel_shape") else {
            return Err(why("its window has not two dimensions"));
        };
        if operation.int("ceil_mode", 0) != 0 {
            return Err(why("its last windows reach beyond the input"));
        }
        let size = |size: i64| size.max(0) as usize;
        let (stride, padding) = slides(operation)?;
        let window = [size(*height), size(*width)];
        let layer = Layer::max_pool(self.extent(input.activation)?, window, stride, padding)?;
        Ok(pending(input.activation, layer, Work::Maximum(input), false))
    }

    pub(super) fn addition(&self, operation: &Operation<'_>) -> Result<Value, Unfit> {
        let (one, other) = (self.real(operation, 0)?, self.real(operation, 1)?);
        // The layer before comes first.
        let (one, other) = match one.activation >= other.activation {
            true => (one, other),
            false => (other, one),
        };
        let extent = self.extent(one.activation)?;
        if one.flat != other.flat || extent != self.extent(other.activation)? {
            return Err(why("it adds what has another shape"));
        }
        let layer = Layer::add(extent, other.activation);
        Ok(pending(one.activation, layer, Work::Add(one, other), one.flat))
    }
}

/// Rows and columns from one place of a window to the next, and those around the input.
fn slides(operation: &Operation<'_>) -> Result<(usize, usize), Unfit> {
    let plain = |name: &str| {
        let all = operation.ints(name);
        all.is_none_or(|all| all.iter().all(|one| *one == 1))
    };
    if !plain("dilations") || operation.text("auto_pad", "NOTSET") != "NOTSET" {
        return Err(why("its window has gaps, or its padding depends on the input"));
    }
    let same = |name: &str, or: i64| match operation.ints(name) {
        None | Some([]) => Ok(or as usize),
        Some([first, rest @ ..]) if *first >= 0 && rest.iter().all(|one| one == first) => Ok(*first as usize),
        Some(_) => Err(why(format!("its {name} are not the same on all sides"))),
    };
    Ok((same("strides", 1)?, same("pads", 0)?))
}

fn pending(takes: usize, layer: Layer, work: Work, flat: bool) -> Value {
    Value::Pending(Box::new(Pending {
        takes,
        layer,
        work,
        bounds: [f64::NEG_INFINITY, f64::INFINITY],
        flat,
    }))
}

fn quantised(
    layer: &Layer,
    input: Real,
    weights: Weights,
    bias: &[f64],
    scale: f64,
    output: Range8,
) -> Result<Convolution, QuantisedError> {
    // A bias is added to sums of products, so that it has their scale.
    let of_sums = weights.scales.iter().map(|of_weights| of_weights * input.scale);
    let steps = bias.iter().zip(of_sums.clone());
    let bias: Vec<i32> = steps
        .map(|(bias, of_sums)| (bias / of_sums).round_ties_even() as i32)
        .collect();
    let rescale = of_sums.map(|of_sums| Rescale::new(of_sums / scale));
    let rescale = rescale.collect::<Result<Vec<_>, _>>()?;
    Convolution::new(layer, weights.values, &bias, rescale, input.zero, output)
}

/// A matrix of so many rows and columns, column by column.
fn transposed(values: &[i8], rows: usize, columns: usize) -> Vec<i8> {
    let column = |column: usize| (0..rows).map(move |row| values[row * columns + column]);
    (0..columns).flat_map(column).collect()
}
