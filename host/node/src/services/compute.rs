//! `karman:gpu` over this node's devices: the processor here, a GPU in a process of its own that plugins share by turns.

mod used;

pub use used::GpuUse;

use super::blocking;
use crate::config::{GpuChoice, GpuConfig};
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_engine::capability::gpu::{Compute, Computed, Order, Place, Work as Asked};
use karman_gpu::find::{Found, MOST_PROBE, find};
use karman_gpu::{
    Answer, Api, Cpu, Device, DeviceInfo, Done, GpuError, Job, Kernel, Program, Queue, Remote, RemoteOptions,
    Shader, ShaderLimits, Words, Work,
};
use karman_types::TaskError;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout;

/// Pieces of work that one plugin may have waiting for the GPU.
const MOST_WAITING: usize = 64;

/// The longest description of a kernel: those that mean something take some hundred bytes.
const MOST_TEXT: usize = 4096;

/// The longest that anything waits for the GPU. Calls end before.
const MOST_WAIT: Duration = Duration::from_secs(3600);

/// How long a GPU that could not be had is not asked for again.
const PAUSE: Duration = Duration::from_secs(60);

/// The devices of this node, looked for when first asked.
pub(crate) struct NodeCompute {
    config: GpuConfig,
    /// This program: drivers are asked, and devices held, by children of it.
    program: Option<PathBuf>,
    /// Shapes of tiles that were measured here.
    tiles: PathBuf,
    queue: Arc<Mutex<Option<Tried>>>,
}

/// What came of starting the GPU's process.
struct Tried {
    at: Instant,
    queue: Result<Queue, TaskError>,
}

