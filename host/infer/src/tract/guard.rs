//! Bounds what a graph would allocate, before it does.

use super::rejected;
use crate::apart::short;
use crate::{BackendName, InferError, ModelLimits};
use std::mem::take;
use tract_onnx::ops::logic::If;
use tract_onnx::prelude::*;
use tract_onnx::tract_core::ops::logic::IfThenElse;
use tract_onnx::tract_core::ops::scan::{InputMapping, Scan};
use tract_onnx::tract_core::ops::source::TypedSource;
use tract_onnx::tract_hir::infer::{Factoid, InferenceFact, InferenceNode, InferenceOp};
use tract_onnx::tract_hir::ops::scan::InferenceScan;
use tract_onnx::tract_hir::ops::source::Source;

/// Infers types and shapes node by node, within the bodies of `If` and `Scan` too. tract evaluates what is constant while it
/// infers, so a size is worked out and checked before each node: a `ConstantOfShape` of a terabyte is refused, not tried.
pub(super) fn analyse(graph: &mut InferenceModel, limits: &ModelLimits) -> Result<(), InferError> {
    Sum { limits, bytes: 0 }.analyse(graph, Place::Model)
}

/// Every tensor of the graph has a known size by now, within its bound, and all of them together are.
pub(super) fn check(graph: &TypedModel, limits: &ModelLimits) -> Result<(), InferError> {
    Sum { limits, bytes: 0 }.check(graph, Place::Model)
}

/// What a graph is.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Place {
    /// The whole model.
    Model,
    /// The body of an operator of it.
    Body,
    /// The same, of an operator that tract runs while it infers.
    Run,
}

/// What is known of the tensors around a node.
struct Facts {
    inputs: TVec<InferenceFact>,
    outputs: TVec<InferenceFact>,
    observed: TVec<InferenceFact>,
}

impl Facts {
    fn of(graph: &InferenceModel, id: usize) -> TractResult<Self> {
        let node = graph.node(id);
        let observed = node.op.observe_outlets(graph, node)?;
        let fact = |outlet: &OutletId| graph.outlet_fact(*outlet).cloned();
        Ok(Self {
            inputs: node.inputs.iter().map(fact).collect::<TractResult<_>>()?,
            outputs: node.outputs.iter().map(|o| o.fact.clone()).collect(),
            observed: observed.iter().map(fact).collect::<TractResult<_>>()?,
        })
    }
}

fn refs(facts: &TVec<InferenceFact>) -> TVec<&InferenceFact> {
    facts.iter().collect()
}

/// The sizes of a tensor, where all of them are known.
fn sizes(fact: &InferenceFact) -> Option<Vec<u64>> {
    let dims = fact.shape.concretize()?;
    dims.iter()
        .map(|dim| dim.to_i64().ok()?.try_into().ok())
        .collect()
}

struct Sum<'l> {
    limits: &'l ModelLimits,
    bytes: u64,
}

