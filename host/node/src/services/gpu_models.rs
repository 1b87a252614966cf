//! Models of plugins' own on the GPU of this node, beside those that run on the processor.

use super::{NodeCompute, NodeModels, blocking, infer_error};
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_engine::capability::nn::{Model, Models, Tensors};
use karman_gpu::Words;
use karman_infer::DeviceModel;
use karman_types::TaskError;
use std::sync::Arc;

/// The models of this node, and its GPU.
pub(crate) struct WithGpu {
    models: Arc<NodeModels>,
    compute: Arc<NodeCompute>,
}

impl WithGpu {
    pub(crate) fn new(models: Arc<NodeModels>, compute: Arc<NodeCompute>) -> Self {
        Self { models, compute }
    }
}

impl Models for WithGpu {
    fn by_name(&self, name: String) -> BoxFuture<'static, Result<Arc<dyn Model>, TaskError>> {
        self.models.shared().by_name(name)
    }

    fn load_bytes(
        &self,
        onnx: Vec<u8>,
        native: bool,
    ) -> BoxFuture<'static, Result<Arc<dyn Model>, TaskError>> {
        self.models.shared().load_bytes(onnx, native)
    }

    /// Whether there is a GPU is asked first, and whether there is a kernel for every operator before anything runs.
    fn load_on_gpu(
        &self,
        plugin: String,
        onnx: Vec<u8>,
        native: bool,
    ) -> BoxFuture<'static, Result<Arc<dyn Model>, TaskError>> {
        let (models, compute) = (self.models.clone(), self.compute.clone());
        let loaded = async move {
            let loaded = OnGpu::load(models, compute, plugin, onnx, native).await?;
            Ok(Arc::new(loaded) as Arc<dyn Model>)
        };
        loaded.boxed()
    }
}

/// A plugin's own model, ready to run on the GPU that plugins share.
struct OnGpu {
    model: Arc<DeviceModel>,
    compute: Arc<NodeCompute>,
    plugin: String,
    /// In words.
    device: String,
}

impl OnGpu {
    async fn load(
        models: Arc<NodeModels>,
        compute: Arc<NodeCompute>,
        plugin: String,
        onnx: Vec<u8>,
        native: bool,
    ) -> Result<Self, TaskError> {
        let device = compute.for_models().await?;
        let most = compute.most_memory();
        let model = blocking(move || models.for_gpu(onnx, native, most)).await?;
        Ok(Self {
            model: Arc::new(model),
            compute,
            plugin,
            device,
        })
    }

    async fn run_once(&self, inputs: Tensors) -> Result<Tensors, TaskError> {
        let model = self.model.clone();
        // A batch of another size is translated first.
        let prepared = move || model.prepare(inputs).map_err(infer_error);
        let mut run = blocking(prepared).await?;
        let inputs: Arc<[Words]> = std::mem::take(&mut run.inputs).into();
        let outputs = self
            .compute
            .run_program(&self.plugin, run.program.clone(), inputs)
            .await?;
        self.model.finish(&run, &outputs).map_err(infer_error)
    }
}

impl Model for OnGpu {
    fn run(self: Arc<Self>, inputs: Tensors) -> BoxFuture<'static, Result<Tensors, TaskError>> {
        async move { self.run_once(inputs).await }.boxed()
    }

    fn runs_on(&self) -> String {
        format!("gpu, {}", self.device)
    }
}
