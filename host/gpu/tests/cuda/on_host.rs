//! Runs passes on the processor: their CUDA C++ is compiled by the C++ compiler of the system, with `on_host.h` in place of CUDA.

use karman_gpu::{Pass, Words};
use libloading::Library;
use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt::Write;
use std::process::Command;

/// All passes, compiled.
pub(crate) struct Host {
    library: Library,
    /// The number of each text.
    numbers: HashMap<String, usize>,
    /// Where the library is.
    _folder: tempfile::TempDir,
}

type Run = unsafe extern "C" fn(*const u32, *const *mut u32, *const u32, *const u32, c_int) -> c_int;

/// Words behind each buffer that no kernel may write, and that read as NaN.
const GUARD: usize = 64;
const GUARDED: u32 = u32::MAX;

impl Host {
    /// Compiles these texts, or says why not.
    #[expect(unsafe_code, reason = "loading a library runs its code")]
    pub(crate) fn build(texts: &[(&'static str, String)]) -> Result<Self, String> {
        if !cfg!(target_os = "linux") {
            return Err("shared memory is told apart by the linker of Linux".into());
        }
        let folder = tempfile::tempdir().unwrap();
        let (source, compiled) = (
            folder.path().join("kernels.cpp"),
            folder.path().join("kernels.so"),
        );
        std::fs::write(&source, program(texts)).unwrap();
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".into());
        let built = Command::new(&compiler)
            // With checks of the stack it takes a jump from one to another for an attack.
            .args(["-std=c++17", "-O2", "-U_FORTIFY_SOURCE", "-shared", "-fPIC", "-w"])
            .args(["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda"), "-o"])
            .args([&compiled, &source])
            .output();
        let built =
            built.map_err(|error| format!("no C++ compiler `{compiler}` ({error}); CXX names another"))?;
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        // SAFETY: it is what was compiled just now, and loading it runs nothing.
        let library = unsafe { Library::new(&compiled) }.unwrap();
        let numbers = texts.iter().enumerate();
        Ok(Self {
            library,
            numbers: numbers
                .map(|(number, (_, text))| (text.clone(), number))
                .collect(),
            _folder: folder,
        })
    }

    /// Runs one pass on the buffers of its kernel, the threads of a block in turn or in reverse.
    #[expect(unsafe_code, reason = "the kernels are C++")]
    pub(crate) fn run(&self, pass: &Pass, buffers: &mut [Words], backwards: bool) {
        let number = self.numbers[&pass.cuda()];
        for buffer in buffers.iter_mut() {
            buffer.resize(buffer.len() + GUARD, GUARDED);
        }
        let bound: Vec<*mut u32> = pass
            .bindings
            .iter()
            .map(|binding| buffers[*binding].as_mut_ptr())
            .collect();
        // SAFETY: the function has this type; its parameters and buffers are as long as the text asserts. What it reads and writes is
        // what is tested, with room behind each buffer for small mistakes. It runs on this thread alone, as its state wants: each
        // test loads a library of its own.
        let met = unsafe {
            let run = self
                .library
                .get::<Run>(format!("run_{number}\0").as_bytes())
                .unwrap();
            run(
                pass.parameters.as_ptr(),
                bound.as_ptr(),
                pass.workgroups.as_ptr(),
                pass.threads.as_ptr(),
                c_int::from(backwards),
            )
        };
        assert_eq!(met, 0, "threads of `{}` miss each other at barriers", pass.name);
        for buffer in buffers.iter_mut() {
            let length = buffer.len() - GUARD;
            let guard = buffer.split_off(length);
            assert!(
                guard.iter().all(|word| *word == GUARDED),
                "`{}` writes beyond a buffer",
                pass.name
            );
        }
    }
}

/// One C++ program of all texts, each in a namespace of its own.
fn program(texts: &[(&'static str, String)]) -> String {
    let mut program = "#include \"on_host.h\"\n".to_owned();
    for (number, (_, text)) in texts.iter().enumerate() {
        // A `String` takes all that is written to it.
        let _ = writeln!(
            program,
            "namespace karman_{number} {{\n#define kernel kernel_{number}\n{text}#undef kernel\n}}\n\
             extern \"C\" int run_{number}(const void *parameters, const void *buffers, const unsigned *grid, \
             const unsigned *block, int backwards) {{\n    return on_host::launch(karman_{number}::kernel_{number}, \
             parameters, buffers, grid, block, backwards);\n}}"
        );
    }
    program
}
