//! The built-in back-end: pure Rust, always there.

mod guard;
mod softmax;
mod tensor;

use crate::apart::{catching, on_a_large_stack, short};
use crate::outline::Outline;
use crate::{Backend, BackendName, InferError, LoadOptions, Model, ModelLimits, TensorInfo, inputs};
use karman_tensor::{ElementType, Shape, Tensor};
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::sync::Arc;
use tract_onnx::ops::logic::If;
use tract_onnx::pb;
use tract_onnx::prelude::*;
use tract_onnx::tract_hir::infer::{Factoid, InferenceFact};
use tract_onnx::tract_hir::ops::scan::InferenceScan;
use tract_onnx::tract_hir::ops::unimpl::UnimplementedOp;

/// tract. A model whose dimensions are open is optimised anew for each set of input shapes, because an open dimension makes
/// tract several times slower; the last few of these plans are kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tract;

impl Backend for Tract {
    fn name(&self) -> BackendName {
        BackendName::Tract
    }

    fn version(&self) -> &str {
        "0.23"
    }

    fn load(&self, bytes: &[u8], options: &LoadOptions) -> Result<Arc<dyn Model>, InferError> {
        let outline = Outline::read(bytes, &options.limits)?;
        let model = on_a_large_stack(BackendName::Tract, || parse(bytes))?;
        let model = TractModel {
            graph: model,
            outline,
            plans: Mutex::default(),
            kept: options.plans,
            limits: options.limits.clone(),
        };
        // Made now, so that a model that cannot run does not load and the first call does not wait. Where dimensions are
        // open this is a guess: a batch of one.
        let fixed = model.outline.inputs.iter().all(|i| i.fixed_shape().is_some());
        let guess: Option<Vec<Shape>> = model
            .outline
            .inputs
            .iter()
            .map(|i| i.shape_with(Some(1)))
            .collect();
        if let Some(shapes) = guess {
            match model.plan(shapes) {
                Err(error @ InferError::Rejected { .. }) => {
                    // Other shapes may do; they bring no operator.
                    if let Some(operator) = lacking(&model.graph) {
                        return Err(unknown(&operator));
                    }
                    if fixed {
                        return Err(error);
                    }
                    tracing::debug!(%error, "no plan for a batch of one; waiting for real shapes");
                }
                other => _ = other?,
            }
        }
        Ok(Arc::new(model))
    }
}

type Plan = Arc<TypedRunnableModel>;

struct TractModel {
    graph: InferenceModel,
    outline: Outline,
    /// The latest used last.
    plans: Mutex<Vec<(Vec<Shape>, Plan)>>,
    kept: NonZeroUsize,
    limits: ModelLimits,
}

impl Model for TractModel {
    fn backend(&self) -> BackendName {
        BackendName::Tract
    }

    fn inputs(&self) -> &[TensorInfo] {
        &self.outline.inputs
    }

    fn outputs(&self) -> &[TensorInfo] {
        &self.outline.outputs
    }

    fn run(&self, given: Vec<(String, Tensor)>) -> Result<Vec<(String, Tensor)>, InferError> {
        let given = inputs::arrange(&self.outline.inputs, given, &self.limits)?;
        inputs::refuse_empty(&self.outline.inputs, &given)?;
        let plan = self.plan(given.iter().map(Tensor::shape).collect())?;
        let outputs = catching(BackendName::Tract, || {
            let values = given
                .iter()
                .map(|t| Ok(tensor::to_tract(t)?.into_tvalue()))
                .collect::<TractResult<_>>()
                .map_err(run_error)?;
            plan.run(values).map_err(run_error)
        })?;
        outputs
            .iter()
            .zip(&self.outline.outputs)
            .map(|(value, info)| Ok((info.name.clone(), tensor::from_tract(value, info)?)))
            .collect()
    }
}

impl TractModel {
    /// The plan for inputs of these shapes.
    fn plan(&self, shapes: Vec<Shape>) -> Result<Plan, InferError> {
        let mut plans = self.plans.lock();
        if let Some(at) = plans.iter().position(|(of, _)| *of == shapes) {
            plans[at..].rotate_left(1);
            return Ok(plans[plans.len() - 1].1.clone());
        }
        drop(plans);
        let plan = on_a_large_stack(BackendName::Tract, || self.optimise(&shapes))?;
        let mut plans = self.plans.lock();
        if plans.len() >= self.kept.get() {
            plans.remove(0);
        }
        plans.push((shapes, plan.clone()));
        Ok(plan)
    }

