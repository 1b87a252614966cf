//! Keeps tract from computing softmax wrongly.

use tract_onnx::prelude::*;
use tract_onnx::tract_core::internal::TypedModelPatch;
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_core::ops::math::{mul, sub};
use tract_onnx::tract_core::ops::nn::Softmax;
use tract_onnx::tract_core::ops::quant::DequantizeLinearF32;

/// tract 0.23 folds what lies between two 8-bit tensors into a table of 256 answers, and takes softmax, which needs its whole
/// row, for a function of one element: every answer is then 1. So the dequantisation before a softmax is written out, as
/// `scale * (x - zero)`, which tract does not look for.
pub(super) fn keep_whole(graph: &mut TypedModel) -> TractResult<()> {
    let softmaxes: Vec<usize> = graph
        .nodes()
        .iter()
        .filter(|node| node.op_is::<Softmax>())
        .map(|node| node.id)
        .collect();
    for softmax in softmaxes {
        if let Some((at, op)) = dequantization_before(graph, softmax) {
            write_out(graph, at, &op)?;
        }
    }
    Ok(())
}

/// Up the chain of nodes that take one tensor each.
fn dequantization_before(graph: &TypedModel, mut node: usize) -> Option<(usize, DequantizeLinearF32)> {
    while let [only] = graph.node(node).inputs[..] {
        node = only.node;
        if let Some(op) = graph.node(node).op_as::<DequantizeLinearF32>() {
            return Some((node, op.clone()));
        }
    }
    None
}

fn write_out(graph: &mut TypedModel, at: usize, op: &DequantizeLinearF32) -> TractResult<()> {
    let node = graph.node(at);
    let name = &node.name;
    let rank = graph.outlet_fact(node.inputs[0])?.rank();
    let mut patch = TypedModelPatch::default();
    let x = patch.tap_model(graph, node.inputs[0])?;
    let x = patch.wire_node(format!("{name}.wide"), cast(f32::datum_type()), &[x])?[0];
    let constant = |patch: &mut TypedModelPatch, part: &str, value: f32| {
        patch.add_const(
            format!("{name}.{part}"),
            tensor0(value).broadcast_into_rank(rank)?,
        )
    };
    let zero = constant(&mut patch, "zero", op.zero_point as f32)?;
    let x = patch.wire_node(format!("{name}.centred"), sub(), &[x, zero])?[0];
    let scale = constant(&mut patch, "scale", op.scale)?;
    let x = patch.wire_node(format!("{name}.scaled"), mul(), &[x, scale])?[0];
    patch.shunt_outside(graph, at.into(), x)?;
    patch.apply(graph)
}
