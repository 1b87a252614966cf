//! Types and dimensions of every tensor, inferred by tract on a copy of the model without its weights.

use super::Scaled;
use super::raw::Raw;
use super::read::batch_of;
use crate::outline::{Outline, element_type, type_code, value_info};
use crate::screen::printable;
use crate::tract::{Shaped, infer_outputs};
use crate::wire::Writer;
use crate::{BackendName, Dim, InferError, ModelLimits, TensorInfo};
use karman_tensor::ElementType;
use karman_types::ByteSize;
use std::collections::{HashMap, HashSet};

/// Larger constants are weights, whose values no shape depends on.
const MOST_ELEMENTS_THAT_SHAPE: u64 = 4096;

/// Batches beyond two that are tried in this order: whether a size grows evenly shows at the first that keeps the limits.
const FURTHER: [u32; 2] = [7, 3];

/// What is known of one tensor.
pub(super) struct Fact {
    pub(super) element: ElementType,
    /// As the model may say it: open where the batch shows.
    pub(super) dims: Vec<Dim>,
    /// At a batch of one.
    pub(super) one: Vec<u32>,
    /// At a batch of two; the same where the batch is fixed.
    pub(super) two: Vec<u32>,
    /// At the largest batch that was inferred.
    pub(super) most: Vec<u32>,
}

impl Fact {
    /// Each dimension as a line that is no lower than the dimension at any batch that was inferred, the last of which is given; none for one
    /// that grows faster than the batch.
    pub(super) fn bounds(&self, most: u32) -> impl Iterator<Item = Option<Scaled>> {
        self.points().map(move |[one, two, last]| {
            let in_proportion = Scaled {
                fixed: 0,
                per_item: one.max(two.div_ceil(2)),
            };
            [Scaled::through(one, two), in_proportion]
                .into_iter()
                .find(|line| line.at(1) >= one && line.at(2) >= two && line.at(most) >= last)
        })
    }

    /// Whether each dimension grows by the same with every item of the batch.
    fn is_even(&self, most: u32) -> bool {
        self.points().all(|[one, two, last]| {
            let line = Scaled::through(one, two);
            [line.at(1), line.at(2), line.at(most)] == [one, two, last]
        })
    }

    /// The sizes of each dimension, by the batch.
    fn points(&self) -> impl Iterator<Item = [u64; 3]> {
        let further = self.two.iter().zip(&self.most);
        let points = self.one.iter().zip(further);
        points.map(|(one, (two, most))| [*one, *two, *most].map(u64::from))
    }
}

/// The sizes of the inputs, and what was inferred of all that is used.
type Pass = (Vec<Vec<u32>>, Vec<Shaped>);

/// What was inferred at a batch of one, of two, and at the largest.
struct Passes {
    at: [Pass; 3],
    /// The largest: one where the batch is fixed.
    most: u32,
    /// The least batch that went over the limits, if one did.
    over: Option<u32>,
}

impl Passes {
    fn infer(is_open: bool, pass: impl Fn(u32) -> Result<Pass, InferError>) -> Result<Self, InferError> {
        let one = pass(1)?;
        let fixed = |one: Pass, over| Self {
            at: [one.clone(), one.clone(), one],
            most: 1,
            over,
        };
        if !is_open {
            return Ok(fixed(one, None));
        }
        // A model may say that its batch is open and fix it somewhere inside; then it is one.
        let two = match pass(2) {
            Ok(two) => two,
            Err(InferError::Limit { .. }) => return Ok(fixed(one, Some(2))),
            Err(_) => return Ok(fixed(one, None)),
        };
        let mut over = None;
        for most in FURTHER {
            match pass(most) {
                Ok(last) => {
                    let at = [one, two, last];
                    return Ok(Self { at, most, over });
                }
                Err(InferError::Limit { .. }) => over = Some(most),
                Err(_) => return Ok(fixed(one, None)),
            }
        }
        Ok(Self {
            at: [one, two.clone(), two],
            most: 2,
            over,
        })
    }
}

/// What is known of every tensor that something uses.
pub(super) struct Known<'a> {
    facts: HashMap<&'a str, Fact>,
    used: HashSet<&'a str>,
    pub(super) batch: Option<String>,
    /// The largest batch that was inferred.
    pub(super) most: u32,
    /// The least batch that went over twice the limits, if one did.
    pub(super) over: Option<u32>,
}

