//! Models that are ready to run: on the processor, at the pace of this node, or on its GPU.

use super::batches::{Asked, Member};
use super::gpu_models::OnGpu;
use super::pace::Pace;
use super::turns::{Meanwhile, Turns};
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_engine::capability::nn::{Model, Tensors};
use karman_infer::profile::{Timing, sample};
use karman_infer::{BackendName, TensorInfo};
use karman_sched::serve::Watch;
use karman_types::TaskError;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Runs of one model that are on their way to the GPU at once; the others wait here, for its queue takes no more than 64.
const MOST_ON_GPU: usize = 32;

/// Runs that do not count when a model is timed, and those that do.
pub(super) const WARM_UP: u32 = 2;
pub(super) const RUNS: u32 = 9;

/// How long a model is timed at most, if it ran once that counts.
pub(super) const MOST_TIMED: Duration = Duration::from_secs(2);

/// A model that is ready to run.
#[derive(Clone)]
pub(crate) struct Loaded {
    runner: Runner,
    /// Why it runs there, where that was not said but found out.
    why: Option<Arc<str>>,
    /// Whether it still runs as fast there, where it was measured.
    watched: Option<Arc<Watched>>,
    /// Where its operator has requests for it run together.
    member: Option<Arc<Member>>,
    /// Up to which exit it is the model, 1 the shallowest; nothing where it is all of it.
    exit: Option<u32>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// The results.
    pub(crate) outputs: Tensors,
    /// How long it took from its turn on.
    pub(crate) took: Duration,
    /// How many requests it was for.
    pub(crate) together: u32,
    /// The early exit that answered, 1 the shallowest.
    pub(crate) exit: Option<u32>,
}

/// How long a model runs, told to what watches over where it does.
struct Watched {
    since: Instant,
    /// The bytes of the inputs with which it was measured: other runs tell nothing.
    bytes: usize,
    watch: Mutex<Watch>,
    is_due: AtomicBool,
}

