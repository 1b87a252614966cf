//! Bounds what a graph would allocate, before it does.

use super::rejected;
use crate::apart::short;
use crate::{BackendName, InferError, ModelLimits};
use tract_onnx::prelude::*;
use tract_onnx::tract_hir::infer::{Factoid, InferenceFact};

/// Infers types and shapes node by node. tract evaluates what is constant while it infers, so a size is worked out and
/// checked before each node: a `ConstantOfShape` of a terabyte is refused, not tried.
pub(super) fn analyse(graph: &mut InferenceModel, limits: &ModelLimits) -> Result<(), InferError> {
    let mut sum = Sum { limits, bytes: 0 };
    for id in graph.eval_order().map_err(rejected)? {
        let node = graph.node(id);
        let observed = node.op.observe_outlets(graph, node).map_err(rejected)?;
        let fact = |outlet: &OutletId| graph.outlet_fact(*outlet).cloned();
        let inputs: TVec<InferenceFact> = node
            .inputs
            .iter()
            .map(fact)
            .collect::<TractResult<_>>()
            .map_err(rejected)?;
        let outputs: TVec<InferenceFact> = node.outputs.iter().map(|o| o.fact.clone()).collect();
        let observed: TVec<InferenceFact> = observed
            .iter()
            .map(fact)
            .collect::<TractResult<_>>()
            .map_err(rejected)?;
        let name = node.name.clone();
        let op = &mut graph.node_mut(id).op;
        let (_, known, _) = op
            .infer_facts(refs(&inputs), refs(&outputs), refs(&observed))
            .map_err(rejected)?;
        for fact in &known {
            let size = fact.datum_type.concretize().map_or(8, |t| t.size_of());
            let dims: Option<Vec<u64>> = fact.shape.concretize().and_then(|dims| {
                dims.iter()
                    .map(|dim| dim.to_i64().ok()?.try_into().ok())
                    .collect()
            });
            if let Some(dims) = dims {
                sum.add(&name, dims.into_iter(), size)?;
            }
        }
        let op = &mut graph.node_mut(id).op;
        let (_, inferred, _) = op
            .infer(refs(&inputs), refs(&outputs), refs(&observed))
            .map_err(rejected)?;
        for (slot, (new, old)) in inferred.iter().zip(&outputs).enumerate() {
            let both = new.unify(old).map_err(rejected)?;
            graph
                .set_outlet_fact(OutletId::new(id, slot), both)
                .map_err(rejected)?;
        }
    }
    Ok(())
}

fn refs(facts: &TVec<InferenceFact>) -> TVec<&InferenceFact> {
    facts.iter().collect()
}

/// Every tensor of the graph has a known size by now, within its bound, and all of them together are.
pub(super) fn check(graph: &TypedModel, limits: &ModelLimits) -> Result<(), InferError> {
    let mut sum = Sum { limits, bytes: 0 };
    for node in graph.nodes() {
        for output in &node.outputs {
            let dims = output
                .fact
                .shape
                .as_concrete()
                .ok_or_else(|| InferError::Rejected {
                    backend: BackendName::Tract,
                    reason: format!(
                        "the size of `{}` depends on the data, so that nothing bounds it",
                        short(&node.name)
                    ),
                })?;
            sum.add(
                &node.name,
                dims.iter().map(|dim| *dim as u64),
                output.fact.datum_type.size_of(),
            )?;
        }
    }
    Ok(())
}

struct Sum<'l> {
    limits: &'l ModelLimits,
    bytes: u64,
}

impl Sum<'_> {
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
