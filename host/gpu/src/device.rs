//! What runs work: the processor, a GPU in this process, or one in a process of its own.

mod cpu;
mod cuda;
mod gpu;
mod kept;
mod remote;
mod wire;

pub use cpu::Cpu;
pub use cuda::{Cuda, CudaPrepared};
pub use gpu::{Prepared, Wgpu};
pub use remote::{Remote, RemoteOptions};
pub use wire::serve;

pub(crate) use cuda::cuda_devices;
pub(crate) use gpu::{adapters, describe};
pub(crate) use remote::end;

use crate::error::GpuError;
use crate::kernel::{Kernel, Words};
use crate::program::Program;
use crate::shader::Shader;
use karman_types::Digest;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A piece of work for a device.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// One kernel of this crate.
    Kernel(Kernel),
    /// A plugin's own shader.
    Shader(Shader),
    /// Several kernels, one after the other, with the constants that are the same in every run.
    Program(Arc<Program>),
}

/// The result of a piece of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// The outputs, in order.
    pub outputs: Vec<Words>,
    /// How long the device was kept: copies there and back, compilation where it was the first time, and the work.
    pub took: Duration,
}

impl Done {
    /// These outputs of work that began then and has just ended.
    fn since(start: Instant, outputs: Vec<Words>) -> Self {
        Self {
            outputs,
            took: start.elapsed(),
        }
    }
}

/// A device that runs work, one piece after the other.
pub trait Device: Send {
    /// What it is.
    fn info(&self) -> &DeviceInfo;

    /// The tenant of the work that comes from now on: a device keeps programs for their next runs, and each tenant has a fair share of
    /// what it keeps.
    fn set_tenant(&mut self, _tenant: &str) {}

    /// Runs a piece of work on these inputs, for at most this long.
    ///
    /// # Errors
    /// When the inputs do not fit, or the device cannot, does not in time, or fails.
    fn run(&mut self, work: &Work, inputs: &[&[u32]], within: Duration) -> Result<Done, GpuError>;

    /// Runs a program that the device still has from an earlier run, without its constants. None where it does not have it: then it takes a
    /// [`Work::Program`].
    fn run_kept(
        &mut self,
        _program: Digest,
        _inputs: &[&[u32]],
        _within: Duration,
    ) -> Option<Result<Done, GpuError>> {
        None
    }

    /// Recovers from work that failed, where that takes time. Where it does not succeed, the next [`Device::run`] tries again.
    fn recover(&mut self) {}
}

/// A device on which a kernel's inputs stay, to be run any number of times: to measure how long it takes.
pub trait Repeat: Device {
    /// A kernel with its inputs on the device.
    type Prepared;

    /// Puts a kernel's inputs on the device and compiles what it takes.
    ///
    /// # Errors
    /// When the inputs do not fit the kernel or the device, [`GpuError::Absent`] where the device cannot do this.
    fn prepare(&mut self, kernel: &Kernel, inputs: &[&[u32]]) -> Result<Self::Prepared, GpuError>;

    /// Runs it this many times, one after the other, and returns how long all of them took.
    ///
    /// # Errors
    /// When the device fails, or has not done it in time.
    fn repeat(
        &mut self,
        prepared: &Self::Prepared,
        times: u32,
        within: Duration,
    ) -> Result<Duration, GpuError>;
}

/// A device in words and numbers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DeviceInfo {
    /// Its id on this machine: `vulkan-0`, `cuda-0`, `cpu`.
    pub id: String,
    /// The interface through which it is reached.
    pub api: Api,
    /// Its kind.
    pub class: Class,
    /// What its maker calls it.
    pub name: String,
    /// The driver and its version.
    pub driver: String,
    /// The largest buffer in bytes.
    pub most_buffer: u64,
    /// The most threads of a workgroup.
    pub most_threads: u32,
    /// The most memory of a workgroup in bytes.
    pub most_shared: u32,
    /// Buffers that a shader may bind.
    pub most_buffers: u32,
}

/// The interface through which a device is reached.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// None: it is the processor.
    Cpu,
    /// Vulkan.
    Vulkan,
    /// Metal.
    Metal,
    /// Direct3D 12.
    Dx12,
    /// OpenGL (ES).
    Gl,
    /// NVIDIA's own.
    Cuda,
}

/// The kind of a device, in the order of preference.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// With memory of its own.
    Discrete,
    /// On the processor's memory.
    Integrated,
    /// A share of one, given to a virtual machine.
    Virtual,
    /// The driver does not say.
    Other,
    /// A driver that computes on the processor.
    Software,
    /// The processor itself.
    Processor,
}

impl DeviceInfo {
    /// Whether there is silicon behind it that is no processor.
    pub const fn is_hardware(&self) -> bool {
        !matches!(self.class, Class::Software | Class::Processor)
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Vulkan => "vulkan",
            Self::Metal => "metal",
            Self::Dx12 => "dx12",
            Self::Gl => "gl",
            Self::Cuda => "cuda",
        })
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Virtual => "virtual",
            Self::Other => "other",
            Self::Software => "software",
            Self::Processor => "processor",
        })
    }
}
