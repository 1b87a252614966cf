//! From the nodes of a graph to layers, one after the other.

use super::constants::{Weights, bias, floats, scale_and_zero, weights};
use crate::InferError;
use crate::graph::{Graph, Operand, Operation};
use karman_tensor::ElementType;
use karman_tensor::quantised::{
    Add, AveragePool, Convolution, Extent, Layer, Parameters, QuantisedError, Range8, Rescale,
};
use std::collections::HashMap;

/// What of a graph is in whole numbers.
pub(super) struct Walked {
    /// How the input is quantised.
    pub(super) entry: Option<Entry>,
    /// The edge of each activation: that of the input, then those of the layers.
    pub(super) stored: Vec<usize>,
    pub(super) layers: Vec<Layer>,
    pub(super) parameters: Vec<Parameters>,
    /// The first node that could not be taken, and why.
    pub(super) stopped: Option<(String, String)>,
}

/// How the input of the model becomes whole numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) edge: usize,
    scale: f64,
    zero: i8,
    extent: Extent,
}

impl Entry {
    /// As `QuantizeLinear` does: halves to even, and what lies outside to the nearest bound.
    pub(super) fn quantise(&self, value: f32) -> i8 {
        let steps = (value / self.scale as f32).round_ties_even();
        (steps + f32::from(self.zero)).clamp(f32::from(i8::MIN), f32::from(i8::MAX)) as i8
    }
}

/// Why a node has no form in whole numbers; or why the file does not read.
pub(super) enum Unfit {
    Why(String),
    File(InferError),
}

impl From<InferError> for Unfit {
    fn from(error: InferError) -> Self {
        Self::File(error)
    }
}

impl From<QuantisedError> for Unfit {
    fn from(error: QuantisedError) -> Self {
        Self::Why(error.to_string())
    }
}

pub(super) fn why(why: impl Into<String>) -> Unfit {
    Unfit::Why(why.into())
}

/// What an edge carries.
enum Value {
    /// An activation in 8 bits.
    Stored {
        activation: usize,
        unsigned: bool,
        flat: bool,
    },
    /// The real numbers that an activation stands for.
    Real(Real),
    /// The real numbers that a layer gives, until it is known how they are quantised.
    Pending(Box<Pending>),
}

#[derive(Clone, Copy)]
struct Real {
    activation: usize,
    scale: f64,
    zero: i8,
    /// Whether it has no rows and columns any more.
    flat: bool,
}

struct Pending {
    /// The activation that it takes, which must be the last one when it is quantised.
    takes: usize,
    layer: Layer,
    work: Work,
    bounds: [f64; 2],
    flat: bool,
}

enum Work {
    Convolution {
        input: Real,
        weights: Weights,
        bias: Vec<f64>,
    },
    Mean(Real),
    Add(Real, Real),
}

struct Walk<'g> {
    graph: &'g Graph,
    known: HashMap<usize, Value>,
    walked: Walked,
}

/// Node by node; what follows on a node that cannot be taken cannot be taken either.
pub(super) fn walk(graph: &Graph) -> Result<Walked, InferError> {
    let mut walk = Walk {
        graph,
        known: HashMap::new(),
        walked: Walked {
            entry: None,
            stored: Vec::new(),
            layers: Vec::new(),
            parameters: Vec::new(),
            stopped: None,
        },
    };
    for at in 0..graph.nodes().len() {
        let Some(Some(out)) = graph.outputs_of(at)?.first().copied() else {
            continue;
        };
        let operation = graph.operation(at)?;
        match walk.value(at, &operation, out) {
            Ok(value) => drop(walk.known.insert(out, value)),
            Err(Unfit::File(error)) => return Err(error),
            Err(Unfit::Why(why)) => {
                walk.walked
                    .stopped
                    .get_or_insert_with(|| (operation.name.to_owned(), why));
            }
        }
    }
    Ok(walk.walked)
}

