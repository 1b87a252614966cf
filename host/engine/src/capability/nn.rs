//! `wasi:nn` (0.2.0-rc-2024-10-28): models by name with the grant `nn:NAME`; a plugin's own bytes only with `nn-raw:…`,
//! and for the target `gpu` with `gpu:kernels` as well.

use super::bindings::host::wasi::nn::{errors, graph, inference, tensor};
use crate::host::Host;
use crate::limiter::Kept;
use errors::ErrorCode;
use futures::future::BoxFuture;
use graph::{ExecutionTarget, GraphEncoding};
use karman_tensor::{ElementType, Shape, Tensor, TensorError};
use karman_types::{ErrorKind, Grant, TaskError};
use std::sync::Arc;
use std::time::Duration;
use tensor::TensorType;
use wasmtime::component::Resource;

/// Named tensors.
pub type Tensors = Vec<(String, Tensor)>;

/// The source of models.
pub trait Models: Send + Sync {
    /// A model by the name under which the operator added it.
    fn by_name(&self, name: String) -> BoxFuture<'static, Result<Arc<dyn Model>, TaskError>>;

    /// A model from a plugin's own bytes; `native` allows a native runtime, else the built-in one with its limits.
    fn load_bytes(
        &self,
        onnx: Vec<u8>,
        native: bool,
    ) -> BoxFuture<'static, Result<Arc<dyn Model>, TaskError>>;

    /// The same on the GPU of this host, which the plugin shares with others: as a whole, or not at all.
    fn load_on_gpu(
        &self,
        _plugin: String,
        _onnx: Vec<u8>,
        _native: bool,
    ) -> BoxFuture<'static, Result<Arc<dyn Model>, TaskError>> {
        let none = TaskError::unavailable("this host runs no models on a GPU");
        Box::pin(std::future::ready(Err(none)))
    }
}

/// A loaded model.
pub trait Model: Send + Sync {
    /// Runs it once.
    fn run(self: Arc<Self>, inputs: Tensors) -> BoxFuture<'static, Result<Tensors, TaskError>>;

    /// The same for who waits no longer than this, where it makes a difference.
    fn run_within(
        self: Arc<Self>,
        inputs: Tensors,
        _within: Duration,
    ) -> BoxFuture<'static, Result<Tensors, TaskError>> {
        self.run(inputs)
    }

    /// The back-end and device that run it, as in `onnxruntime, cpu`.
    fn runs_on(&self) -> String;
}

/// A graph or a context to run it in: the same thing, because a model holds no state between runs.
#[derive(Clone)]
pub struct Graph {
    name: Arc<str>,
    model: Arc<dyn Model>,
    /// The room of a plugin's own model. Those of the node are shared.
    _kept: Option<Arc<Kept>>,
}

/// A tensor and the room that it takes.
pub struct HeldTensor {
    tensor: Tensor,
    kept: Kept,
}

/// What a plugin sees when something fails.
#[derive(Debug)]
pub struct NnError {
    code: ErrorCode,
    data: String,
}

impl From<TaskError> for NnError {
    fn from(error: TaskError) -> Self {
        let code = match error.kind {
            ErrorKind::Invalid => ErrorCode::InvalidArgument,
            ErrorKind::Denied => ErrorCode::Security,
            ErrorKind::Unavailable => ErrorCode::NotFound,
            ErrorKind::Deadline | ErrorKind::Cancelled => ErrorCode::Timeout,
            ErrorKind::Limit => ErrorCode::TooLarge,
            ErrorKind::Failed | ErrorKind::Internal => ErrorCode::RuntimeError,
        };
        Self {
            code,
            data: error.message,
        }
    }
}

/// Whether a plugin's own model is to run on a GPU, if it can be had as the plugin wishes. A plugin that asks for another target than the
/// processor and a GPU is told that there is none: nothing is run in its place in silence.
fn wants_gpu(encoding: GraphEncoding, target: ExecutionTarget) -> Result<bool, NnError> {
    if !matches!(encoding, GraphEncoding::Onnx | GraphEncoding::Autodetect) {
        return Err(NnError {
            code: ErrorCode::InvalidEncoding,
            data: format!("encoding {encoding:?} is not supported; give ONNX"),
        });
    }
    match target {
        ExecutionTarget::Cpu => Ok(false),
        ExecutionTarget::Gpu => Ok(true),
        ExecutionTarget::Tpu => Err(NnError {
            code: ErrorCode::UnsupportedOperation,
            data: "models run on the processor or a GPU here, not on target `tpu`: load it for `cpu`".into(),
        }),
    }
}

type Answer<T> = wasmtime::Result<Result<Resource<T>, Resource<NnError>>>;

