//! Devices and kernels: whatever GPU a machine has, or its processor, behind one [`Device`].
//!
//! [`find`](find::find) says what is there, asking drivers in a child process, for a driver may crash. A [`Kernel`] names a computation
//! and its shape; every device runs it: GPUs by the shaders of `shaders/` ([`Wgpu`]: Vulkan, Metal, Direct3D 12, OpenGL), those of
//! NVIDIA also by `kernels/` and cuBLAS ([`Cuda`]), the processor by a matrix library and loops of its own ([`Cpu`]). Kernels that
//! follow each other are a [`Program`], whose constants a device keeps. A plugin's own WGSL, a [`Shader`], is checked and given a
//! budget of loops before a driver sees it, and runs in a process of its own ([`Remote`]), which is ended when it takes too long.
//! Where several tenants share a device, a [`Queue`] stands before it, and a [`Share`] says whose turn it is.
//!
//! | file | what |
//! |---|---|
//! | `kernel/` | one file per kernel: arguments, passes of a GPU, the processor's path, the reference |
//! | `device/` | the processor, wgpu, CUDA, the process that holds a device, and what to ask for |
//! | `find.rs`, `child.rs` | what is there, and why something is not; asked in a child process |
//! | `shader.rs`, `fuel.rs` | what a plugin's shader may do, and how its loops end |
//! | `program.rs` | several kernels as one piece of work, and where its buffers lie |
//! | `queue.rs`, `share.rs` | a device of several tenants, and their turns |
//! | `tune.rs` | shapes of tiles, measured once per device |
//! | `check.rs`, `bench.rs` | is it right, and how fast |
//!
//! ```
//! use karman_gpu::{Cpu, Device, Gemm, Kernel, Work, f32_words, floats};
//! use std::time::Duration;
//!
//! let product = Kernel::Gemm(Gemm { m: 1, n: 2, k: 2, ..Gemm::default() });
//! let (a, b) = (f32_words(&[1.0, 2.0]), f32_words(&[1.0, 2.0, 3.0, 4.0]));
//! let done = Cpu::new(1).run(&Work::Kernel(product), &[&a, &b], Duration::from_secs(1))?;
//! assert_eq!(floats(&done.outputs[0]), [7.0, 10.0]);
//! # Ok::<(), karman_gpu::GpuError>(())
//! ```

pub mod bench;
pub mod check;
pub mod child;
mod device;
mod error;
pub mod find;
mod fuel;
mod kernel;
mod program;
mod queue;
mod shader;
mod share;
pub mod tune;

pub use device::{
    Api, Class, Cpu, Cuda, CudaPrepared, Device, DeviceInfo, Done, Prepared, Remote, RemoteOptions, Repeat,
    Wgpu, Work, serve,
};
pub use error::GpuError;
pub use kernel::{
    Accumulate, Activation, Argument, Arithmetic, Attention, BatchedGemm, Broadcast, Concat, Convolution,
    Decode, Element, Encode, Expected, Fold, Format, Gather, Gemm, IntegerGemm, Kernel, Map, Mask, Norm,
    Normalise, Padding, Pass, Pool, Product, Quantised, QuantisedGemm, Rearrange, Reduce, Role, Sides,
    Source, Step, TopK, Window, Words, f16_words, f32_words, floats, from_awq, from_gptq, halves,
};
pub use program::{Call, Plan, Program};
pub use queue::{Answer, DeviceUse, Job, Queue};
pub use shader::{Shader, ShaderLimits};
pub use share::{Share, Turn};
