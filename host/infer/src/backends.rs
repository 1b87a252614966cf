use crate::probe::probe_onnxruntime;
use crate::{
    Backend, BackendName, InferError, LoadOptions, Model, ModelLimits, OnnxRuntime, SearchPlaces, Tract,
};
use karman_gpu::child::{ChildError, ask};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Which ONNX Runtime to use.
#[derive(Clone, Debug)]
pub enum UseOnnxRuntime {
    /// The first that works of those found in these places.
    Find(SearchPlaces),
    /// This library (the configuration, or `KARMAN_ONNXRUNTIME`), or none.
    At(PathBuf),
    /// None: tract runs everything.
    Off,
}

/// The options of [`Backends`].
#[derive(Clone, Debug)]
pub struct BackendOptions {
    /// Which ONNX Runtime to use. Default: none.
    pub onnxruntime: UseOnnxRuntime,
    /// The program that is run as `PROGRAM probe-onnxruntime PATH` before a library is loaded here, and as
    /// `PROGRAM probe-model` before a foreign model is. `None` loads at once; a broken library or a hostile model then takes
    /// this process with it. Default `None`.
    pub probe: Option<PathBuf>,
    /// How long a probe may take. Default 10 s.
    pub probe_timeout: Duration,
}

impl Default for BackendOptions {
    fn default() -> Self {
        Self {
            onnxruntime: UseOnnxRuntime::Off,
            probe: None,
            probe_timeout: Duration::from_secs(10),
        }
    }
}

/// What this process runs models with: tract always, ONNX Runtime when its library is there. Make one and share it.
#[derive(Debug)]
pub struct Backends {
    tract: Tract,
    onnxruntime: Result<OnnxRuntime, InferError>,
    probe: Option<PathBuf>,
    probe_timeout: Duration,
}

impl Backends {
    /// Looks for what is there. Blocks for about 0.1 s a library that is probed.
    pub fn detect(options: &BackendOptions) -> Self {
        Self {
            tract: Tract,
            onnxruntime: find(options),
            probe: options.probe.clone(),
            probe_timeout: options.probe_timeout,
        }
    }

    /// The back-end of this name; without a name, the fastest that is there.
    ///
    /// # Errors
    /// [`InferError::Unavailable`], with the reason found by [`Backends::detect`].
    pub fn get(&self, name: Option<BackendName>) -> Result<&dyn Backend, InferError> {
        match (name, &self.onnxruntime) {
            (Some(BackendName::OnnxRuntime) | None, Ok(runtime)) => Ok(runtime),
            (Some(BackendName::OnnxRuntime), Err(error)) => Err(error.clone()),
            (Some(BackendName::Tract), _) | (None, Err(_)) => Ok(&self.tract),
        }
    }

    /// Each back-end, or why it is not there: for `karman doctor`.
    pub fn all(&self) -> [(BackendName, Result<&dyn Backend, InferError>); 2] {
        [BackendName::OnnxRuntime, BackendName::Tract].map(|name| (name, self.get(Some(name))))
    }

    /// Loads a model that the operator trusts: one from a digest-checked blob.
    ///
    /// # Errors
    /// [`InferError::Unavailable`] and those of [`Backend::load`].
    pub fn load(&self, model: &[u8], options: &LoadOptions) -> Result<Arc<dyn Model>, InferError> {
        self.get(options.backend)?.load(model, options)
    }

    /// Loads a model that anyone may have made, such as the raw bytes that a guest gives: on tract only, whatever back-end the
    /// options name, and after a trial in a child process where there is a probe program.
    ///
    /// # Errors
    /// [`InferError::Rehearsal`] when the trial fails, and those of [`Backend::load`].
    pub fn load_foreign(&self, model: &[u8], options: &LoadOptions) -> Result<Arc<dyn Model>, InferError> {
        self.rehearse(model, &options.limits)?;
        self.tract.load(model, options)
    }

    /// Tries a model that anyone may have made in a child process, where there is a probe program.
    ///
    /// # Errors
    /// [`InferError::Rehearsal`] when the trial fails, and what is refused before: [`InferError::Malformed`],
    /// [`InferError::Limit`], [`InferError::ExternalData`].
    pub fn rehearse(&self, model: &[u8], limits: &ModelLimits) -> Result<(), InferError> {
        // Cheap, and its errors are the best: before a process is started.
        crate::outline::Outline::read(model, limits)?;
        if let Some(program) = &self.probe {
            let mut command = Command::new(program);
            command.arg("probe-model");
            ask(command, model, self.probe_timeout).map_err(|error| InferError::Rehearsal {
                reason: error.to_string(),
            })?;
        }
        Ok(())
    }
}

fn find(options: &BackendOptions) -> Result<OnnxRuntime, InferError> {
    let unavailable = |reason: String| InferError::Unavailable {
        backend: BackendName::OnnxRuntime,
        reason,
    };
    let paths = match &options.onnxruntime {
        UseOnnxRuntime::Off => return Err(unavailable("it is switched off".into())),
        UseOnnxRuntime::At(path) if !path.exists() => {
            return Err(unavailable(format!(
                "there is no {}: correct the path",
                path.display()
            )));
        }
        UseOnnxRuntime::At(path) => vec![path.clone()],
        UseOnnxRuntime::Find(places) => places.find(),
    };
    let mut reasons = Vec::new();
    for path in &paths {
        let version = match &options.probe {
            Some(program) => probe(program, path, options.probe_timeout).map_err(|e| e.to_string()),
            None => probe_onnxruntime(path).map_err(|e| e.to_string()),
        };
        match version {
            Ok(version) => {
                tracing::debug!(path = %path.display(), version, "found ONNX Runtime");
                return OnnxRuntime::load(path);
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), error, "this ONNX Runtime does not work");
                reasons.push(format!("{}: {error}", path.display()));
            }
        }
    }
    Err(unavailable(match reasons.is_empty() {
        true => {
            "no library was found: `pip install onnxruntime`, or give the path of libonnxruntime.so".into()
        }
        false => reasons.join("; "),
    }))
}

fn probe(program: &Path, library: &Path, timeout: Duration) -> Result<String, ChildError> {
    let mut command = Command::new(program);
    command.arg("probe-onnxruntime").arg(library);
    let said = ask(command, &[], timeout)?;
    Ok(said.lines().next().unwrap_or_default().trim().to_owned())
}
