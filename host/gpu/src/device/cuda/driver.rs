//! The edge to CUDA: its driver, its compiler (NVRTC) and cuBLAS, loaded when they are first asked for. All that is unsafe about them is
//! here, and here it is seen to that they panic for nobody.

use super::{MOST_BUFFERS, MOST_PARAMETERS};
use crate::error::GpuError;
use crate::kernel::{Pass, Product, Words};
use cudarc::cublas::{self, CudaBlas};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig, PushKernelArg,
    result, sys,
};
use cudarc::nvrtc::{self, CompileError, CompileOptions};
use std::any::Any;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Words on the device.
pub(super) type Buffer = CudaSlice<u32>;

/// A device in use: one stream of work, done in order.
pub(super) struct Driver {
    stream: Arc<CudaStream>,
    /// There until it is dropped.
    blas: Option<CudaBlas>,
    compiled: HashMap<String, CudaFunction>,
}

/// One thing that a device is told to do. The buffers that it takes are arguments of its kernel.
pub(super) enum Step {
    /// One of `kernels/`.
    Launch(Box<Launch>),
    /// A product of matrices by cuBLAS.
    Product(Box<Product>),
}

/// A compiled pass.
pub(super) struct Launch {
    function: CudaFunction,
    parameters: [u32; MOST_PARAMETERS],
    bindings: Vec<usize>,
    threads: [u32; 3],
    workgroups: [u32; 3],
}

/// What the driver says of a device.
pub(super) struct Told {
    pub(super) name: String,
    /// Of compute capability, major and minor.
    pub(super) capability: (i32, i32),
    /// The version of CUDA that the driver speaks, as 1000 times its major and 10 times its minor number.
    pub(super) version: i32,
    pub(super) memory: u64,
    pub(super) threads: u32,
    pub(super) shared: u32,
    /// Whether it is on the processor's memory.
    pub(super) integrated: bool,
}

/// The kernels are compiled for the oldest devices that they are meant for; a driver makes code of it for the one that is here.
const TARGET: &str = "compute_75";

/// Compiled kernels that are kept; one more drops all.
const MOST_KEPT: usize = 128;

/// How long a wait looks without a pause, and the pause.
const EAGER: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_micros(100);

/// Does some work with CUDA's libraries. Where one of them is not there, or lacks a function, the crate that loads them panics: that is
/// a device that is lost.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, GpuError>) -> Result<T, GpuError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(GpuError::lost(&format!(
            "a library of CUDA failed: {}",
            said(&*panic)
        )))
    })
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("it does not say why")
}

/// Which of the libraries can be loaded: the driver, NVRTC, cuBLAS.
#[expect(unsafe_code, reason = "loading a library runs its code")]
pub(super) fn present() -> [bool; 3] {
    // SAFETY: these are the entrances of NVIDIA's libraries, made to be loaded so. They may be broken: that is why devices are asked
    // for and held in a child.
    unsafe {
        [
            sys::is_culib_present(),
            nvrtc::sys::is_culib_present(),
            cublas::sys::is_culib_present(),
        ]
    }
}

/// What the driver says of each of its devices.
pub(super) fn devices() -> Result<Vec<Told>, GpuError> {
    result::init().map_err(failed)?;
    let count = result::device::get_count().map_err(failed)?;
    (0..count).map(|ordinal| told(ordinal).map_err(failed)).collect()
}

