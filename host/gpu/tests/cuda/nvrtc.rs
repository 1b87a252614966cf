//! NVIDIA's compiler, where `KARMAN_NVRTC` names it or the system finds it.

use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};
use libloading::Library;
use std::path::Path;

/// The compiler, loaded.
pub(crate) struct Nvrtc {
    /// Kept for as long as it is used: a library that is loaded by the same name then is this one.
    _libraries: Vec<Library>,
}

/// Loads it, or says how it is had.
#[expect(unsafe_code, reason = "loading a library runs its code")]
pub(crate) fn load() -> Result<Nvrtc, String> {
    let mut libraries = Vec::new();
    if let Some(file) = std::env::var_os("KARMAN_NVRTC") {
        let file = Path::new(&file);
        let failed = |error: &dyn std::fmt::Display| format!("KARMAN_NVRTC is {}: {error}", file.display());
        let folder = file.parent().unwrap_or_else(|| Path::new("."));
        // It looks for what comes with it by name only, and in no folder of its own.
        let beside = std::fs::read_dir(folder).map_err(|error| failed(&error))?;
        let beside = beside
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().and_then(|name| name.to_str());
                name.is_some_and(|name| name.starts_with("libnvrtc-builtins.so"))
            });
        for library in beside.chain([file.to_owned()]) {
            // SAFETY: these are libraries of NVIDIA's, made to be loaded so.
            libraries.push(unsafe { Library::new(&library) }.map_err(|error| failed(&error))?);
        }
    }
    // SAFETY: as above.
    match unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        true => Ok(Nvrtc {
            _libraries: libraries,
        }),
        false => Err(
            "no NVRTC: `cargo xtask setup --nvrtc` has it, or KARMAN_NVRTC names the libnvrtc.so.12 of PyPI's nvidia-cuda-nvrtc-cu12"
                .into(),
        ),
    }
}

impl Nvrtc {
    /// Compiles a text for a target, or fails with what the compiler says.
    pub(crate) fn compile(&self, name: &str, text: &str, target: &'static str) {
        let options = CompileOptions {
            arch: Some(target),
            ..CompileOptions::default()
        };
        match compile_ptx_with_opts(text, options) {
            Ok(_) => {}
            Err(CompileError::CompileError { log, .. }) => {
                panic!("{name} for {target}:\n{}\n{text}", log.to_string_lossy())
            }
            Err(other) => panic!("{name} for {target}: {other:?}"),
        }
    }
}