impl Host {
    fn nn<T: Send + 'static>(&mut self, answer: Result<T, NnError>) -> Answer<T> {
        Ok(match answer {
            Ok(value) => Ok(self.table.push(value)?),
            Err(error) => Err(self.table.push(error)?),
        })
    }

    fn models(&self) -> Result<Arc<dyn Models>, TaskError> {
        self.services
            .models
            .clone()
            .ok_or_else(|| TaskError::unavailable("this host has no models"))
    }

    async fn load_raw(
        &mut self,
        mut parts: Vec<Vec<u8>>,
        encoding: GraphEncoding,
        target: ExecutionTarget,
    ) -> Result<Graph, NnError> {
        let native = self.plugin.grants.allows(&Grant::RawModelNative);
        if !native && !self.plugin.grants.allows(&Grant::RawModel) {
            let name = &self.plugin.name;
            return Err(TaskError::denied(format!(
                "`{name}` has no grant `nn-raw:tract` to load model bytes of its own"
            ))
            .with_hint(format!(
                "load a model by name, or karman node grant {name} nn-raw:tract"
            ))
            .into());
        }
        let on_gpu = wants_gpu(encoding, target)?;
        if parts.len() != 1 {
            let parts = parts.len();
            return Err(TaskError::invalid(format!("an ONNX model is 1 part, not {parts}")).into());
        }
        let onnx = parts.remove(0);
        let kept = self.keep(onnx.len())?;
        let model = match on_gpu {
            true => self.load_on_gpu(onnx, native).await?,
            false => self.models()?.load_bytes(onnx, native).await?,
        };
        Ok(Graph {
            name: "its own".into(),
            model,
            _kept: Some(Arc::new(kept)),
        })
    }

    /// A plugin's own model on the GPU. What it needs besides is what kernels of its own need there.
    async fn load_on_gpu(&mut self, onnx: Vec<u8>, native: bool) -> Result<Arc<dyn Model>, NnError> {
        let (name, grant) = (self.plugin.name.clone(), Grant::GpuKernels);
        if !self.plugin.grants.allows(&grant) {
            return Err(TaskError::denied(format!("`{name}` has no grant `{grant}`"))
                .with_hint(format!("karman node grant {name} {grant}"))
                .into());
        }
        let loaded = self.models()?.load_on_gpu(name, onnx, native).await;
        loaded.map_err(|error| match error.kind {
            ErrorKind::Unavailable => NnError {
                code: ErrorCode::UnsupportedOperation,
                data: format!("the model does not run on target `gpu`: {}", error.message),
            },
            _ => error.into(),
        })
    }

    /// Outputs of a model with the room that they take here.
    fn held(&self, outputs: Tensors) -> Result<Vec<(String, HeldTensor)>, TaskError> {
        let held = |(name, tensor): (String, Tensor)| {
            let kept = self.keep(tensor.bytes().len())?;
            Ok((name, HeldTensor { tensor, kept }))
        };
        outputs.into_iter().map(held).collect()
    }

    async fn load_named(&mut self, name: String) -> Result<Graph, TaskError> {
        if !self.plugin.grants.allows(&Grant::Model(name.clone())) {
            let plugin = &self.plugin.name;
            return Err(TaskError::denied(format!("`{plugin}` has no grant `nn:{name}`"))
                .with_hint(format!("karman node grant {plugin} nn:{name}")));
        }
        let model = self.models()?.by_name(name.clone()).await?;
        Ok(Graph {
            name: name.into(),
            model,
            _kept: None,
        })
    }
}

impl graph::Host for Host {
    async fn load(
        &mut self,
        parts: Vec<Vec<u8>>,
        encoding: GraphEncoding,
        target: ExecutionTarget,
    ) -> Answer<Graph> {
        let graph = self.load_raw(parts, encoding, target).await;
        self.nn(graph)
    }

    async fn load_by_name(&mut self, name: String) -> Answer<Graph> {
        let graph = self.load_named(name).await;
        self.nn(graph.map_err(NnError::from))
    }
}

impl graph::HostGraph for Host {
    async fn init_execution_context(&mut self, graph: Resource<Graph>) -> Answer<Graph> {
        let graph = self.table.get(&graph)?.clone();
        self.nn(Ok(graph))
    }

    async fn drop(&mut self, graph: Resource<Graph>) -> wasmtime::Result<()> {
        self.table.delete(graph)?;
        Ok(())
    }
}

impl inference::Host for Host {}

