//! A GPU in this process, through wgpu.

mod adapters;
mod compile;
mod memory;
mod pool;
mod program;
mod read;
mod step;

pub(crate) use adapters::{adapters, describe};

use super::kept::{Kept, MOST_KEPT, RunPrograms};
use super::{Device, DeviceInfo, Done, Repeat, Work};
use crate::error::GpuError;
use crate::kernel::{Argument, Kernel, Pass, Role, Words};
use crate::shader::Shader;
use crate::tune::Tile;
use compile::Compiler;
use karman_types::Digest;
use pool::Pool;
use program::Ready;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use step::Step;
use wgpu::{BufferUsages, PollType};

/// A GPU, opened. It works for one caller at a time; buffers and compiled shaders are kept for the next.
///
/// A driver that hangs keeps this process from ever leaving it: for work that is not ours, and for drivers that are not known to
/// be sound, take a [`Remote`](super::Remote).
pub struct Wgpu {
    info: DeviceInfo,
    device: wgpu::Device,
    queue: wgpu::Queue,
    pool: Pool,
    compiler: Compiler,
    programs: Kept<Ready>,
    tile: Tile,
    /// Whether its driver takes half precision out of words; old ones that compute on the processor do not.
    halves: bool,
    /// The most memory that this process may take on to read a shader.
    most_reading: Option<u64>,
    /// The first thing that went wrong since it was last asked.
    failed: Arc<Mutex<Option<GpuError>>>,
}

/// A kernel with its inputs on the device, to be run any number of times.
pub struct Prepared {
    arguments: Vec<Argument>,
    buffers: Vec<wgpu::Buffer>,
    steps: Vec<Step>,
}

impl Wgpu {
    /// Opens the device of this id, as [`find`](crate::find) has it, with tiles of this shape.
    ///
    /// # Errors
    /// [`GpuError::Absent`] when there is none, or its driver does not give it.
    pub fn open(id: &str, tile: Option<Tile>) -> Result<Self, GpuError> {
        let adapters = adapters();
        let infos = describe(&adapters);
        let Some((adapter, info)) = adapters.into_iter().zip(infos).find(|(_, info)| info.id == id) else {
            return Err(GpuError::Absent(format!("there is no device `{id}` here")));
        };
        let asked = adapter.request_device(&wgpu::DeviceDescriptor {
            required_limits: adapter.limits(),
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..wgpu::DeviceDescriptor::default()
        });
        let (device, queue) = pollster::block_on(asked)
            .map_err(|error| GpuError::Absent(format!("{id} cannot be opened: {error}")))?;
        let failed: Arc<Mutex<Option<GpuError>>> = Arc::default();
        let note = failed.clone();
        device.on_uncaptured_error(Arc::new(move |error| {
            note.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(match error {
                    wgpu::Error::OutOfMemory { .. } => GpuError::Exhausted,
                    wgpu::Error::Validation { description, .. } => GpuError::shader(&description),
                    wgpu::Error::Internal { description, .. } => GpuError::lost(&description),
                });
        }));
        let note = failed.clone();
        device.set_device_lost_callback(move |reason, why| {
            let error = GpuError::lost(&format!("{reason:?}: {why}"));
            note.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(error);
        });
        let tile = tile.unwrap_or_else(|| Tile::for_device(&info));
        let flags = adapter.get_downlevel_capabilities().flags;
        Ok(Self {
            info,
            device,
            queue,
            pool: Pool::default(),
            compiler: Compiler::default(),
            programs: Kept::new(MOST_KEPT),
            tile,
            halves: flags.contains(wgpu::DownlevelFlags::SHADER_F16_IN_F32),
            most_reading: None,
            failed,
        })
    }

    /// The shape of tiles that its products of matrices take.
    pub const fn tile(&self) -> Tile {
        self.tile
    }

    /// Takes tiles of another shape from now on.
    pub fn set_tile(&mut self, tile: Tile) {
        self.tile = tile;
    }

    /// Ends this process where reading a plugin's shader takes more memory than this: a short text can ask a compiler for arrays
    /// of any size. For a process that holds a device and nothing else, on Linux; elsewhere it does nothing.
    pub const fn end_beyond(&mut self, most_reading: u64) {
        self.most_reading = Some(most_reading);
    }