/// How long a model takes, for one item.
pub(super) struct Timed {
    /// Asked for and answered.
    pub(super) answered: Timing,
    /// From its turn on, as each run tells it.
    pub(super) ran: Duration,
    /// The bytes of its inputs.
    bytes: usize,
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
            watched: None,
            member: None,
            exit: None,
        }
    }

    pub(super) fn on_gpu(model: OnGpu) -> Self {
        Self {
            runner: Runner::Gpu {
                model: Arc::new(model),
                places: Arc::new(Semaphore::new(MOST_ON_GPU)),
            },
            why: None,
            watched: None,
            member: None,
            exit: None,
        }
    }

    /// The same, which is the model up to this exit.
    pub(super) fn up_to(self, exit: Option<u32>) -> Self {
        Self { exit, ..self }
    }

    /// The same with the reason why it runs there.
    pub(super) fn because(self, why: String) -> Self {
        Self {
            why: Some(why.into()),
            ..self
        }
    }

    /// The same, watched over from now on, measured so; `begin` is given the time since some start, and what watched over it before where
    /// that was in the same way.
    pub(super) fn watched(
        self,
        timed: &Timed,
        before: Option<&Self>,
        begin: impl FnOnce(Duration, Option<&Watch>) -> Watch,
    ) -> Self {
        let before = before.and_then(|before| before.watched.as_ref());
        let since = before.map_or_else(Instant::now, |before| before.since);
        let last = before.map(|before| *before.watch.lock());
        Self {
            watched: Some(Arc::new(Watched {
                since,
                bytes: timed.bytes,
                watch: Mutex::new(begin(since.elapsed(), last.as_ref())),
                is_due: AtomicBool::new(false),
            })),
            ..self
        }
    }

    /// The same, whose requests are run together with others.
    pub(super) fn in_batches(self, member: Arc<Member>) -> Self {
        Self {
            member: Some(member),
            ..self
        }
    }

    /// Whether what it runs on makes a plan for each size of a batch, and keeps a few.
    pub(super) fn plans_each_size(&self) -> bool {
        match &self.runner {
            Runner::Processor { model, .. } => model.backend() == BackendName::Tract,
            Runner::Gpu { .. } => true,
        }
    }

    /// Whether it is time to measure again where it runs. Said once.
    pub(super) fn is_due(&self) -> bool {
        let watched = self.watched.as_ref();
        watched.is_some_and(|watched| watched.is_due.swap(false, Ordering::Relaxed))
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

    /// Runs it for who waits so long: together with other requests where its operator allows that and the policy says so.
    ///
    /// # Errors
    /// Inputs that do not fit; what the back-end says.
    pub(crate) async fn ask(&self, inputs: Tensors, within: Option<Duration>) -> Result<Done, TaskError> {
        let inputs = match &self.member {
            None => inputs,
            // Boxed: who asks a model that runs alone pays for no batch.
            Some(member) => match Box::pin(member.ask(self, inputs, within)).await {
                Asked::Answered(done) => return done,
                Asked::Alone(inputs) => inputs,
            },
        };
        self.ask_alone(inputs).await
    }

    /// Runs it by itself.
    ///
    /// # Errors
    /// Those of [`Loaded::ask`].
    pub(super) async fn ask_alone(&self, inputs: Tensors) -> Result<Done, TaskError> {
        let (outputs, took) = self.run_timed(inputs, Meanwhile::Nothing).await?;
        Ok(self.done(outputs, took, 1))
    }

    /// What came of a run for so many requests.
    pub(super) const fn done(&self, outputs: Tensors, took: Duration, together: u32) -> Done {
        Done {
            outputs,
            took,
            together,
            exit: self.exit,
        }
    }

    /// Runs it once, by itself, and how long that took from its turn on.
    pub(crate) async fn run_timed(
        &self,
        inputs: Tensors,
        meanwhile: Meanwhile,
    ) -> Result<(Tensors, Duration), TaskError> {
        let bytes = bytes_of(&inputs);
        let (outputs, took) = self.run_there(inputs, bytes, meanwhile).await?;
        if let Some(watched) = &self.watched
            && watched.bytes == bytes
            && watched.watch.lock().ran(watched.since.elapsed(), took)
        {
            watched.is_due.store(true, Ordering::Relaxed);
        }
        Ok((outputs, took))
    }

    /// The same, of which nobody is told who watches over it.
    pub(super) async fn run_there(
        &self,
        inputs: Tensors,
        bytes: usize,
        meanwhile: Meanwhile,
    ) -> Result<(Tensors, Duration), TaskError> {
        match &self.runner {
            Runner::Processor { model, pace, turns } => {
                let model = model.clone();
                let step = move || model.run(inputs).map_err(TaskError::from);
                turns.run(pace, bytes, meanwhile, step).await
            }
            Runner::Gpu { model, places } => {
                let _place = places.acquire().await.ok();
                model.run_timed(inputs).await
            }
        }
    }

    /// Runs it once on numbers of no meaning: the first run meets memory and code for the first time. No request shall wait for that, nor be
    /// what the speed of a node is told by.
    ///
    /// # Errors
    /// Those of a run, and where its inputs have sizes that nobody knows.
    pub(crate) async fn warm_up(&self) -> Result<(), TaskError> {
        let (inputs, _) = self.signature();
        let inputs = sample(inputs, 1, 1)?;
        let bytes = bytes_of(&inputs);
        self.run_there(inputs, bytes, Meanwhile::Something).await?;
        Ok(())
    }

    /// How long a run of one item takes, asked for and answered.
    ///
    /// # Errors
    /// Those of a run, and where its inputs have sizes that nobody knows.
    pub(crate) async fn time(&self) -> Result<Timing, TaskError> {
        self.timed().await.map(|timed| timed.answered)
    }

    /// The same with what each run tells of itself.
    ///
    /// # Errors
    /// Those of [`Loaded::time`].
    pub(super) async fn timed(&self) -> Result<Timed, TaskError> {
        let (inputs, _) = self.signature();
        let inputs = sample(inputs, 1, 1)?;
        let bytes = bytes_of(&inputs);
        let (began, mut seconds, mut ran) = (Instant::now(), Vec::new(), Vec::new());
        for run in 0..WARM_UP + RUNS {
            let started = Instant::now();
            let (_, took) = self
                .run_there(inputs.clone(), bytes, Meanwhile::Something)
                .await?;
            if run >= WARM_UP {
                seconds.push(started.elapsed().as_secs_f64());
                ran.push(took);
            }
            if !seconds.is_empty() && began.elapsed() > MOST_TIMED {
                break;
            }
        }
        ran.sort_unstable();
        Ok(Timed {
            answered: Timing::of(seconds),
            ran: ran.get(ran.len() / 2).copied().unwrap_or_default(),
            bytes,
        })
    }
}

pub(super) fn bytes_of(inputs: &Tensors) -> usize {
    inputs.iter().map(|(_, tensor)| tensor.bytes().len()).sum()
}

impl Model for Loaded {
    fn run(self: Arc<Self>, inputs: Tensors) -> BoxFuture<'static, Result<Tensors, TaskError>> {
        async move { self.ask(inputs, None).await.map(|done| done.outputs) }.boxed()
    }

    fn run_within(
        self: Arc<Self>,
        inputs: Tensors,
        within: Duration,
    ) -> BoxFuture<'static, Result<Tensors, TaskError>> {
        async move { self.ask(inputs, Some(within)).await.map(|done| done.outputs) }.boxed()
    }

    fn runs_on(&self) -> String {
        Self::runs_on(self)
    }
}