impl<'a> Known<'a> {
    pub(super) fn infer(
        raw: &Raw<'a>,
        outline: &'a Outline,
        live: &[usize],
        limits: &ModelLimits,
    ) -> Result<Self, InferError> {
        let mut used: HashSet<&'a str> = outline.outputs.iter().map(|info| info.name.as_str()).collect();
        for at in live {
            used.extend(raw.nodes[*at].takes());
        }
        let made: Vec<&'a str> = live
            .iter()
            .flat_map(|at| raw.nodes[*at].makes())
            .filter(|name| used.contains(name))
            .collect();
        let pass = |batch: u32| -> Result<Pass, InferError> {
            let inputs = fixed(outline, batch)?;
            let skeleton = skeleton(raw, outline, &inputs, live, &made);
            // Twice the batch may take twice the memory, of which nothing is allocated here.
            let doubled = |bytes: ByteSize| ByteSize(bytes.0.saturating_mul(2));
            let limits = ModelLimits {
                tensor: doubled(limits.tensor),
                run: doubled(limits.run),
                ..limits.clone()
            };
            Ok((inputs, infer_outputs(&skeleton, &limits)?))
        };
        let passes = Passes::infer(batch_of(outline).is_some(), pass)?;
        let mut known = Self {
            facts: HashMap::new(),
            used,
            batch: batch_of(outline).filter(|_| passes.most > 1).map(str::to_owned),
            most: passes.most,
            over: passes.over,
        };
        let [(inputs_one, one), (inputs_two, two), (inputs_most, most)] = passes.at;
        let inputs = inputs_one
            .into_iter()
            .zip(inputs_two.into_iter().zip(inputs_most));
        for (info, (one, (two, most))) in outline.inputs.iter().zip(inputs) {
            known.insert(&info.name, info.element, [one, two, most]);
        }
        for tensor in &raw.tensors {
            if let Some(element) = element_type(tensor.code) {
                let dims = || tensor.dims.clone();
                known.insert(tensor.name, element, [dims(), dims(), dims()]);
            }
        }
        let shapes = one.into_iter().zip(two.into_iter().zip(most));
        for (name, shapes) in made.into_iter().zip(shapes) {
            if let (Some((element, one)), (Some((_, two)), Some((_, most)))) = shapes
                && one.len() == two.len()
                && one.len() == most.len()
            {
                known.insert(name, element, [one, two, most]);
            }
        }
        known.believe(raw);
        Ok(known)
    }

    /// Takes from the file what tract does not know: it lacks operators that ONNX Runtime has. A file that says what is not so
    /// gives fragments that refuse their inputs.
    fn believe(&mut self, raw: &Raw<'a>) {
        let batch = self.batch.clone();
        let declared = raw.declared.iter().filter_map(|info| value_info(info).ok());
        for (name, info) in declared
            .filter_map(|info| Some((*self.used.get(info.name.as_str())?, info)))
            .collect::<Vec<_>>()
        {
            let of = |items: u32| -> Option<Vec<u32>> {
                let size = |(axis, dim): (usize, &Dim)| match dim {
                    Dim::Fixed(size) => Some(*size),
                    Dim::Any(name) if Some(name) == batch.as_ref() && is_batch(name, axis) => Some(items),
                    Dim::Any(_) => None,
                };
                info.dims.as_ref()?.iter().enumerate().map(size).collect()
            };
            if let (false, Some(one), Some(two), Some(most)) =
                (self.facts.contains_key(name), of(1), of(2), of(self.most))
            {
                self.insert(name, info.element, [one, two, most]);
            }
        }
    }

    /// The same with the batch fixed to one where a size does not grow evenly with it: no name of a dimension says how large such a tensor is.
    pub(super) fn even(mut self) -> Self {
        if self.facts.values().all(|fact| fact.is_even(self.most)) {
            return self;
        }
        self.batch = None;
        for fact in self.facts.values_mut() {
            fact.dims = fact.one.iter().copied().map(Dim::Fixed).collect();
            fact.two.clone_from(&fact.one);
            fact.most.clone_from(&fact.one);
        }
        self
    }

