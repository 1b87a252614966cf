//! What a child process tries, because it could end the process that tries it: a driver, or a model from outside.

use crate::{Backend, BackendName, InferError, LoadOptions, OnnxRuntime, Tract};
use karman_tensor::Tensor;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::path::Path;

/// Loads the ONNX Runtime at this path in this process and gives its version. For the child: what
/// `karman probe-onnxruntime PATH` runs and prints.
///
/// # Errors
/// [`InferError::Unavailable`].
pub fn probe_onnxruntime(path: &Path) -> Result<String, InferError> {
    Ok(OnnxRuntime::load(path)?.version().to_owned())
}

/// Loads a model with tract and runs it once on zeros, in at most this much memory. For the child: what
/// `karman probe-model` runs on its standard input. Never call it elsewhere: it bounds the address space of the process.
///
/// # Errors
/// Those of [`Backend::load`] and [`Model::run`](crate::Model::run); it may also never return.
pub fn probe_model(model: &[u8], options: &LoadOptions) -> Result<(), InferError> {
    // Room for the program itself and the large stack besides.
    let limits = &options.limits;
    let room = limits.run.0 + 8 * (limits.model.0 + limits.constants.0) + (1 << 30);
    let bound = Rlimit {
        current: Some(room),
        maximum: Some(room),
    };
    setrlimit(Resource::As, bound).map_err(|error| InferError::Unavailable {
        backend: BackendName::Tract,
        reason: format!("the memory of the trial could not be bounded: {error}"),
    })?;
    let model = Tract.load(model, options)?;
    let zeros = model.inputs().iter().map(|info| {
        let shape = info.shape_with(Some(1)).unwrap_or_default();
        let bytes = Tensor::bytes_of(info.element, shape)
            .ok()
            .filter(|n| *n as u64 <= limits.tensor.0)?;
        let tensor = Tensor::new(info.element, shape, &vec![0; bytes]).ok()?;
        Some((info.name.clone(), tensor))
    });
    match zeros.collect::<Option<Vec<_>>>() {
        // Zeros need not make sense to the model, but must not break anything.
        Some(zeros) => match model.run(zeros) {
            Err(error @ (InferError::Panicked { .. } | InferError::Limit { .. })) => Err(error),
            _ => Ok(()),
        },
        None => Ok(()),
    }
}