#[expect(unsafe_code, reason = "the driver's functions are foreign")]
fn told(ordinal: c_int) -> Result<Told, DriverError> {
    use sys::CUdevice_attribute_enum as Attribute;
    let device = result::device::get(ordinal)?;
    // SAFETY: the device is one that the driver has just given.
    let ask = |attribute| unsafe { result::device::get_attribute(device, attribute) };
    let mut version = 0;
    // SAFETY: it writes one number, which is there.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result()?;
    // SAFETY: as with `ask`.
    let memory = unsafe { result::device::total_mem(device) }?;
    Ok(Told {
        name: result::device::get_name(device)?,
        capability: (
            ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        version,
        memory: memory as u64,
        threads: ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?.cast_unsigned(),
        shared: ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?.cast_unsigned(),
        integrated: ask(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
    })
}

impl Driver {
    pub(super) fn open(ordinal: usize) -> Result<Self, GpuError> {
        let context = CudaContext::new(ordinal).map_err(failed)?;
        let stream = context.default_stream();
        let blas = CudaBlas::new(stream.clone()).map_err(|error| lost("cuBLAS", &error))?;
        Ok(Self {
            stream,
            blas: Some(blas),
            compiled: HashMap::new(),
        })
    }

    /// A buffer of zeros.
    pub(super) fn zeros(&self, words: usize) -> Result<Buffer, GpuError> {
        // There is no memory of no length.
        self.stream.alloc_zeros(words.max(1)).map_err(failed)
    }

    /// A buffer that holds these.
    pub(super) fn holding(&self, words: &[u32]) -> Result<Buffer, GpuError> {
        let mut buffer = self.zeros(words.len())?;
        self.write(&mut buffer, words)?;
        Ok(buffer)
    }

    /// Puts words into a buffer of as many at least.
    pub(super) fn write(&self, buffer: &mut Buffer, words: &[u32]) -> Result<(), GpuError> {
        match words.is_empty() {
            true => Ok(()),
            false => self.stream.memcpy_htod(words, buffer).map_err(failed),
        }
    }

    pub(super) fn clear(&self, buffer: &mut Buffer) -> Result<(), GpuError> {
        self.stream.memset_zeros(buffer).map_err(failed)
    }

    /// The first words of each buffer, once all work before is done.
    pub(super) fn read(&self, buffers: &[(&Buffer, usize)]) -> Result<Vec<Words>, GpuError> {
        let mut all = Vec::with_capacity(buffers.len());
        for (buffer, words) in buffers {
            let mut copy = self.stream.clone_dtoh(*buffer).map_err(failed)?;
            copy.truncate(*words);
            all.push(copy);
        }
        self.stream.synchronize().map_err(failed)?;
        Ok(all)
    }

    /// Compiles a pass, unless it was before.
    pub(super) fn step(&mut self, pass: &Pass) -> Result<Step, GpuError> {
        let most = |what: &str, asked: usize, most: usize| match asked <= most {
            true => Ok(()),
            false => Err(GpuError::Limit {
                what: format!("{what} of `{}`", pass.name),
                asked: asked as u64,
                most: most as u64,
            }),
        };
        most("parameters", pass.parameters.len(), MOST_PARAMETERS)?;
        most("buffers", pass.bindings.len(), MOST_BUFFERS)?;
        let mut parameters = [0; MOST_PARAMETERS];
        parameters[..pass.parameters.len()].copy_from_slice(&pass.parameters);
        Ok(Step::Launch(Box::new(Launch {
            function: self.compile(pass)?,
            parameters,
            bindings: pass.bindings.clone(),
            threads: pass.threads,
            workgroups: pass.workgroups,
        })))
    }

    fn compile(&mut self, pass: &Pass) -> Result<CudaFunction, GpuError> {
        let text = pass.cuda();
        if let Some(function) = self.compiled.get(&text) {
            return Ok(function.clone());
        }
        let options = CompileOptions {
            arch: Some(TARGET),
            name: Some(format!("{}.cu", pass.name)),
            ..CompileOptions::default()
        };
        let compiled = nvrtc::compile_ptx_with_opts(&text, options).map_err(|error| match error {
            CompileError::CompileError { log, .. } => GpuError::absent(&format!(
                "NVRTC does not compile `{}`: {}",
                pass.name,
                log.to_string_lossy()
            )),
            other => lost("NVRTC", &other),
        })?;
        let module = self.stream.context().load_module(compiled).map_err(failed)?;
        let function = module.load_function("kernel").map_err(failed)?;
        if self.compiled.len() >= MOST_KEPT {
            self.compiled.clear();
        }
        self.compiled.insert(text, function.clone());
        Ok(function)
    }

    /// Puts a step behind what the device was told before, with the arguments of its kernel. It returns at once.
    pub(super) fn begin(&self, step: &Step, arguments: &[&Buffer]) -> Result<(), GpuError> {
        match step {
            Step::Launch(launch) => self.launch(launch, arguments),
            Step::Product(product) => self.product(product, arguments),
        }
    }

    fn address(&self, buffer: &Buffer) -> sys::CUdeviceptr {
        // All work is in one stream: there is nothing that the second part would wait for.
        buffer.device_ptr(&self.stream).0
    }

    #[expect(unsafe_code, reason = "what runs on a device is checked by nobody")]
    fn launch(&self, launch: &Launch, arguments: &[&Buffer]) -> Result<(), GpuError> {
        let mut addresses = [0; MOST_BUFFERS];
        for (address, argument) in addresses.iter_mut().zip(&launch.bindings) {
            *address = self.address(arguments[*argument]);
        }
        let config = LaunchConfig {
            grid_dim: launch.workgroups.into(),
            block_dim: launch.threads.into(),
            shared_mem_bytes: 0,
        };
        let mut builder = self.stream.launch_builder(&launch.function);
        builder.arg(&launch.parameters).arg(&addresses);
        // SAFETY: the function takes two structures, and both arrays are at least as long as those: `Pass::cuda` has it checked when it
        // is compiled that they are as long as the pass says, and `step` that this is no more. The kernels of `kernels/` are part of
        // this program; each compares every index with the lengths that `Kernel::arguments` gives its buffers, whose product is
        // bounded by `check`, and writes its last buffer only. Buffers belong to the stream in which they are used, so that none is
        // freed before this work is done, and nothing else reads them meanwhile.
        unsafe { builder.launch(config) }.map(drop).map_err(failed)
    }

    #[expect(unsafe_code, reason = "cuBLAS is a foreign library")]
    fn product(&self, product: &Product, arguments: &[&Buffer]) -> Result<(), GpuError> {
        use cublas::sys::{cublasComputeType_t, cublasGemmAlgo_t, cublasOperation_t, cudaDataType};
        let Some(blas) = &self.blas else {
            return Err(GpuError::lost("cuBLAS is gone"));
        };
        self.stream.context().bind_to_thread().map_err(failed)?;
        let first = match product.transposed {
            true => cublasOperation_t::CUBLAS_OP_T,
            false => cublasOperation_t::CUBLAS_OP_N,
        };
        let element = match product.half {
            true => cudaDataType::CUDA_R_16F,
            false => cudaDataType::CUDA_R_32F,
        };
        let size = |size: u32| size.cast_signed();
        let address = |argument: usize| self.address(arguments[argument]) as *mut c_void;
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: the addresses are of buffers on this device, with the lengths that `Gemm::arguments` gives them: a row for each stride
        // but the last, which is what the library reads with these numbers (`Product` is tested against its definition). The two
        // factors are on this side, where the handle looks for them by default, and are read before it returns.
        let asked = unsafe {
            cublas::result::gemm_ex(
                *blas.handle(),
                first,
                cublasOperation_t::CUBLAS_OP_N,
                size(product.m),
                size(product.n),
                size(product.k),
                (&raw const one).cast(),
                address(1),
                element,
                size(product.first_stride),
                address(0),
                element,
                size(product.second_stride),
                (&raw const zero).cast(),
                address(product.result),
                cudaDataType::CUDA_R_32F,
                size(product.result_stride),
                // Sums of single precision, and no TF32 in between.
                cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cublasGemmAlgo_t::CUBLAS_GEMM_DFALT,
            )
        };
        asked.map_err(|error| match error.0 {
            cublas::sys::cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED => GpuError::Exhausted,
            _ => lost("cuBLAS", &error),
        })
    }

    /// Waits until all that was begun is done, for so long at most.
    pub(super) fn wait(&self, within: Duration) -> Result<(), GpuError> {
        let start = Instant::now();
        let done = self.stream.record_event(None).map_err(failed)?;
        while !done.try_is_complete().map_err(failed)? {
            let waited = start.elapsed();
            if waited >= within {
                return Err(GpuError::Deadline(within));
            }
            match waited < EAGER {
                true => std::thread::yield_now(),
                false => std::thread::park_timeout(PAUSE),
            }
        }
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let blas = self.blas.take();
        // It panics where the device was lost, and then there is nothing left to give back.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(blas)));
    }
}

/// A device of which the driver says this is of no more use, for most of its errors stay; but for one that has no memory left.
fn failed(error: DriverError) -> GpuError {
    match error.0 {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => GpuError::Exhausted,
        _ => lost("CUDA", &error),
    }
}

fn lost(who: &str, why: &dyn Display) -> GpuError {
    GpuError::lost(&format!("{who}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_no_lost_device() {
        let of = |error| failed(DriverError(error));
        assert_eq!(of(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY), GpuError::Exhausted);
    }
}
