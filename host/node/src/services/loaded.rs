//! Models that are ready to run: on the processor, at the pace of this node, or on its GPU.

use super::gpu_models::OnGpu;
use super::infer_error;
use super::pace::Pace;
use super::turns::Turns;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_engine::capability::nn::{Model, Tensors};
use karman_infer::TensorInfo;
use karman_infer::profile::{Timing, sample};
use karman_types::TaskError;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Runs of one model that are on their way to the GPU at once; the others wait here, for its queue takes no more than 64.
const MOST_ON_GPU: usize = 32;

/// Runs that do not count when a model is timed, and those that do.
const WARM_UP: u32 = 2;
const RUNS: u32 = 9;

/// How long a model is timed at most, if it ran once that counts.
const MOST_TIMED: Duration = Duration::from_secs(2);

/// A model that is ready to run.
#[derive(Clone)]
pub(crate) struct Loaded {
    runner: Runner,
    /// Why it runs there, where that was not said but found out.
    why: Option<Arc<str>>,
}

#[derive(Clone)]
enum Runner {
    Processor {
        model: Arc<dyn karman_infer::Model>,
        pace: Arc<Pace>,
        turns: Arc<Turns>,
    },
    Gpu {
        model: Arc<OnGpu>,
        places: Arc<Semaphore>,
    },
}

impl Loaded {
    pub(super) fn on_processor(
        model: Arc<dyn karman_infer::Model>,
        pace: Arc<Pace>,
        turns: Arc<Turns>,
    ) -> Self {
        Self {
            runner: Runner::Processor { model, pace, turns },
            why: None,
        }
    }

    pub(super) fn on_gpu(model: OnGpu) -> Self {
        Self {
            runner: Runner::Gpu {
                model: Arc::new(model),
                places: Arc::new(Semaphore::new(MOST_ON_GPU)),
            },
            why: None,
        }
    }

    /// The same with the reason why it runs there.
    pub(super) fn because(self, why: String) -> Self {
        Self {
            why: Some(why.into()),
            ..self
        }
    }

    /// Whether anyone besides the list of models holds it.
    pub(super) fn is_used(&self) -> bool {
        match &self.runner {
            Runner::Processor { model, .. } => Arc::strong_count(model) > 1,
            Runner::Gpu { model, .. } => Arc::strong_count(model) > 1,
        }
    }

    /// Whether it runs on the GPU.
    pub(crate) const fn is_on_gpu(&self) -> bool {
        matches!(self.runner, Runner::Gpu { .. })
    }

    /// What it takes, and what it gives.
    pub(crate) fn signature(&self) -> (&[TensorInfo], &[TensorInfo]) {
        match &self.runner {
            Runner::Processor { model, .. } => (model.inputs(), model.outputs()),
            Runner::Gpu { model, .. } => model.signature(),
        }
    }

    /// Its back-end, and what that runs on.
    pub(crate) fn runs_on(&self) -> String {
        match &self.runner {
            Runner::Processor { model, .. } => format!("{}, cpu", model.backend()),
            Runner::Gpu { model, .. } => model.runs_on(),
        }
    }

    /// The same with the reason, where that was found out.
    pub(crate) fn words(&self) -> String {
        match &self.why {
            Some(why) => format!("{} ({why})", self.runs_on()),
            None => self.runs_on(),
        }
    }

    /// Runs it once, and how long that took from its turn on.
    pub(crate) async fn run_timed(&self, inputs: Tensors) -> Result<(Tensors, Duration), TaskError> {
        match &self.runner {
            Runner::Processor { model, pace, turns } => {
                let model = model.clone();
                let bytes = inputs.iter().map(|(_, tensor)| tensor.bytes().len()).sum();
                let step = move || model.run(inputs).map_err(infer_error);
                turns.run(pace, bytes, step).await
            }
            Runner::Gpu { model, places } => {
                let _place = places.acquire().await.ok();
                model.run_timed(inputs).await
            }
        }
    }

    /// How long a run of one item takes, asked for and answered.
    ///
    /// # Errors
    /// Those of a run, and where its inputs have sizes that nobody knows.
    pub(crate) async fn time(&self) -> Result<Timing, TaskError> {
        let (inputs, _) = self.signature();
        let inputs = sample(inputs, 1, 1).map_err(infer_error)?;
        let (began, mut seconds) = (Instant::now(), Vec::new());
        for run in 0..WARM_UP + RUNS {
            let started = Instant::now();
            self.run_timed(inputs.clone()).await?;
            if run >= WARM_UP {
                seconds.push(started.elapsed().as_secs_f64());
            }
            if !seconds.is_empty() && began.elapsed() > MOST_TIMED {
                break;
            }
        }
        Ok(Timing::of(seconds))
    }
}

impl Model for Loaded {
    fn run(self: Arc<Self>, inputs: Tensors) -> BoxFuture<'static, Result<Tensors, TaskError>> {
        async move { self.run_timed(inputs).await.map(|(outputs, _)| outputs) }.boxed()
    }

    fn runs_on(&self) -> String {
        Self::runs_on(self)
    }
}
