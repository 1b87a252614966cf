//! An NVIDIA GPU in this process, through CUDA.

mod driver;
mod program;

use super::kept::{Kept, MOST_KEPT, RunPrograms};
use super::{Api, Class, Device, DeviceInfo, Done, Repeat, Work};
use crate::error::GpuError;
use crate::kernel::{Argument, Kernel, Map, Role, Words};
use crate::tune::Tile;
use driver::{Buffer, Driver, Step, Told, guarded};
use karman_types::Digest;
use program::Ready;
use std::fmt;
use std::time::{Duration, Instant};

/// An NVIDIA GPU, opened through CUDA. Products of matrices are cuBLAS's; all else is in `kernels/`, and compiled when it is first used.
///
/// It works for one caller at a time, and runs our kernels only: a plugin's own shader is WGSL, which needs another device. What it is
/// given ends, for the kernels are bounded by their shapes; one that takes too long is answered for and goes on until it is done.
pub struct Cuda {
    info: DeviceInfo,
    driver: Driver,
    programs: Kept<Ready>,
    tile: Tile,
    own_products: bool,
}

/// A kernel with its inputs on the device, to be run any number of times.
pub struct CudaPrepared {
    arguments: Vec<Argument>,
    buffers: Vec<Buffer>,
    steps: Vec<Step>,
}

/// The most words of parameters that a kernel can be passed. Ours take less.
const MOST_PARAMETERS: usize = 40;

/// The most buffers.
const MOST_BUFFERS: usize = 8;

/// The oldest compute capability that the kernels are compiled for.
const LEAST: (i32, i32) = (7, 5);

/// How each device is named, before its number.
const NAME: &str = "cuda-";

/// The CUDA devices of this machine, or why there are none. This loads drivers: call it where a crash does no harm.
pub(crate) fn cuda_devices() -> Result<Vec<DeviceInfo>, String> {
    found().map_err(|error| error.to_string())
}

fn found() -> Result<Vec<DeviceInfo>, GpuError> {
    missing(guarded(|| Ok(driver::present()))?)?;
    let told = guarded(driver::devices).map_err(|error| match error {
        GpuError::Lost(why) => GpuError::Absent(format!("the CUDA driver gives no device: {why}")),
        other => other,
    })?;
    let infos = told.iter().enumerate().map(|(ordinal, told)| info(ordinal, told));
    let (new, old): (Vec<_>, Vec<_>) = infos.zip(&told).partition(|(_, told)| told.capability >= LEAST);
    match (new.is_empty(), old.first()) {
        (false, _) => Ok(new.into_iter().map(|(info, _)| info).collect()),
        (true, Some((info, _))) => Err(GpuError::Absent(format!(
            "{} ({}) is too old: the kernels take a compute capability of {}.{} at least",
            info.name, info.driver, LEAST.0, LEAST.1
        ))),
        (true, None) => Err(GpuError::Absent("the CUDA driver has no device".into())),
    }
}

/// What is not there of the driver, NVRTC and cuBLAS, and what would bring it.
fn missing(present: [bool; 3]) -> Result<(), GpuError> {
    let why = match present {
        [true, true, true] => return Ok(()),
        [false, _, _] => "no CUDA driver (libcuda); NVIDIA's driver brings it",
        [true, false, _] => {
            "a CUDA driver is there, but not NVRTC (libnvrtc), which compiles the kernels: install the CUDA toolkit, or \
             `pip install nvidia-cuda-nvrtc-cu12` and name its folder `lib` in LD_LIBRARY_PATH"
        }
        [true, true, false] => {
            "a CUDA driver is there, but not cuBLAS (libcublas), which multiplies matrices: install the CUDA toolkit, or \
             `pip install nvidia-cublas-cu12` and name its folder `lib` in LD_LIBRARY_PATH"
        }
    };
    Err(GpuError::Absent(why.into()))
}

fn info(ordinal: usize, told: &Told) -> DeviceInfo {
    let (major, minor) = told.capability;
    DeviceInfo {
        id: format!("{NAME}{ordinal}"),
        api: Api::Cuda,
        class: match told.integrated {
            true => Class::Integrated,
            false => Class::Discrete,
        },
        name: told.name.clone(),
        driver: format!(
            "CUDA {}.{}, compute capability {major}.{minor}",
            told.version / 1000,
            told.version % 1000 / 10
        ),
        most_buffer: told.memory,
        most_threads: told.threads,
        most_shared: told.shared,
        most_buffers: MOST_BUFFERS as u32,
    }
}

