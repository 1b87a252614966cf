//! From the nodes of a graph to layers, one after the other.

use super::constants::{floats, scale_and_zero};
use super::layers::Pending;
use crate::InferError;
use crate::graph::{Graph, Operand, Operation};
use karman_tensor::ElementType;
use karman_tensor::quantised::{Extent, Layer, Parameters, QuantisedError};
use std::collections::HashMap;

/// What of a graph is in whole numbers.
pub(super) struct Walked {
    /// How the input is quantised.
    pub(super) entry: Option<Entry>,
    /// The edge of each activation: that of the input, then those of the layers.
    pub(super) stored: Vec<usize>,
    pub(super) layers: Vec<Layer>,
    /// Which activation each of them takes.
    pub(super) takes: Vec<usize>,
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
pub(super) enum Value {
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
pub(super) struct Real {
    pub(super) activation: usize,
    pub(super) scale: f64,
    pub(super) zero: i8,
    /// Whether it has no rows and columns any more.
    pub(super) flat: bool,
}

pub(super) struct Walk<'g> {
    pub(super) graph: &'g Graph,
    known: HashMap<usize, Value>,
    walked: Walked,
}

/// Node by node; what follows on a node that cannot be taken cannot be taken either.
pub(super) fn walk(graph: &Graph) -> Result<Walked, InferError> {
    graph.check_translatable()?;
    let mut walk = Walk {
        graph,
        known: HashMap::new(),
        walked: Walked {
            entry: None,
            stored: Vec::new(),
            layers: Vec::new(),
            takes: Vec::new(),
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

/// What is left between two bounds. Where they are the wrong way round it is the upper one, as ONNX has it.
pub(super) fn clipped(bounds: [f64; 2], [low, high]: [f64; 2]) -> [f64; 2] {
    bounds.map(|bound| bound.max(low).min(high))
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
            "MaxPool" => self.maximum(operation),
            "Relu" => self.bounded(operation, [0.0, f64::INFINITY]),
            "Clip" => self.clipped(operation),
            "Flatten" | "Reshape" | "Squeeze" => self.flattened(operation, out),
            op => Err(why(format!("{op} is not computed in whole numbers"))),
        }
    }

    pub(super) fn extent(&self, activation: usize) -> Result<Extent, Unfit> {
        let extent = match activation.checked_sub(1) {
            None => self.walked.entry.map(|entry| entry.extent),
            Some(layer) => self.walked.layers.get(layer).map(Layer::output),
        };
        extent.ok_or_else(|| why("what it takes is not quantised"))
    }

    pub(super) fn real(&self, operation: &Operation<'_>, place: usize) -> Result<Real, Unfit> {
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
    pub(super) fn map(&self, operation: &Operation<'_>, place: usize) -> Result<Real, Unfit> {
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

    fn bounded(&mut self, operation: &Operation<'_>, within: [f64; 2]) -> Result<Value, Unfit> {
        let mut pending = self.taken(operation)?;
        pending.bounds = clipped(pending.bounds, within);
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
        let (layer, takes, flat) = (pending.layer.clone(), pending.takes, pending.flat);
        let parameters = pending.parameters(scale, zero)?;
        self.walked.layers.push(layer);
        self.walked.takes.push(takes);
        self.walked.parameters.push(parameters);
        self.walked.stored.push(out);
        Ok(Value::Stored {
            activation: self.walked.layers.len(),
            unsigned,
            flat,
        })
    }
}
