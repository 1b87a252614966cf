//! The three that run operators, each with its weights loaded.

use crate::engine::context;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use karman_engine::{Engine, EngineOptions, Plugin};
use karman_infer::operator::{Operator, Runner};
use karman_infer::{Backend, LoadOptions, Model, Named, OnnxRuntime, Tract};
use karman_tensor::{Shape, Tensor};
use karman_types::{GrantSet, Manifest, TaskRequest};
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

pub(super) struct Runners {
    runtime: Runtime,
    plugin: Arc<Plugin>,
    library: OnnxRuntime,
}

/// An operator that one of them has ready, with an input.
pub(super) enum Ready {
    Model { model: Arc<dyn Model>, inputs: Named },
    Guest { number: String, body: Bytes },
}

/// What came out, where the runner has put it.
pub(super) enum Output {
    Tensor(Tensor),
    Body(Bytes),
}

impl Runners {
    pub(super) fn new(library: OnnxRuntime, guest: &[u8]) -> Result<Self> {
        let engine = Engine::new(EngineOptions::default())?;
        let nothing = GrantSet::default();
        Ok(Self {
            runtime: Builder::new_current_thread().enable_all().build()?,
            plugin: engine.load(guest, &nothing, |world| Manifest::foreign("operators", world))?,
            library,
        })
    }

    /// What the times depend on besides the machine.
    pub(super) fn versions(&self) -> String {
        format!(
            "onnxruntime {}, tract {}, guest {}",
            self.library.version(),
            Tract.version(),
            self.plugin.package().id.short()
        )
    }

    /// Loads an operator.
    pub(super) fn prepare(
        &self,
        runner: Runner,
        operator: &Operator,
        weights: &[f32],
        inputs: &[Vec<f32>],
    ) -> Result<Ready> {
        let back_end: &dyn Backend = match runner {
            Runner::OnnxRuntime => &self.library,
            Runner::Tract => &Tract,
            Runner::WasmSimd => return self.keep(operator, weights, inputs),
        };
        let model = back_end.load(&operator.model(weights), &LoadOptions::default())?;
        let given = operator.inputs().into_iter().zip(inputs).enumerate();
        let inputs = given.map(|(at, (dims, numbers))| {
            let tensor = Tensor::from_slice(Shape::new(&dims)?, numbers)?;
            Ok((format!("x{at}"), tensor))
        });
        let inputs = inputs.collect::<Result<Named>>()?;
        Ok(Ready::Model { model, inputs })
    }

    fn keep(&self, operator: &Operator, weights: &[f32], inputs: &[Vec<f32>]) -> Result<Ready> {
        let request = TaskRequest {
            metadata: vec![("operator".into(), described(operator))],
            body: le_bytes(weights).into(),
            ..TaskRequest::default()
        };
        let number = String::from_utf8(self.call(request)?.to_vec())?;
        Ok(Ready::Guest {
            number,
            body: le_bytes(&inputs.concat()).into(),
        })
    }

    /// Runs it once.
    pub(super) fn run(&self, ready: &Ready) -> Result<Output> {
        match ready {
            Ready::Model { model, inputs } => {
                let first = model.run(inputs.clone())?.into_iter().next();
                Ok(Output::Tensor(first.context("a model has an output")?.1))
            }
            Ready::Guest { number, body } => {
                let request = TaskRequest {
                    content_type: number.clone(),
                    body: body.clone(),
                    ..TaskRequest::default()
                };
                Ok(Output::Body(self.call(request)?))
            }
        }
    }

    fn call(&self, request: TaskRequest) -> Result<Bytes> {
        let (response, _) = self.runtime.block_on(self.plugin.call(request, context()))?;
        Ok(response.body)
    }
}

impl Output {
    pub(super) fn numbers(&self) -> Result<Vec<f32>> {
        let bytes = match self {
            Self::Tensor(tensor) => return Ok(tensor.view::<f32>()?.to_vec()),
            Self::Body(bytes) => bytes,
        };
        let (numbers, rest) = bytes.as_chunks::<4>();
        ensure!(rest.is_empty(), "{} bytes are not numbers of 4", bytes.len());
        Ok(numbers.iter().map(|number| f32::from_le_bytes(*number)).collect())
    }
}

/// The operator as the guest is told it.
fn described(operator: &Operator) -> String {
    match operator {
        Operator::MatMul { inner, columns, .. } => format!("matmul {inner} {columns}"),
        Operator::Convolution(shape) => format!(
            "conv {} {} {} {} {} {}",
            shape.channels_in, shape.channels_out, shape.side, shape.kernel, shape.stride, shape.groups
        ),
        Operator::Relu { .. } => "relu".into(),
        Operator::Add { .. } => "add".into(),
    }
}

fn le_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
