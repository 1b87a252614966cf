//! Models on the GPU of this node, beside those that run on the processor: those of plugins' own, and those of this node that its
//! operator has run there.

use super::loaded::Timed;
use super::{Found, Loaded, NodeCompute, NodeModels, blocking};
use crate::config::{GpuConfig, ModelDevice};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_engine::capability::nn::{Model, Models, Tensors};
use karman_gpu::Words;
use karman_infer::{DeviceModel, ModelLimits, TensorInfo};
use karman_sched::serve::{Watch, WatchTuning};
use karman_store::Store;
use karman_types::{ByteSize, Digest, TaskError, format_duration};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

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

    fn load_on_gpu(
        &self,
        plugin: String,
        onnx: Vec<u8>,
        native: bool,
    ) -> BoxFuture<'static, Result<Arc<dyn Model>, TaskError>> {
        let (models, compute) = (self.models.clone(), self.compute.clone());
        let loaded = async move {
            let read = move |most| models.for_gpu(onnx, native, most);
            let loaded = OnGpu::load(compute, plugin, read).await?;
            Ok(Arc::new(loaded) as Arc<dyn Model>)
        };
        loaded.boxed()
    }
}

/// A model, ready to run on the GPU that all share.
pub(super) struct OnGpu {
    model: Arc<DeviceModel>,
    compute: Arc<NodeCompute>,
    /// Whose turns it takes.
    tenant: String,
    /// In words.
    device: String,
}

impl OnGpu {
    /// Whether there is a GPU is asked first, and whether there is a kernel for every operator before anything runs. `read` is told how
    /// much memory it may take there, and may block.
    async fn load(
        compute: Arc<NodeCompute>,
        tenant: String,
        read: impl FnOnce(ByteSize) -> Result<DeviceModel, TaskError> + Send + 'static,
    ) -> Result<Self, TaskError> {
        let device = compute.for_models().await?;
        let most = compute.config().memory;
        let model = blocking(move || read(most)).await?;
        Ok(Self {
            model: Arc::new(model),
            compute,
            tenant,
            device,
        })
    }

    /// What it takes, and what it gives.
    pub(super) fn signature(&self) -> (&[TensorInfo], &[TensorInfo]) {
        (self.model.inputs(), self.model.outputs())
    }

    /// Runs it once, and how long that kept the GPU.
    pub(super) async fn run_timed(&self, inputs: Tensors) -> Result<(Tensors, Duration), TaskError> {
        let model = self.model.clone();
        // A batch of another size is translated first.
        let prepared = move || model.prepare(inputs).map_err(TaskError::from);
        let mut run = blocking(prepared).await?;
        let inputs: Arc<[Words]> = std::mem::take(&mut run.inputs).into();
        let done = self
            .compute
            .run_program(&self.tenant, run.program.clone(), inputs)
            .await?;
        let outputs = self.model.finish(&run, &done.outputs)?;
        Ok((outputs, done.took))
    }
}

impl Model for OnGpu {
    fn run(self: Arc<Self>, inputs: Tensors) -> BoxFuture<'static, Result<Tensors, TaskError>> {
        async move { self.run_timed(inputs).await.map(|(outputs, _)| outputs) }.boxed()
    }

    fn runs_on(&self) -> String {
        format!("gpu, {}", self.device)
    }
}

impl NodeModels {
    /// A model of this node that its operator does not leave to the processor, loaded now where it was not.
    pub(super) async fn load_for(
        self: &Arc<Self>,
        device: ModelDevice,
        name: &str,
        found: Arc<Found>,
    ) -> Result<Loaded, TaskError> {
        // One after the other: together they would measure each other.
        let _alone = self.readying.lock().await;
        let (key, depth) = ((found.digest, Some(device)), found.depth());
        if let Some(loaded) = self.ready(key) {
            return Ok(loaded);
        }
        let loaded = match device {
            ModelDevice::Gpu => {
                if self.unfit(name, found.digest).is_none() {
                    let device = self.compute.for_models().await;
                    device.map_err(|error| no_gpu_for(name, &error))?;
                }
                self.on_gpu(name, &found).await?
            }
            ModelDevice::Auto => self.where_faster(name, found, None).await?,
        };
        let loaded = loaded.up_to(depth);
        self.keep(key, &loaded);
        Ok(loaded)
    }

    async fn on_gpu(self: &Arc<Self>, name: &str, found: &Arc<Found>) -> Result<Loaded, TaskError> {
        if let Some(unfit) = self.unfit(name, found.digest) {
            return Err(unfit);
        }
        let (models, found, name) = (self.clone(), found.clone(), name.to_owned());
        let tenant = format!("model {}", found.model.digest.short());
        let read = move |most| read_for_gpu(&name, models.onnx(&found)?, models.limits(), most);
        let model = OnGpu::load(self.compute.clone(), tenant, read).await?;
        Ok(Loaded::on_gpu(model))
    }