    /// What it does for a kernel.
    fn passes(&self, kernel: &Kernel) -> Result<Vec<Pass>, GpuError> {
        let passes = kernel.passes(self.tile)?;
        if !self.halves && passes.iter().any(Pass::takes_halves) {
            return Err(GpuError::Absent(format!(
                "the driver of {} knows no half precision, which this `{}` takes",
                self.info.id,
                kernel.name()
            )));
        }
        Ok(passes)
    }

    /// Its outputs.
    ///
    /// # Errors
    /// When the device fails.
    pub fn read(&mut self, prepared: &Prepared, within: Duration) -> Result<Vec<Words>, GpuError> {
        let outputs = prepared.arguments.iter().zip(&prepared.buffers);
        let outputs: Vec<_> = outputs
            .filter(|(argument, _)| argument.role == Role::Output)
            .map(|(argument, buffer)| (buffer.clone(), argument.words))
            .collect();
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let staging = self.stage(&mut encoder, &outputs);
        self.queue.submit([encoder.finish()]);
        self.fetch(staging, within)
    }

    fn run_kernel(
        &mut self,
        kernel: &Kernel,
        inputs: &[&[u32]],
        within: Duration,
    ) -> Result<Vec<Words>, GpuError> {
        let prepared = self.prepare(kernel, inputs)?;
        self.finish(prepared, within)
    }

    fn run_shader(
        &mut self,
        shader: &Shader,
        inputs: &[&[u32]],
        within: Duration,
    ) -> Result<Vec<Words>, GpuError> {
        let checked = memory::within(self.most_reading, || shader.check(inputs, &self.info))?;
        let (arguments, loops) = (checked.arguments.clone(), checked.loops);
        let buffers = self.buffers(&arguments, inputs)?;
        let step = self.own_step(shader, checked, &buffers)?;
        let prepared = Prepared {
            arguments,
            buffers,
            steps: vec![step],
        };
        let mut outputs = self.finish(prepared, within)?;
        match outputs.pop() {
            Some(flag) if flag.first() == Some(&0) => Ok(outputs),
            _ => Err(GpuError::Endless(loops)),
        }
    }

    fn run_once(&mut self, work: &Work, inputs: &[&[u32]], within: Duration) -> Result<Vec<Words>, GpuError> {
        match work {
            Work::Kernel(kernel) => self.run_kernel(kernel, inputs, within),
            Work::Shader(shader) => self.run_shader(shader, inputs, within),
            Work::Program(program) => self.run_program(program, inputs, within),
        }
    }

    fn finish(&mut self, prepared: Prepared, within: Duration) -> Result<Vec<Words>, GpuError> {
        let took = self.repeat(&prepared, 1, within)?;
        let outputs = self.read(&prepared, within.saturating_sub(took));
        prepared
            .buffers
            .into_iter()
            .for_each(|buffer| self.pool.give_back(buffer));
        outputs
    }

    /// A buffer per argument: inputs filled, the others cleared, for a pooled one still holds what was in it.
    fn buffers(&mut self, arguments: &[Argument], inputs: &[&[u32]]) -> Result<Vec<wgpu::Buffer>, GpuError> {
        let too_large = |argument: &&Argument| bytes(argument.words) > self.info.most_buffer;
        if let Some(argument) = arguments.iter().find(too_large) {
            let (asked, most) = (bytes(argument.words), self.info.most_buffer);
            return Err(GpuError::Memory {
                what: argument.name.into(),
                asked,
                most,
            });
        }
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let take = |argument: &Argument| self.pool.take(&self.device, bytes(argument.words), usage);
        let buffers: Vec<_> = arguments.iter().map(take).collect();
        let mut encoder = self.device.create_command_encoder(&Default::default());
        // Inputs come first.
        for (place, buffer) in buffers.iter().enumerate() {
            match inputs.get(place) {
                Some(words) if !words.is_empty() => {
                    self.queue.write_buffer(buffer, 0, bytemuck::cast_slice(words));
                }
                _ => encoder.clear_buffer(buffer, 0, None),
            }
        }
        self.queue.submit([encoder.finish()]);
        self.fine()?;
        Ok(buffers)
    }

    fn wait(&self, within: Duration) -> Result<(), GpuError> {
        let waited = self.device.poll(PollType::Wait {
            submission_index: None,
            timeout: Some(within.min(LONGEST)),
        });
        self.fine()?;
        match waited {
            Ok(_) => Ok(()),
            Err(wgpu::PollError::Timeout) => Err(GpuError::Deadline(within)),
            Err(error) => Err(GpuError::Lost(error.to_string())),
        }
    }