    fn optimise(&self, shapes: &[Shape]) -> Result<Plan, InferError> {
        let mut graph = self.graph.clone();
        for (at, (info, shape)) in self.outline.inputs.iter().zip(shapes).enumerate() {
            let dims: TVec<usize> = shape.dims().iter().map(|dim| *dim as usize).collect();
            let fact = InferenceFact::dt_shape(tensor::datum_type(info.element).map_err(rejected)?, dims);
            graph.set_input_fact(at, fact).map_err(rejected)?;
        }
        guard::analyse(&mut graph, &self.limits)?;
        let mut graph = graph.into_typed().map_err(rejected)?;
        guard::check(&graph, &self.limits)?;
        softmax::keep_whole(&mut graph).map_err(rejected)?;
        graph
            .into_optimized()
            .and_then(IntoRunnable::into_runnable)
            .map_err(rejected)
    }
}

fn parse(bytes: &[u8]) -> Result<InferenceModel, InferError> {
    let onnx = tract_onnx::onnx().with_ignore_value_info(true);
    let mut proto = onnx.proto_model_for_read(&mut &bytes[..]).map_err(rejected)?;
    if let Some(graph) = &mut proto.graph {
        forget_symbols(graph);
    }
    let graph = onnx.model_for_proto_model(&proto).map_err(rejected)?;
    // A constant whose type is unknown would have been refused by now; an input without one never gets here.
    debug_assert!(graph.inputs.iter().all(|o| {
        graph
            .outlet_fact(*o)
            .is_ok_and(|fact| fact.datum_type.concretize().is_some())
    }));
    Ok(graph)
}

/// Dimensions are written as expressions that anyone may have made deep; their sizes come from the tensors instead.
fn forget_symbols(graph: &mut pb::GraphProto) {
    use pb::tensor_shape_proto::dimension::Value;
    graph.value_info.clear();
    for info in graph.input.iter_mut().chain(&mut graph.output) {
        if let Some(pb::type_proto::Value::TensorType(tensor)) =
            info.r#type.as_mut().and_then(|t| t.value.as_mut())
        {
            for dim in tensor.shape.iter_mut().flat_map(|shape| &mut shape.dim) {
                dim.value.take_if(|value| match value {
                    Value::DimParam(_) => true,
                    Value::DimValue(size) => *size <= 0,
                });
            }
        }
    }
    for attribute in graph.node.iter_mut().flat_map(|node| &mut node.attribute) {
        attribute
            .g
            .iter_mut()
            .chain(&mut attribute.graphs)
            .for_each(forget_symbols);
    }
}

/// The type and dimensions of a tensor; `None` where tract cannot tell.
pub(crate) type Shaped = Option<(ElementType, Vec<u32>)>;

/// Works out the type and dimensions of every output of a model whose inputs are fixed, and runs nothing but what is constant.
pub(crate) fn infer_outputs(model: &[u8], limits: &ModelLimits) -> Result<Vec<Shaped>, InferError> {
    on_a_large_stack(BackendName::Tract, || {
        let mut graph = parse(model)?;
        guard::analyse(&mut graph, limits)?;
        let outlets = graph.outputs.clone();
        outlets
            .into_iter()
            .map(|outlet| {
                let fact = graph.outlet_fact(outlet).map_err(rejected)?;
                let element = fact.datum_type.concretize().and_then(tensor::element_type);
                let dims: Option<Vec<u32>> = fact.shape.concretize().and_then(|dims| {
                    dims.iter()
                        .map(|dim| dim.to_i64().ok()?.try_into().ok())
                        .collect()
                });
                Ok(element.zip(dims))
            })
            .collect()
    })
}

/// The first operator that a graph needs and tract does not have.
fn lacking(graph: &InferenceModel) -> Option<String> {
    graph.eval_order().ok()?.into_iter().find_map(|id| {
        let node = graph.node(id);
        if node.op_is::<UnimplementedOp>() {
            return Some(node.op.name().into_owned());
        }
        if let Some(op) = node.op_as::<If>() {
            return lacking(&op.then_body).or_else(|| lacking(&op.else_body));
        }
        node.op_as::<InferenceScan>().and_then(|op| lacking(&op.body))
    })
}

/// `Unimplemented(NAME)` is what tract puts in the place of such an operator.
fn unknown(operator: &str) -> InferError {
    let name = operator.strip_prefix("Unimplemented(");
    let name = name.and_then(|name| name.strip_suffix(')')).unwrap_or(operator);
    InferError::Rejected {
        backend: BackendName::Tract,
        reason: format!("it has no operator `{}`", short(name)),
    }
}

fn rejected(error: TractError) -> InferError {
    InferError::Rejected {
        backend: BackendName::Tract,
        reason: short(&format!("{error:#}")),
    }
}

fn run_error(error: TractError) -> InferError {
    InferError::Run {
        backend: BackendName::Tract,
        reason: short(&format!("{error:#}")),
    }
}