impl Cuda {
    /// Whether this id would be one of a CUDA device.
    pub fn is_named(id: &str) -> bool {
        id.starts_with(NAME)
    }

    /// Opens the device of this id, as [`find`](crate::find) has it.
    ///
    /// # Errors
    /// [`GpuError::Absent`] when there is none, or a library of CUDA is not there; [`GpuError::Lost`] when its driver does not give it.
    pub fn open(id: &str) -> Result<Self, GpuError> {
        let none = || GpuError::Absent(format!("there is no device `{id}` here"));
        let info = found()?.into_iter().find(|info| info.id == id).ok_or_else(none)?;
        let ordinal = id.strip_prefix(NAME).and_then(|number| number.parse().ok());
        let ordinal: usize = ordinal.ok_or_else(none)?;
        let tile = Tile::for_device(&info);
        let opened = guarded(|| {
            let mut driver = Driver::open(ordinal)?;
            // A compiler that is newer than the driver makes what that does not take: it is told now, and not by the first work.
            let least = Kernel::Map(Map {
                length: 1,
                steps: vec![],
            });
            for pass in least.passes(tile)? {
                driver.step(&pass)?;
            }
            Ok(Self {
                info,
                driver,
                programs: Kept::new(MOST_KEPT),
                tile,
                own_products: false,
            })
        });
        // It has no memory for anybody: what may run elsewhere does.
        opened.map_err(|error| match error {
            GpuError::Exhausted => GpuError::Lost("it has no memory left".into()),
            other => other,
        })
    }

    /// Takes the products of matrices of `kernels/` from now on, or cuBLAS again: to compare the two.
    pub fn set_own_products(&mut self, own: bool) {
        self.own_products = own;
    }

    /// Its outputs.
    ///
    /// # Errors
    /// When the device fails.
    pub fn read(&mut self, prepared: &CudaPrepared) -> Result<Vec<Words>, GpuError> {
        guarded(|| self.outputs(prepared))
    }

    fn outputs(&self, prepared: &CudaPrepared) -> Result<Vec<Words>, GpuError> {
        let outputs = prepared.arguments.iter().zip(&prepared.buffers);
        let outputs = outputs.filter(|(argument, _)| argument.role == Role::Output);
        let outputs: Vec<_> = outputs
            .map(|(argument, buffer)| (buffer, argument.words))
            .collect();
        self.driver.read(&outputs)
    }

    /// What it does for a kernel.
    fn steps(&mut self, kernel: &Kernel) -> Result<Vec<Step>, GpuError> {
        if let Some(product) = kernel.product()?.filter(|_| !self.own_products) {
            let finish = product.finish.iter().map(|pass| self.driver.step(pass));
            let finish = finish.collect::<Result<Vec<_>, _>>()?;
            let product = Step::Product(Box::new(product));
            return Ok(std::iter::once(product).chain(finish).collect());
        }
        let passes = kernel.passes(self.tile)?;
        passes.iter().map(|pass| self.driver.step(pass)).collect()
    }

    fn ready_kernel(&mut self, kernel: &Kernel, inputs: &[&[u32]]) -> Result<CudaPrepared, GpuError> {
        let arguments = kernel.check_inputs(inputs)?;
        self.has_room(arguments.iter().map(|argument| (argument.name, argument.words)))?;
        let steps = self.steps(kernel)?;
        // Inputs come first.
        let buffer = |(place, argument): (usize, &Argument)| match inputs.get(place) {
            Some(words) => self.driver.holding(words),
            None => self.driver.zeros(argument.words),
        };
        let buffers = arguments
            .iter()
            .enumerate()
            .map(buffer)
            .collect::<Result<_, _>>()?;
        Ok(CudaPrepared {
            arguments,
            buffers,
            steps,
        })
    }

