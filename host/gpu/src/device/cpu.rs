use super::{Api, Class, Device, DeviceInfo, Done, Work};
use crate::error::GpuError;
use crate::kernel::Words;
use pulp::Arch;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::fmt;
use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The processor as a device: threads of its own, and its widest instructions.
pub struct Cpu {
    info: DeviceInfo,
    /// None where one thread does it all.
    pool: Option<ThreadPool>,
    arch: Arch,
    /// When the present work has to be done, if ever.
    end: Option<Instant>,
}

/// Below this many elements a second thread costs more than it brings.
const WORTH_A_THREAD: usize = 1 << 14;

impl Cpu {
    /// The processor with this many threads; 0 is one for each core.
    pub fn new(threads: usize) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = if threads == 0 { cores() } else { threads };
        let pool = || {
            let named = |thread| format!("karman-gpu-cpu-{thread}");
            // Without threads of its own the caller's does the work.
            ThreadPoolBuilder::new()
                .num_threads(threads)
                .thread_name(named)
                .build()
                .ok()
        };
        let arch = Arch::new();
        // Behind the level stand all instructions that it has.
        let level = format!("{arch:?}").to_lowercase();
        let level = level.split('(').next().unwrap_or_default();
        Self {
            info: DeviceInfo {
                id: "cpu".into(),
                api: Api::Cpu,
                class: Class::Processor,
                name: name().unwrap_or_else(|| std::env::consts::ARCH.into()),
                driver: format!("{threads} threads, {level}"),
                most_buffer: u64::MAX,
                most_threads: 1,
                most_shared: 0,
                most_buffers: u32::MAX,
            },
            pool: (threads > 1).then(pool).flatten(),
            arch,
            end: None,
        }
    }

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        self.pool.as_ref().map_or(1, ThreadPool::current_num_threads)
    }

    /// Whether the time of the present work is over: what is left of it is of no use.
    pub(crate) fn is_late(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Calls `each` with every row of `width` elements and its number, on all threads where that pays, until time is over.
    pub(crate) fn rows<T: Send>(&self, all: &mut [T], width: usize, each: impl Fn(usize, &mut [T]) + Sync) {
        // A row may be short: a task takes as many as make it worth while.
        let rows = (1024 / width.max(1)).max(1);
        let task = |(task, part): (usize, &mut [T])| {
            if self.is_late() {
                return;
            }
            for (number, row) in part.chunks_mut(width).enumerate() {
                each(task * rows + number, row);
            }
        };
        match &self.pool {
            Some(pool) if all.len() >= WORTH_A_THREAD || all.len() > width && width >= 64 => {
                pool.install(|| all.par_chunks_mut(width * rows).enumerate().for_each(task));
            }
            _ => all.chunks_mut(width * rows).enumerate().for_each(task),
        }
    }

    fn outputs(&self, work: &Work, inputs: &[&[u32]]) -> Result<Vec<Words>, GpuError> {
        match work {
            Work::Kernel(kernel) => kernel.on_cpu(self, inputs),
            Work::Program(program) => program.on_cpu(self, inputs),
            Work::Shader(_) => Err(GpuError::Absent(
                "a shader of one's own needs a GPU, and this device is the processor".into(),
            )),
        }
    }

    /// Runs a loop as the compiler makes it for the widest instructions of this processor.
    pub(crate) fn vectorised<R>(&self, work: impl FnOnce() -> R) -> R {
        self.arch.dispatch(work)
    }

    /// Calls `work` with each piece, on all threads, until time is over.
    pub(crate) fn pieces<T: Send>(&self, pieces: Vec<T>, work: impl Fn(T) + Sync) {
        let helpers = self.threads().min(pieces.len()).saturating_sub(1);
        let left = Mutex::new(pieces.into_iter());
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        let take_turns = || {
            while let Some(piece) = next().filter(|_| !self.is_late()) {
                work(piece);
            }
        };
        match &self.pool {
            // The thread that asks would else sleep until the others are done.
            Some(pool) if helpers > 0 => pool.in_place_scope(|scope| {
                (0..helpers).for_each(|_| scope.spawn(|_| take_turns()));
                take_turns();
            }),
            _ => take_turns(),
        }
    }
}

/// What the processor calls itself.
fn name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("model name") || line.starts_with("Model"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

impl Device for Cpu {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The time is watched between pieces of a kernel, which take some tens of milliseconds each at most.
    fn run(&mut self, work: &Work, inputs: &[&[u32]], within: Duration) -> Result<Done, GpuError> {
        let start = Instant::now();
        self.end = start.checked_add(within);
        let outputs = self.outputs(work, inputs);
        let is_late = self.is_late();
        // What else it is used for is not cut off by the time of this work.
        self.end = None;
        let outputs = outputs?;
        match is_late {
            true => Err(GpuError::Deadline(within)),
            false => Ok(Done::since(start, outputs)),
        }
    }
}

impl fmt::Debug for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cpu")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}