    /// Whether nothing went wrong since it was last asked.
    fn fine(&self) -> Result<(), GpuError> {
        self.failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .map_or(Ok(()), Err)
    }
}

impl Device for Wgpu {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn set_tenant(&mut self, tenant: &str) {
        self.programs.set_tenant(tenant);
    }

    fn run(&mut self, work: &Work, inputs: &[&[u32]], within: Duration) -> Result<Done, GpuError> {
        self.with_room(within, |device, within| device.run_once(work, inputs, within))
    }

    fn run_kept(
        &mut self,
        program: Digest,
        inputs: &[&[u32]],
        within: Duration,
    ) -> Option<Result<Done, GpuError>> {
        let start = Instant::now();
        let outputs = self.run_again(program, inputs, within)?;
        self.kept_with_room(start, outputs)
    }
}

impl Repeat for Wgpu {
    type Prepared = Prepared;

    fn prepare(&mut self, kernel: &Kernel, inputs: &[&[u32]]) -> Result<Self::Prepared, GpuError> {
        let arguments = kernel.check_inputs(inputs)?;
        let passes = self.passes(kernel)?;
        let buffers = self.buffers(&arguments, inputs)?;
        let steps = passes
            .iter()
            .map(|pass| self.step(pass, &buffers))
            .collect::<Result<_, _>>()?;
        Ok(Prepared {
            arguments,
            buffers,
            steps,
        })
    }

    fn repeat(
        &mut self,
        prepared: &Self::Prepared,
        times: u32,
        within: Duration,
    ) -> Result<Duration, GpuError> {
        let start = Instant::now();
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut compute = encoder.begin_compute_pass(&Default::default());
            for _ in 0..times {
                prepared.steps.iter().for_each(|step| step.dispatch(&mut compute));
            }
        }
        self.queue.submit([encoder.finish()]);
        self.wait(within)?;
        Ok(start.elapsed())
    }
}

/// Drivers count in nanoseconds, some in 32 bits of milliseconds.
const LONGEST: Duration = Duration::from_secs(3600);

const fn bytes(words: usize) -> u64 {
    // A buffer of nothing cannot be bound.
    if words == 0 { 4 } else { words as u64 * 4 }
}

impl fmt::Debug for Wgpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wgpu")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Gemm, f16_words, f32_words, floats};

    #[test]
    fn a_driver_without_half_precision_is_told_and_does_the_rest() {
        let mut device = match Wgpu::open("vulkan-0", None) {
            Ok(device) => device,
            Err(error) => return eprintln!("skipped on GPUs: {error}"),
        };
        device.halves = false;
        let mut run = |half, a: &[u32], b: &[u32]| {
            let (m, n, k) = (1, 2, 2);
            let shape = Gemm {
                m,
                n,
                k,
                half,
                ..Gemm::default()
            };
            let work = Work::Kernel(Kernel::Gemm(shape));
            device.run(&work, &[a, b], Duration::from_secs(60))
        };
        let (a, b) = ([1.0, 2.0], [1.0, 2.0, 3.0, 4.0]);
        let refused = run(true, &f16_words(&a), &f16_words(&b)).unwrap_err();
        let why = "the driver of vulkan-0 knows no half precision, which this `gemm` takes";
        assert_eq!(refused, GpuError::Absent(why.into()));
        let done = run(false, &f32_words(&a), &f32_words(&b)).unwrap();
        assert_eq!(floats(&done.outputs[0]), [7.0, 10.0]);
    }

    #[test]
    fn what_is_only_kept_makes_room_for_work_that_finds_none() {
        let mut device = match Wgpu::open("vulkan-0", None) {
            Ok(device) => device,
            Err(error) => return eprintln!("skipped on GPUs: {error}"),
        };
        let shape = Gemm {
            m: 1,
            n: 1,
            k: 1,
            ..Gemm::default()
        };
        let work = Work::Kernel(Kernel::Gemm(shape));
        let two = f32_words(&[2.0]);
        let inputs: [&[u32]; 2] = [&two, &two];
        let within = Duration::from_secs(60);
        device.run(&work, &inputs, within).unwrap();
        *device.failed.lock().unwrap() = Some(GpuError::Exhausted);
        let done = device.run(&work, &inputs, within).unwrap();
        assert_eq!(floats(&done.outputs[0]), [4.0]);
    }
}