impl Sum<'_> {
    fn analyse(&mut self, graph: &mut InferenceModel, place: Place) -> Result<(), InferError> {
        // tract would infer, and evaluate, what no output needs as well.
        graph.compact().map_err(rejected)?;
        for id in graph.eval_order().map_err(rejected)? {
            // What a body takes is made outside of it.
            if place != Place::Model && graph.node(id).op_is::<Source>() {
                continue;
            }
            let facts = Facts::of(graph, id).map_err(rejected)?;
            let node = graph.node_mut(id);
            self.analyse_bodies(node, &facts.inputs, place)?;
            let (_, known, _) = node
                .op
                .infer_facts(refs(&facts.inputs), refs(&facts.outputs), refs(&facts.observed))
                .map_err(rejected)?;
            for fact in &known {
                let size = fact.datum_type.concretize().map_or(8, |t| t.size_of());
                if let Some(dims) = sizes(fact) {
                    self.add(&node.name, dims.into_iter(), size)?;
                }
            }
            let (_, inferred, _) = node
                .op
                .infer(refs(&facts.inputs), refs(&facts.outputs), refs(&facts.observed))
                .map_err(rejected)?;
            for (output, new) in node.outputs.iter_mut().zip(&inferred) {
                output.fact = new.unify(&output.fact).map_err(rejected)?;
                if place == Place::Run && sizes(&output.fact).is_none() {
                    return Err(unbounded(&node.name));
                }
            }
        }
        Ok(())
    }

    /// Analyses the bodies of a node by what is known of its inputs: when the node itself is inferred, tract evaluates what is
    /// constant in them.
    fn analyse_bodies(
        &mut self,
        node: &mut InferenceNode,
        inputs: &TVec<InferenceFact>,
        place: Place,
    ) -> Result<(), InferError> {
        let place = match place {
            Place::Run => Place::Run,
            Place::Model | Place::Body => Place::Body,
        };
        if let Some(op) = node.op_as_mut::<If>() {
            tell_branches(op, inputs).map_err(rejected)?;
            let place = match inputs.iter().all(|fact| fact.value.is_concrete()) {
                true => Place::Run,
                false => place,
            };
            let branches = [&mut op.then_body, &mut op.else_body];
            return self.largest(branches, |sum, body| sum.analyse(body, place));
        }
        if let Some(op) = node.op_as_mut::<InferenceScan>() {
            tell_body(op, inputs).map_err(rejected)?;
            return self.analyse(&mut op.body, place);
        }
        Ok(())
    }

    fn check(&mut self, graph: &TypedModel, place: Place) -> Result<(), InferError> {
        for node in graph.nodes() {
            if place != Place::Model && node.op_is::<TypedSource>() {
                continue;
            }
            for output in &node.outputs {
                let dims = output.fact.shape.as_concrete();
                let dims = dims.ok_or_else(|| unbounded(&node.name))?;
                self.add(
                    &node.name,
                    dims.iter().map(|dim| *dim as u64),
                    output.fact.datum_type.size_of(),
                )?;
            }
            if let Some(op) = node.op_as::<IfThenElse>() {
                let branches = [&op.then_body, &op.else_body];
                self.largest(branches, |sum, body| sum.check(body, Place::Body))?;
            } else if let Some(op) = node.op_as::<Scan>() {
                // Once, however often it runs: what it makes is gone before it runs again.
                self.check(&op.body, Place::Body)?;
            }
        }
        Ok(())
    }

    /// Of the branches of an `If` one runs: the one that makes most counts.
    fn largest<B>(
        &mut self,
        branches: [B; 2],
        mut add: impl FnMut(&mut Self, B) -> Result<(), InferError>,
    ) -> Result<(), InferError> {
        let (before, mut most) = (self.bytes, self.bytes);
        for branch in branches {
            self.bytes = before;
            add(self, branch)?;
            most = most.max(self.bytes);
        }
        self.bytes = most;
        Ok(())
    }

    fn add(
        &mut self,
        node: &str,
        mut dims: impl Iterator<Item = u64>,
        size: usize,
    ) -> Result<(), InferError> {
        let bytes = dims.try_fold(size as u64, u64::checked_mul).unwrap_or(u64::MAX);
        InferError::over("tensor", self.limits.tensor.0, bytes, || {
            format!("what `{}` makes in bytes", short(node))
        })?;
        self.bytes = self.bytes.saturating_add(bytes);
        InferError::over("run", self.limits.run.0, self.bytes, || {
            "all that one run makes in bytes".into()
        })
    }
}

fn unbounded(node: &str) -> InferError {
    InferError::Rejected {
        backend: BackendName::Tract,
        reason: format!(
            "the size of `{}` depends on the data, so that nothing bounds it",
            short(node)
        ),
    }
}

/// Tells the branches of an `If` what is known of what they take. Only tract knows which input goes where: it is asked with
/// branches that make nothing, so that it evaluates nothing.
fn tell_branches(op: &mut If, inputs: &TVec<InferenceFact>) -> TractResult<()> {
    let (mut then_body, mut else_body) = (take(&mut op.then_body), take(&mut op.else_body));
    op.then_body = sources_of(&then_body)?;
    op.else_body = sources_of(&else_body)?;
    op.infer_facts(refs(inputs), TVec::new(), TVec::new())?;
    for (body, told) in [(&mut then_body, &op.then_body), (&mut else_body, &op.else_body)] {
        for at in 0..told.inputs.len() {
            body.set_input_fact(at, told.input_fact(at)?.clone())?;
        }
    }
    (op.then_body, op.else_body) = (then_body, else_body);
    Ok(())
}

/// A graph that takes what this one does.
fn sources_of(body: &InferenceModel) -> TractResult<InferenceModel> {
    let mut sources = InferenceModel::default();
    for outlet in &body.inputs {
        let fact = body.outlet_fact(*outlet)?.clone();
        sources.add_source(body.node(outlet.node).name.clone(), fact)?;
    }
    Ok(sources)
}

/// Tells the body of a `Scan` what is known of what it takes: of what is scanned, one slice.
fn tell_body(op: &mut InferenceScan, inputs: &TVec<InferenceFact>) -> TractResult<()> {
    for (at, (mapping, given)) in op.input_mapping.iter().zip(inputs).enumerate() {
        let mut fact = given.clone();
        match mapping {
            InputMapping::Full => {}
            InputMapping::State => fact = fact.without_value(),
            InputMapping::Scan(slice) => {
                fact = fact.without_value();
                fact.shape.ensure_rank_at_least(slice.axis);
                fact.shape.set_dim(slice.axis, 1.to_dim());
            }
        }
        let fact = fact.unify(op.body.input_fact(at)?)?;
        op.body.set_input_fact(at, fact)?;
    }
    Ok(())
}