impl NodeCompute {
    pub(crate) fn new(config: GpuConfig, program: Option<PathBuf>, tiles: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            config,
            program,
            tiles,
            queue: Arc::default(),
        })
    }

    /// As [`Compute`], with the devices kept by the returned futures.
    pub(crate) fn shared(self: &Arc<Self>) -> Arc<dyn Compute> {
        Arc::new(Shared(self.clone()))
    }

    /// The queue before the GPU. The first call asks drivers and starts a process, which takes some tenths of a second, or with a bad
    /// driver a minute; so does one some time after that failed. The others wait for it without a thread, each as long as it likes.
    ///
    /// # Errors
    /// `unavailable` with what is missing.
    async fn queue(self: &Arc<Self>) -> Result<Queue, TaskError> {
        let mut tried = self.queue.clone().lock_owned().await;
        if let Some(Tried { at, queue }) = &*tried
            && (queue.is_ok() || at.elapsed() < PAUSE)
        {
            return queue.clone();
        }
        let node = self.clone();
        // It holds the lock until it is done, also where its caller has gone: nobody starts a second one beside it.
        blocking(move || {
            let queue = node.start();
            *tried = Some(Tried {
                at: Instant::now(),
                queue: queue.clone(),
            });
            queue
        })
        .await
    }

    /// Blocks, for a minute at most.
    fn start(&self) -> Result<Queue, TaskError> {
        let device = chosen(&self.config, self.program.as_deref())?;
        let program = self
            .program
            .clone()
            .ok_or_else(|| TaskError::unavailable("no program to hold a GPU"))?;
        let tiles = self.tiles.clone().into();
        let arguments = vec!["serve-gpu".into(), device.id.into(), "--tiles".into(), tiles];
        let remote = Remote::start(RemoteOptions { program, arguments })?;
        Ok(Queue::start(Box::new(remote), MOST_WAITING)?)
    }

    fn work(&self, asked: Asked, inputs: &[Words]) -> Result<Work, TaskError> {
        match asked {
            Asked::Kernel(text) => self.kernel(&text, inputs).map(Work::Kernel),
            Asked::Shader {
                wgsl,
                entry,
                workgroups,
                outputs,
                loops,
            } => {
                if let Some(bytes) = outputs.iter().find(|bytes| !bytes.is_multiple_of(4)) {
                    return Err(TaskError::invalid(format!(
                        "an output has {bytes} bytes; they come in fours"
                    )));
                }
                Ok(Work::Shader(Shader {
                    wgsl,
                    entry,
                    workgroups,
                    outputs: outputs.into_iter().map(|bytes| bytes / 4).collect(),
                    loops,
                    limits: ShaderLimits {
                        memory: self.config.memory.0,
                        ..ShaderLimits::default()
                    },
                }))
            }
        }
    }

    fn kernel(&self, text: &str, inputs: &[Words]) -> Result<Kernel, TaskError> {
        if text.len() > MOST_TEXT {
            return Err(GpuError::Limit {
                what: "bytes of a kernel's description".into(),
                asked: text.len() as u64,
                most: MOST_TEXT as u64,
            }
            .into());
        }
        let kernel: Kernel = serde_json::from_str(text).map_err(|error| {
            TaskError::invalid(format!("the kernel does not read: {error}"))
                .with_hint("docs/gpu.md lists every kernel with its fields")
        })?;
        let inputs: Vec<&[u32]> = inputs.iter().map(Vec::as_slice).collect();
        let arguments = kernel.check_inputs(&inputs)?;
        let asked = arguments.iter().map(|argument| argument.words as u64 * 4).sum();
        if asked > self.config.memory.0 {
            return Err(GpuError::Memory {
                what: format!("{} with all its buffers", kernel.name()),
                asked,
                most: self.config.memory.0,
            }
            .into());
        }
        Ok(kernel)
    }

    async fn run(self: Arc<Self>, order: Order) -> Result<Computed, TaskError> {
        let start = Instant::now();
        // Each of the plugin's buffers goes once its words are there.
        let inputs: Arc<[Words]> = order.inputs.into_iter().map(|bytes| words(&bytes)).collect();
        let work = self.work(order.work, &inputs)?;
        if order.place == Place::Cpu {
            return blocking(move || on_processor(&work, &inputs, order.within, None)).await;
        }
        let left = || order.within.saturating_sub(start.elapsed());
        let late = |_| GpuError::Deadline(order.within);
        let queue = timeout(order.within, self.queue()).await.map_err(late)?;
        let missing = match queue {
            Ok(queue) => match self
                .on_gpu(&queue, &order.tenant, work.clone(), inputs.clone(), left())
                .await
            {
                Ok(computed) => return Ok(computed),
                // Only what is the device's fault is done elsewhere.
                Err(error @ (GpuError::Lost(_) | GpuError::Absent(_))) => TaskError::from(error),
                Err(error) => return Err(error.into()),
            },
            Err(error) => error,
        };
        if order.place != Place::GpuOrCpu {
            return Err(missing);
        }
        let (why, left) = (missing.message, left());
        tracing::info!(
            plugin = order.tenant,
            why,
            "GPU work runs on the processor, as its plugin allows"
        );
        blocking(move || on_processor(&work, &inputs, left, Some(why))).await
    }

    async fn on_gpu(
        &self,
        queue: &Queue,
        tenant: &str,
        work: Work,
        inputs: Arc<[Words]>,
        within: Duration,
    ) -> Result<Computed, GpuError> {
        let done = self.asked(queue, tenant, work, inputs, within).await?;
        Ok(computed(&done, device(queue.info()), None))
    }

    /// The GPU that models get, in words.
    ///
    /// # Errors
    /// `unavailable` with what is missing.
    pub(super) async fn for_models(self: &Arc<Self>) -> Result<String, TaskError> {
        Ok(device(self.queue().await?.info()))
    }

    /// Why there was no GPU when that was last looked for; nothing where it was not, or somebody looks.
    pub(super) fn absent(&self) -> Option<TaskError> {
        let tried = self.queue.try_lock().ok()?;
        tried.as_ref()?.queue.as_ref().err().cloned()
    }

    /// How much of the GPU there is for whom.
    pub(super) const fn config(&self) -> &GpuConfig {
        &self.config
    }

    /// Runs the program of a model on the GPU: in the turn of whose it is, and within the time of one piece of work.
    pub(super) async fn run_program(
        self: &Arc<Self>,
        tenant: &str,
        program: Arc<Program>,
        inputs: Arc<[Words]>,
    ) -> Result<Done, TaskError> {
        let queue = self.queue().await?;
        let work = Work::Program(program);
        // A caller that stops waiting drops this, and what has not begun by then is left out.
        Ok(self.asked(&queue, tenant, work, inputs, MOST_WAIT).await?)
    }

    async fn asked(
        &self,
        queue: &Queue,
        tenant: &str,
        work: Work,
        inputs: Arc<[Words]>,
        within: Duration,
    ) -> Result<Done, GpuError> {
        let (answer, done) = oneshot::channel();
        let job = Job {
            work,
            inputs,
            within,
            on_device: self.config.time,
            answer: Box::new(Caller(answer)),
        };
        queue.push(tenant, job)?;
        let done = timeout(within, done).await;
        let done = done.map_err(|_| GpuError::Deadline(within))?;
        done.unwrap_or_else(|_| Err(GpuError::Lost("its queue is gone".into())))
    }
}