impl inference::HostGraphExecutionContext for Host {
    async fn compute(
        &mut self,
        context: Resource<Graph>,
        inputs: Vec<(String, Resource<HeldTensor>)>,
    ) -> wasmtime::Result<Result<Vec<(String, Resource<HeldTensor>)>, Resource<NnError>>> {
        let graph = self.table.get(&context)?.clone();
        let take = |(name, tensor)| {
            let HeldTensor { tensor, kept } = self.table.delete(tensor)?;
            Ok(((name, tensor), kept))
        };
        let (inputs, kept): (Tensors, Vec<Kept>) =
            inputs.into_iter().map(take).collect::<wasmtime::Result<_>>()?;
        let ran = graph.model.clone().run(inputs).await;
        drop(kept);
        match ran.and_then(|outputs| self.held(outputs)) {
            Ok(outputs) => {
                self.ran_on
                    .get_or_insert_with(|| format!("{} ({})", graph.name, graph.model.runs_on()));
                let push = |(name, tensor)| Ok((name, self.table.push(tensor)?));
                outputs
                    .into_iter()
                    .map(push)
                    .collect::<wasmtime::Result<_>>()
                    .map(Ok)
            }
            Err(error) => Ok(Err(self.table.push(error.into())?)),
        }
    }

    async fn drop(&mut self, context: Resource<Graph>) -> wasmtime::Result<()> {
        self.table.delete(context)?;
        Ok(())
    }
}

impl tensor::Host for Host {}

impl tensor::HostTensor for Host {
    /// The interface gives this constructor no way to refuse: a tensor whose bytes do not fit its shape ends the call.
    async fn new(
        &mut self,
        dimensions: Vec<u32>,
        ty: TensorType,
        data: Vec<u8>,
    ) -> wasmtime::Result<Resource<HeldTensor>> {
        let invalid = |error: TensorError| TaskError::invalid(error.to_string()).with_field("tensor");
        let kept = self.keep(data.len()).map_err(wasmtime::Error::new)?;
        let tensor = Shape::new(&dimensions)
            .and_then(|shape| Tensor::new(element(ty), shape, &data))
            .map_err(|error| wasmtime::Error::new(invalid(error)))?;
        Ok(self.table.push(HeldTensor { tensor, kept })?)
    }

    async fn dimensions(&mut self, tensor: Resource<HeldTensor>) -> wasmtime::Result<Vec<u32>> {
        Ok(self.table.get(&tensor)?.tensor.shape().dims().to_vec())
    }

    async fn ty(&mut self, tensor: Resource<HeldTensor>) -> wasmtime::Result<TensorType> {
        Ok(match self.table.get(&tensor)?.tensor.element() {
            ElementType::F16 => TensorType::Fp16,
            ElementType::F32 => TensorType::Fp32,
            ElementType::F64 => TensorType::Fp64,
            ElementType::Bf16 => TensorType::Bf16,
            ElementType::I32 => TensorType::I32,
            ElementType::I64 => TensorType::I64,
            _ => TensorType::U8,
        })
    }

    async fn data(&mut self, tensor: Resource<HeldTensor>) -> wasmtime::Result<Vec<u8>> {
        Ok(self.table.get(&tensor)?.tensor.bytes().to_vec())
    }

    async fn drop(&mut self, tensor: Resource<HeldTensor>) -> wasmtime::Result<()> {
        self.table.delete(tensor)?;
        Ok(())
    }
}

const fn element(ty: TensorType) -> ElementType {
    match ty {
        TensorType::Fp16 => ElementType::F16,
        TensorType::Fp32 => ElementType::F32,
        TensorType::Fp64 => ElementType::F64,
        TensorType::Bf16 => ElementType::Bf16,
        TensorType::U8 => ElementType::U8,
        TensorType::I32 => ElementType::I32,
        TensorType::I64 => ElementType::I64,
    }
}

impl errors::Host for Host {}

impl errors::HostError for Host {
    async fn code(&mut self, error: Resource<NnError>) -> wasmtime::Result<ErrorCode> {
        Ok(self.table.get(&error)?.code)
    }

    async fn data(&mut self, error: Resource<NnError>) -> wasmtime::Result<String> {
        Ok(self.table.get(&error)?.data.clone())
    }

    async fn drop(&mut self, error: Resource<NnError>) -> wasmtime::Result<()> {
        self.table.delete(error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_run_on_the_processor_or_a_gpu_and_who_wants_another_is_told() {
        for encoding in [GraphEncoding::Onnx, GraphEncoding::Autodetect] {
            assert!(!wants_gpu(encoding, ExecutionTarget::Cpu).unwrap());
            assert!(wants_gpu(encoding, ExecutionTarget::Gpu).unwrap());
            let refused = wants_gpu(encoding, ExecutionTarget::Tpu).unwrap_err();
            assert!(
                matches!(refused.code, ErrorCode::UnsupportedOperation),
                "{refused:?}"
            );
            assert!(refused.data.contains("`tpu`"), "{refused:?}");
        }
        for target in [ExecutionTarget::Cpu, ExecutionTarget::Gpu] {
            let refused = wants_gpu(GraphEncoding::Openvino, target).unwrap_err();
            assert!(matches!(refused.code, ErrorCode::InvalidEncoding), "{refused:?}");
        }
    }
}