    /// Measures a model for [`ModelDevice::Auto`] again, which has drifted from what was measured. Until that is known it runs where it did.
    pub(super) fn measure_again(self: &Arc<Self>, name: &str, found: Arc<Found>, before: Loaded) {
        let (models, name) = (self.clone(), name.to_owned());
        tokio::spawn(async move {
            let _alone = models.readying.lock().await;
            let (key, depth) = ((found.digest, Some(ModelDevice::Auto)), found.depth());
            match models.where_faster(&name, found, Some(&before)).await {
                Ok(now) => {
                    let now = now.up_to(depth);
                    tracing::info!(
                        model = name,
                        before = before.words(),
                        now = now.words(),
                        "measured again"
                    );
                    models.keep(key, &now);
                }
                Err(error) => {
                    tracing::warn!(model = name, %error, "it runs where it did: not measured again")
                }
            }
        });
    }

    /// On the GPU or on the processor: measured now, and said. What keeps it from the GPU is said, too. `before` is the same model as it ran
    /// until now.
    async fn where_faster(
        self: &Arc<Self>,
        name: &str,
        found: Arc<Found>,
        before: Option<&Loaded>,
    ) -> Result<Loaded, TaskError> {
        let there = self.on_gpu(name, &found).await;
        let models = self.clone();
        // Under its own key only: what is kept under two is never let go.
        let here = blocking(move || models.load(&models.onnx(&found)?)).await?;
        let there = match there {
            Ok(there) => there,
            Err(error) => return Ok(here.because(format!("auto: not on the GPU: {}", error.message))),
        };
        let timed = (here.timed().await, there.timed().await);
        Ok(match timed {
            (Ok(processor), Ok(gpu)) => {
                let says = format!(
                    "auto: measured {} on the GPU and {} on the processor",
                    words(&gpu),
                    words(&processor)
                );
                let (chosen, timed) = match gpu.answered.seconds < processor.answered.seconds {
                    true => (there, gpu),
                    false => (here, processor),
                };
                let stays = before.is_some_and(|before| before.is_on_gpu() == chosen.is_on_gpu());
                let config = self.compute.config();
                let tuning = WatchTuning {
                    drift: config.drift,
                    every: config.measure_again,
                };
                let watch = |now, last: Option<&Watch>| match last {
                    Some(last) => last.again(now, timed.ran, stays),
                    None => Watch::new(tuning, now, timed.ran),
                };
                chosen.because(says).watched(&timed, before, watch)
            }
            // Of what ran until now something is known.
            (Err(error), _) | (_, Err(error)) if before.is_some() => return Err(error),
            (Err(error), _) | (_, Err(error)) => {
                here.because(format!("auto: it could not be timed on both: {}", error.message))
            }
        })
    }

    /// A model of this node with this file that runs on its GPU, if there is one: parts of it run there, too.
    ///
    /// # Errors
    /// What keeps one from the GPU that is to run there.
    pub(crate) async fn on_gpu_by_file(
        self: &Arc<Self>,
        digest: Digest,
    ) -> Result<Option<Loaded>, TaskError> {
        if self.compute.config().models.is_empty() {
            return Ok(None);
        }
        let own = self.list()?;
        let is_it =
            |model: &&karman_store::Model| model.digest == digest && self.device_of(&model.name).is_some();
        let Some(model) = own.iter().find(is_it) else {
            return Ok(None);
        };
        let (loaded, _) = self.named(&model.name).await?;
        Ok(loaded.is_on_gpu().then_some(loaded))
    }

    /// A part of such a model, ready to run on the GPU.
    ///
    /// # Errors
    /// The first operator that has no kernel, too much memory, no GPU.
    pub(crate) async fn part_on_gpu(self: &Arc<Self>, of: Digest, part: Bytes) -> Result<Loaded, TaskError> {
        let (models, tenant) = (self.clone(), format!("model {}", of.short()));
        let read = move |most| DeviceModel::read(part, models.limits(), most).map_err(TaskError::from);
        OnGpu::load(self.compute.clone(), tenant, read)
            .await
            .map(Loaded::on_gpu)
    }