    /// Whether each of these buffers can be had by itself.
    fn has_room<'a>(&self, mut buffers: impl Iterator<Item = (&'a str, usize)>) -> Result<(), GpuError> {
        let most = self.info.most_buffer;
        match buffers.find(|(_, words)| *words as u64 * 4 > most) {
            None => Ok(()),
            Some((name, words)) => Err(GpuError::Memory {
                what: name.into(),
                asked: words as u64 * 4,
                most,
            }),
        }
    }

    fn begin(&self, prepared: &CudaPrepared) -> Result<(), GpuError> {
        let arguments: Vec<&Buffer> = prepared.buffers.iter().collect();
        let mut steps = prepared.steps.iter();
        steps.try_for_each(|step| self.driver.begin(step, &arguments))
    }

    fn run_kernel(
        &mut self,
        kernel: &Kernel,
        inputs: &[&[u32]],
        within: Duration,
    ) -> Result<Vec<Words>, GpuError> {
        let prepared = self.ready_kernel(kernel, inputs)?;
        self.begin(&prepared)?;
        self.driver.wait(within)?;
        self.outputs(&prepared)
    }

    fn run_once(&mut self, work: &Work, inputs: &[&[u32]], within: Duration) -> Result<Vec<Words>, GpuError> {
        match work {
            Work::Kernel(kernel) => self.run_kernel(kernel, inputs, within),
            Work::Program(program) => self.run_program(program, inputs, within),
            Work::Shader(_) => Err(GpuError::Absent(format!(
                "a shader of one's own is WGSL, which {} does not take: it needs a device of Vulkan, Metal, Direct3D 12 or OpenGL",
                self.info.id
            ))),
        }
    }
}

impl Device for Cuda {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn set_tenant(&mut self, tenant: &str) {
        self.programs.set_tenant(tenant);
    }

    fn run(&mut self, work: &Work, inputs: &[&[u32]], within: Duration) -> Result<Done, GpuError> {
        guarded(|| self.with_room(within, |device, within| device.run_once(work, inputs, within)))
    }

    fn run_kept(
        &mut self,
        program: Digest,
        inputs: &[&[u32]],
        within: Duration,
    ) -> Option<Result<Done, GpuError>> {
        let start = Instant::now();
        let done = guarded(|| {
            let outputs = self.run_again(program, inputs, within);
            Ok(outputs.and_then(|outputs| self.kept_with_room(start, outputs)))
        });
        done.unwrap_or_else(|error| Some(Err(error)))
    }
}

impl Repeat for Cuda {
    type Prepared = CudaPrepared;

    fn prepare(&mut self, kernel: &Kernel, inputs: &[&[u32]]) -> Result<CudaPrepared, GpuError> {
        guarded(|| self.ready_kernel(kernel, inputs))
    }

    fn repeat(
        &mut self,
        prepared: &CudaPrepared,
        times: u32,
        within: Duration,
    ) -> Result<Duration, GpuError> {
        guarded(|| {
            // What was copied for it before is not part of it.
            self.driver.wait(within)?;
            let start = Instant::now();
            for _ in 0..times {
                self.begin(prepared)?;
            }
            self.driver.wait(within)?;
            Ok(start.elapsed())
        })
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for CudaPrepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaPrepared")
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::matrix;
    use crate::tune::CANDIDATES;

    #[test]
    fn the_library_that_is_missing_is_named() {
        assert_eq!(missing([true; 3]), Ok(()));
        for (present, named) in [
            ([false, true, true], "libcuda"),
            ([false; 3], "libcuda"),
            ([true, false, true], "libnvrtc"),
            ([true, false, false], "libnvrtc"),
            ([true, true, false], "libcublas"),
        ] {
            let why = missing(present).unwrap_err().to_string();
            assert!(why.contains(named), "{why}");
        }
    }

    /// With a driver at hand or without: nothing panics, and what is not there is said.
    #[test]
    fn a_device_that_is_not_there_is_absent() {
        let refused = Cuda::open("cuda-999").unwrap_err();
        assert!(
            matches!(refused, GpuError::Absent(_) | GpuError::Lost(_)),
            "{refused}"
        );
        if let Err(why) = cuda_devices() {
            assert!(!why.is_empty());
        }
    }

    #[test]
    fn a_panic_within_a_library_is_a_lost_device() {
        let lost = guarded::<()>(|| panic!("Missing symbol cuFoo"));
        let Err(GpuError::Lost(why)) = &lost else {
            panic!("{lost:?}")
        };
        assert!(why.contains("cuFoo"), "{why}");
    }

    #[test]
    fn what_is_passed_to_a_kernel_has_room() {
        for kernel in matrix() {
            for pass in kernel.passes(CANDIDATES[0]).unwrap() {
                assert!(
                    pass.parameters.len() <= MOST_PARAMETERS && pass.bindings.len() <= MOST_BUFFERS,
                    "{pass:?}"
                );
            }
        }
    }
}