    fn insert(&mut self, name: &'a str, element: ElementType, [one, two, most]: [Vec<u32>; 3]) {
        let symbol = self.batch.clone().unwrap_or_default();
        let dims = one
            .iter()
            .zip(&two)
            .map(|(one, two)| match (one, two) {
                (one, two) if one == two => Dim::Fixed(*one),
                (1, 2) => Dim::Any(symbol.clone()),
                _ => Dim::Any(String::new()),
            })
            .collect();
        let fact = Fact {
            element,
            dims,
            one,
            two,
            most,
        };
        self.facts.insert(name, fact);
    }

    pub(super) fn get(&self, name: &str) -> Result<&Fact, InferError> {
        self.facts.get(name).ok_or_else(|| InferError::Rejected {
            backend: BackendName::Tract,
            reason: format!("the type or size of `{}` cannot be told", printable(name)),
        })
    }

    /// Whether a node or an output of the model takes it.
    pub(super) fn is_used(&self, name: &str) -> bool {
        self.used.contains(name)
    }
}

/// Whether a dimension with the name of the batch is the batch: one without a name is where a batch stands.
fn is_batch(name: &str, axis: usize) -> bool {
    !name.is_empty() || axis == 0
}

/// The dimensions of the inputs at this batch.
fn fixed(outline: &Outline, batch: u32) -> Result<Vec<Vec<u32>>, InferError> {
    let symbol = batch_of(outline);
    let size = |info: &TensorInfo, axis: usize, name: &str| {
        if Some(name) == symbol && is_batch(name, axis) {
            return Ok(batch);
        }
        Err(InferError::OpenDimension {
            input: printable(&info.name),
            dimension: printable(name),
        })
    };
    outline
        .inputs
        .iter()
        .map(|info| {
            let dims = info.dims.as_ref().ok_or_else(|| InferError::OpenDimension {
                input: printable(&info.name),
                dimension: String::new(),
            })?;
            dims.iter()
                .enumerate()
                .map(|(axis, dim)| match dim {
                    Dim::Fixed(size) => Ok(*size),
                    Dim::Any(name) => size(info, axis, name),
                })
                .collect()
        })
        .collect()
}

/// The model with weights as further inputs and everything that is used as an output.
fn skeleton(raw: &Raw<'_>, outline: &Outline, inputs: &[Vec<u32>], live: &[usize], made: &[&str]) -> Vec<u8> {
    let mut graph = Writer::default();
    for at in live {
        graph.bytes(1, raw.nodes[*at].body);
    }
    graph.bytes(2, "shapes");
    for tensor in &raw.tensors {
        match tensor.elements() > MOST_ELEMENTS_THAT_SHAPE {
            true => write_info(
                &mut graph,
                11,
                tensor.name,
                tensor.code as i64,
                tensor.dims.iter().map(|d| Dim::Fixed(*d)),
            ),
            false => _ = graph.bytes(5, tensor.body),
        }
    }
    for (info, dims) in outline.inputs.iter().zip(inputs) {
        let dims = dims.iter().map(|dim| Dim::Fixed(*dim));
        write_info(&mut graph, 11, &info.name, type_code(info.element), dims);
    }
    for name in made {
        graph.message(12, |info| _ = info.bytes(1, name));
    }
    let mut model = Writer(raw.header.clone());
    model.bytes(7, graph.0);
    model.0
}

/// An input (11) or output (12) of a graph.
pub(super) fn write_info(
    graph: &mut Writer,
    field: u32,
    name: &str,
    code: i64,
    dims: impl Iterator<Item = Dim>,
) {
    graph.message(field, |info| {
        info.bytes(1, name).message(2, |of_type| {
            of_type.message(1, |tensor| {
                tensor.number(1, code).message(2, |shape| {
                    for dim in dims {
                        shape.message(1, |entry| match dim {
                            Dim::Fixed(size) => _ = entry.number(1, size.into()),
                            Dim::Any(symbol) if symbol.is_empty() => {}
                            Dim::Any(symbol) => _ = entry.bytes(2, symbol),
                        });
                    }
                });
            });
        });
    });
}