    /// Notes which models of this node cannot run on the GPU though its operator has them run there: requests for one are refused with
    /// the reason, and everything else runs. Blocks.
    ///
    /// # Errors
    /// What the disk refuses.
    pub(crate) fn look_for_unfit(&self) -> Result<(), TaskError> {
        let config = self.compute.config();
        if config.models.is_empty() {
            return Ok(());
        }
        let store = self.home().store()?;
        let held = store.models().list()?;
        for name in config.of_no_model(held.iter().map(|model| model.name.as_str())) {
            tracing::warn!(model = name, "`[gpu.models]` names a model that is not here");
        }
        let unfit = unfit_for_gpu(&store, config, self.limits())?;
        for ((model, _), error) in &unfit {
            tracing::warn!(model, %error, "whoever asks for it is refused");
        }
        self.set_unfit(unfit);
        Ok(())
    }

    /// Whether there is the GPU on which models of this node are to run: where there is none, the log says so before anyone asks for one.
    pub(crate) async fn look_for_gpu(self: Arc<Self>) {
        let is_for_it = |model: &karman_store::Model| self.device_of(&model.name) == Some(ModelDevice::Gpu);
        let held = self.home().with(|store| store.models().list()).await;
        let Some(model) = held.into_iter().flatten().find(is_for_it) else {
            return;
        };
        if let Err(error) = self.compute.for_models().await {
            let error = no_gpu_for(&model.name, &error);
            tracing::warn!(%error, "whoever asks for it is refused");
        }
    }

    /// Whether a model that is to be added can run where its operator has it run. Blocks.
    ///
    /// # Errors
    /// What keeps it from the GPU, or its back-end from running it.
    pub(crate) fn check_one(&self, name: &str, onnx: &[u8]) -> Result<(), TaskError> {
        match self.compute.config().model(name) {
            Some(ModelDevice::Gpu) => check_for_gpu(self.compute.config(), self.limits(), name, onnx),
            Some(ModelDevice::Auto) | None => self.load(onnx).map(drop),
        }
    }
}

/// Models that are to run on the GPU and cannot, by name and file, each with what keeps it from there.
pub type Unfit = HashMap<(String, Digest), TaskError>;

/// The models of this store that cannot run on a GPU though this configuration has them run there. One whose file does not read is not
/// among them: the log says so. No GPU is asked. Blocks.
///
/// # Errors
/// What the disk refuses.
pub fn unfit_for_gpu(store: &Store, config: &GpuConfig, limits: &ModelLimits) -> Result<Unfit, TaskError> {
    let mut unfit = Unfit::new();
    for model in store.models().list()? {
        if config.model(&model.name) != Some(ModelDevice::Gpu) {
            continue;
        }
        match store.blobs().read(&model.digest) {
            Ok(file) => {
                let read = read_for_gpu(&model.name, file, limits, config.memory);
                unfit.extend(read.err().map(|error| ((model.name, model.digest), error)));
            }
            Err(error) => tracing::warn!(model = model.name, %error, "its file does not read"),
        }
    }
    Ok(unfit)
}

/// Whether a model can run on a GPU, where this configuration has it run there: each of its operators has a kernel, and it takes no more
/// memory than one piece of work may. No GPU is asked. Blocks.
///
/// # Errors
/// `unavailable` with the first operator that has none, `limit` for too much memory, what its file is refused for.
pub fn check_for_gpu(
    config: &GpuConfig,
    limits: &ModelLimits,
    name: &str,
    onnx: &[u8],
) -> Result<(), TaskError> {
    match config.model(name) {
        Some(ModelDevice::Gpu) => {
            let onnx = Bytes::copy_from_slice(onnx);
            read_for_gpu(name, onnx, limits, config.memory).map(drop)
        }
        Some(ModelDevice::Auto) | None => Ok(()),
    }
}

/// The error that there is no GPU for a model of this node that is to run on it.
pub fn no_gpu_for(name: &str, error: &TaskError) -> TaskError {
    let says = format!(
        "model `{name}` is to run on the GPU (`gpu.models`): {}",
        error.message
    );
    TaskError::new(error.kind, says)
        .with_field("gpu.models")
        .with_hint(format!(
            "`{name} = \"auto\"` in `[gpu.models]` of node.toml has it run on the processor where there is no GPU; `gpu.device` names one \
             that `karman gpu list` shows"
        ))
}

fn read_for_gpu(
    name: &str,
    onnx: Bytes,
    limits: &ModelLimits,
    most: ByteSize,
) -> Result<DeviceModel, TaskError> {
    DeviceModel::read(onnx, limits, most).map_err(|error| {
        let says = format!("model `{name}` is to run on the GPU (`gpu.models`): {error}");
        TaskError::new(error.kind(), says)
            .with_field("gpu.models")
            .with_hint(format!(
                "without `{name}` in `[gpu.models]` of node.toml it runs on the processor"
            ))
    })
}

fn words(timed: &Timed) -> String {
    format_duration(Duration::from_secs_f64(timed.answered.seconds))
}
