//! What plugins get of a node's models: those that it holds, by name, and their own.

use super::NodeModels;
use crate::services::blocking;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_engine::capability::nn::{Model, Models};
use karman_infer::{DeviceModel, LoadOptions, ModelLimits};
use karman_types::{ByteSize, TaskError};
use std::future::ready;
use std::sync::Arc;

impl NodeModels {
    /// A plugin's own model for the GPU of this node, within so much of its memory; `native` as for [`Models::load_bytes`]. Blocks.
    pub(crate) fn for_gpu(
        &self,
        onnx: Vec<u8>,
        native: bool,
        most: ByteSize,
    ) -> Result<DeviceModel, TaskError> {
        let limits = match native {
            true => self.source.limits.clone(),
            false => ModelLimits::default(),
        };
        if !native {
            self.backends().rehearse(&onnx, &limits)?;
        }
        DeviceModel::read(onnx, &limits, most).map_err(TaskError::from)
    }

    /// As [`Models`], with the node kept alive by the returned future.
    pub(crate) fn shared(self: &Arc<Self>) -> Arc<dyn Models> {
        Arc::new(Shared(self.clone()))
    }
}

struct Shared(Arc<NodeModels>);

impl Models for Shared {
    fn by_name(&self, name: String) -> BoxFuture<'static, Result<Arc<dyn Model>, TaskError>> {
        let models = self.0.clone();
        if let Some(model) = models.diverted.read().get(&name) {
            return ready(Ok(model.clone())).boxed();
        }
        async move {
            let (loaded, _) = models.named(&name).await?;
            Ok(Arc::new(loaded) as Arc<dyn Model>)
        }
        .boxed()
    }

    fn load_bytes(
        &self,
        onnx: Vec<u8>,
        native: bool,
    ) -> BoxFuture<'static, Result<Arc<dyn Model>, TaskError>> {
        let models = self.0.clone();
        blocking(move || {
            let (backends, options) = (models.backends(), models.options());
            let options = match native {
                true => options,
                false => LoadOptions {
                    limits: ModelLimits::default(),
                    ..options
                },
            };
            let model = match native {
                true => backends.load(&onnx, &options),
                false => backends.load_foreign(&onnx, &options),
            };
            let model = model?;
            Ok(Arc::new(models.paced(model, &onnx, &options)) as Arc<dyn Model>)
        })
        .boxed()
    }
}