impl Walk<'_> {
    fn value(&mut self, at: usize, operation: &Operation<'_>, out: usize) -> Result<Value, Unfit> {
        match operation.op.as_str() {
            "QuantizeLinear" => self.quantised(operation, out),
            "DequantizeLinear" => self.restored(operation),
            "Conv" => self.convolution(at, operation),
            "Gemm" => self.fully_connected(at, operation),
            "GlobalAveragePool" => self.mean(operation),
            "Add" => self.addition(operation),
            "Relu" => self.bounded(operation, [0.0, f64::INFINITY]),
            "Clip" => self.clipped(operation),
            "Flatten" | "Reshape" | "Squeeze" => self.flattened(operation, out),
            op => Err(why(format!("{op} is not computed in whole numbers"))),
        }
    }

    fn extent(&self, activation: usize) -> Result<Extent, Unfit> {
        let extent = match activation.checked_sub(1) {
            None => self.walked.entry.map(|entry| entry.extent),
            Some(layer) => self.walked.layers.get(layer).map(Layer::output),
        };
        extent.ok_or_else(|| why("what it takes is not quantised"))
    }

    fn real(&self, operation: &Operation<'_>, place: usize) -> Result<Real, Unfit> {
        let known = match operation.input(place) {
            Operand::Edge(edge) => self.known.get(&edge),
            _ => None,
        };
        match known {
            Some(Value::Real(real)) => Ok(*real),
            _ => Err(why("what it takes is not quantised")),
        }
    }

    /// What has rows and columns.
    fn map(&self, operation: &Operation<'_>, place: usize) -> Result<Real, Unfit> {
        let real = self.real(operation, place)?;
        match real.flat {
            false => Ok(real),
            true => Err(why("what it takes has no rows and columns")),
        }
    }

    fn quantised(&mut self, operation: &Operation<'_>, out: usize) -> Result<Value, Unfit> {
        let Operand::Edge(edge) = operation.input(0) else {
            return Err(why("it quantises a constant"));
        };
        let unsigned = match self.graph.edges()[out].info.element {
            ElementType::U8 => true,
            ElementType::I8 => false,
            other => return Err(why(format!("it quantises to {other}, not to 8 bits"))),
        };
        let (scale, zero) = scale_and_zero(operation, unsigned)?;
        if self.graph.inputs().contains(&edge) {
            return self.entered(edge, out, (scale, zero, unsigned));
        }
        match self.known.get(&edge) {
            // Its form changed, not its numbers.
            Some(Value::Real(real)) if real.scale == scale && real.zero == zero => Ok(Value::Stored {
                activation: real.activation,
                unsigned,
                flat: real.flat,
            }),
            Some(Value::Real(_)) => Err(why("it quantises once more, in another way")),
            Some(Value::Pending(_)) => match self.known.remove(&edge) {
                Some(Value::Pending(pending)) => self.complete(*pending, out, (scale, zero, unsigned)),
                _ => Err(why("what it takes is not in whole numbers")),
            },
            _ => Err(why("what it takes is not in whole numbers")),
        }
    }

    /// The input of the model, quantised.
    fn entered(
        &mut self,
        edge: usize,
        out: usize,
        (scale, zero, unsigned): (f64, i8, bool),
    ) -> Result<Value, Unfit> {
        if self.walked.entry.is_some() {
            return Err(why("inputs of the model are quantised twice"));
        }
        let (dims, element) = (self.graph.dims_at(edge, 1), self.graph.edges()[edge].info.element);
        let size = |dim: u32| dim as usize;
        let (extent, flat) = match dims.as_deref() {
            Some([1, channels, height, width]) => {
                (Extent::new(size(*channels), size(*height), size(*width))?, false)
            }
            Some([1, features]) => (Extent::new(size(*features), 1, 1)?, true),
            _ => return Err(why("its input is neither a batch of maps nor one of vectors")),
        };
        if element != ElementType::F32 {
            return Err(why(format!("its input is {element}, not f32")));
        }
        self.walked.entry = Some(Entry {
            edge,
            scale,
            zero,
            extent,
        });
        self.walked.stored.push(out);
        Ok(Value::Stored {
            activation: 0,
            unsigned,
            flat,
        })
    }

    fn restored(&self, operation: &Operation<'_>) -> Result<Value, Unfit> {
        let known = match operation.input(0) {
            Operand::Edge(edge) => self.known.get(&edge),
            _ => None,
        };
        let Some(Value::Stored {
            activation,
            unsigned,
            flat,
        }) = known
        else {
            return Err(why("what it takes is not in whole numbers"));
        };
        let (scale, zero) = scale_and_zero(operation, *unsigned)?;
        Ok(Value::Real(Real {
            activation: *activation,
            scale,
            zero,
            flat: *flat,
        }))
    }

    fn convolution(&self, at: usize, operation: &Operation<'_>) -> Result<Value, Unfit> {
        let input = self.map(operation, 0)?;
        let mut weights = weights(self.graph, at, 1, 0)?;
        let [outputs, of_group, height, width] = weights.dims[..] else {
            return Err(why("its window has not two dimensions"));
        };
        let plain = |name: &str| {
            operation
                .ints(name)
                .is_none_or(|all| all.iter().all(|one| *one == 1))
        };
        if !plain("dilations") || operation.text("auto_pad", "NOTSET") != "NOTSET" {
            return Err(why("its window has gaps, or its padding depends on the input"));
        }
        let same = |name: &str, or: i64| match operation.ints(name) {
            None | Some([]) => Ok(or as usize),
            Some([first, rest @ ..]) if *first >= 0 && rest.iter().all(|one| one == first) => {
                Ok(*first as usize)
            }
            Some(_) => Err(why(format!("its {name} are not the same on all sides"))),
        };
        let groups = operation.int("group", 1).max(0) as usize;
        let extent = self.extent(input.activation)?;
        let window = [height as usize, width as usize];
        let (stride, padding) = (same("strides", 1)?, same("pads", 0)?);
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

    fn fully_connected(&self, at: usize, operation: &Operation<'_>) -> Result<Value, Unfit> {
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

    fn mean(&self, operation: &Operation<'_>) -> Result<Value, Unfit> {
        let input = self.map(operation, 0)?;
        let layer = Layer::average_pool(self.extent(input.activation)?);
        Ok(pending(input.activation, layer, Work::Mean(input), false))
    }

    fn addition(&self, operation: &Operation<'_>) -> Result<Value, Unfit> {
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

    fn clipped(&mut self, operation: &Operation<'_>) -> Result<Value, Unfit> {
        let mut bounds = [f64::NEG_INFINITY, f64::INFINITY];
        for (bound, place) in bounds.iter_mut().zip(1..) {
            *bound = match (operation.input(place), floats(operation.input(place))?.as_deref()) {
                (Operand::Absent, _) => continue,
                (_, Some([given])) if !given.is_nan() => *given,
                _ => return Err(why("its bounds are not two numbers of the file")),
            };
        }
        self.bounded(operation, bounds)
    }

    fn bounded(&mut self, operation: &Operation<'_>, [low, high]: [f64; 2]) -> Result<Value, Unfit> {
        let mut pending = self.taken(operation)?;
        let [least, most] = pending.bounds;
        pending.bounds = [least.max(low).min(high), most.min(high).max(low)];
        Ok(Value::Pending(pending))
    }

    /// The layer that gives what an operator takes.
    fn taken(&mut self, operation: &Operation<'_>) -> Result<Box<Pending>, Unfit> {
        if let Operand::Edge(edge) = operation.input(0)
            && let Some(Value::Pending(_)) = self.known.get(&edge)
            && let Some(Value::Pending(pending)) = self.known.remove(&edge)
        {
            return Ok(pending);
        }
        Err(why("it follows on no layer in whole numbers"))
    }

    fn flattened(&mut self, operation: &Operation<'_>, out: usize) -> Result<Value, Unfit> {
        let dims = self.graph.dims_at(out, 1);
        let vector = |elements: usize| match dims.as_deref() {
            Some([1, length]) if *length as usize == elements => Ok(()),
            _ => Err(why("it makes something else than a vector of what it takes")),
        };
        if let Ok(real) = self.real(operation, 0) {
            vector(self.extent(real.activation)?.elements())?;
            return Ok(Value::Real(Real { flat: true, ..real }));
        }
        let mut pending = self.taken(operation)?;
        vector(pending.layer.output().elements())?;
        pending.flat = true;
        Ok(Value::Pending(pending))
    }

    /// A layer of which everything is known.
    fn complete(
        &mut self,
        pending: Pending,
        out: usize,
        (scale, zero, unsigned): (f64, i8, bool),
    ) -> Result<Value, Unfit> {
        let Pending {
            takes,
            layer,
            work,
            bounds,
            flat,
        } = pending;
        if takes != self.walked.layers.len() {
            return Err(why(
                "it does not follow on the layer before it: layers side by side are not split",
            ));
        }
        let step = |real: f64| {
            let steps = (real / scale).round_ties_even() + f64::from(zero);
            steps.clamp(i8::MIN.into(), i8::MAX.into()) as i8
        };
        let [low, high] = bounds.map(step);
        let output = Range8 { zero, low, high };
        let parameters = match work {
            Work::Convolution { input, weights, bias } => {
                Parameters::Convolution(convolution(&layer, input, weights, &bias, scale, output)?)
            }
            Work::Mean(input) => Parameters::AveragePool(AveragePool::new(
                layer.input(),
                input.scale / scale,
                input.zero,
                output,
            )?),
            Work::Add(one, other) => {
                let factors = [one.scale / scale, other.scale / scale];
                Parameters::Add(Add::new(factors, [one.zero, other.zero], output)?)
            }
        };
        self.walked.layers.push(layer);
        self.walked.parameters.push(parameters);
        self.walked.stored.push(out);
        Ok(Value::Stored {
            activation: self.walked.layers.len(),
            unsigned,
            flat,
        })
    }
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

fn convolution(
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