/// Whether there is the GPU that this configuration gives to plugins and models, as a child of this program finds it. Blocks, for a minute
/// at most.
///
/// # Errors
/// `unavailable` with what is missing.
pub fn check_gpu(config: &GpuConfig, program: &Path) -> Result<(), TaskError> {
    chosen(config, Some(program)).map(drop)
}

/// The GPU that plugins and models get.
fn chosen(config: &GpuConfig, program: Option<&Path>) -> Result<DeviceInfo, TaskError> {
    let found = match program.filter(|_| config.device != GpuChoice::Off) {
        Some(program) => {
            let mut probe = Command::new(program);
            probe.arg("probe-gpu");
            find(probe, MOST_PROBE)
        }
        None => Found::default(),
    };
    let mut devices = found.devices.iter().filter(|device| device.api != Api::Cpu);
    let absent = || {
        let words = found
            .absent
            .iter()
            .map(|absent| format!("{}: {}", absent.what, absent.why));
        words.collect::<Vec<_>>().join("; ")
    };
    let (device, error) = match &config.device {
        GpuChoice::Off => (None, turned_off()),
        GpuChoice::Named(id) => (
            devices.find(|device| device.id == *id),
            TaskError::unavailable(format!(
                "this node has no GPU `{id}`, which node.toml names: {}",
                absent()
            ))
            .with_hint("`karman gpu list` shows what it has"),
        ),
        GpuChoice::Auto => {
            let why = match devices.clone().next() {
                Some(_) => "only a driver that computes on the processor".to_owned(),
                None => absent(),
            };
            (
                devices.find(|device| device.is_hardware()),
                TaskError::unavailable(format!("this node has no GPU: {why}")).with_hint(
                    "let the plugin fall back to the processor, or name a device under `gpu.device` in node.toml",
                ),
            )
        }
    };
    device.cloned().ok_or(error)
}

fn turned_off() -> TaskError {
    TaskError::unavailable("the operator has turned GPUs off (`gpu.device = \"off\"`)")
}

/// A device in words.
fn device(info: &DeviceInfo) -> String {
    format!("{} {}", info.id, info.name)
}

/// The call that waits.
struct Caller(oneshot::Sender<Result<Done, GpuError>>);

impl Answer for Caller {
    fn is_awaited(&self) -> bool {
        !self.0.is_closed()
    }

    fn answer(self: Box<Self>, done: Result<Done, GpuError>) {
        // A call that was cancelled meanwhile wants no answer.
        let _ = self.0.send(done);
    }
}

struct Shared(Arc<NodeCompute>);

impl Compute for Shared {
    fn run(&self, order: Order) -> BoxFuture<'static, Result<Computed, TaskError>> {
        self.0.clone().run(order).boxed()
    }
}

/// One thread: the node's other work keeps the rest.
fn on_processor(
    work: &Work,
    inputs: &[Words],
    within: Duration,
    fell_back: Option<String>,
) -> Result<Computed, TaskError> {
    let inputs: Vec<&[u32]> = inputs.iter().map(Vec::as_slice).collect();
    let mut cpu = Cpu::new(1);
    let done = cpu.run(work, &inputs, within)?;
    Ok(computed(&done, format!("cpu {}", cpu.info().name), fell_back))
}

fn computed(done: &Done, ran_on: String, fell_back: Option<String>) -> Computed {
    let bytes = |words: &Words| bytemuck::cast_slice::<u32, u8>(words).to_vec();
    Computed {
        outputs: done.outputs.iter().map(bytes).collect(),
        ran_on,
        fell_back,
        took: done.took,
    }
}

/// Bytes of a guest as words; their number was checked.
fn words(bytes: &[u8]) -> Words {
    let words = bytes.as_chunks::<4>().0.iter();
    words.map(|word| u32::from_le_bytes(*word)).collect()
}

#[cfg(test)]
mod tests;
