//! What this program runs as a child of itself, so that a crash is the child's.

use crate::app::App;
use crate::error::Worded;
use clap::Args;
use karman_infer::LoadOptions;
use karman_types::TaskError;
use std::io::Read;
use std::path::PathBuf;

/// `karman probe-onnxruntime`
#[derive(Args, Debug)]
pub(crate) struct ProbeOnnxruntime {
    /// The library
    path: PathBuf,
}

impl ProbeOnnxruntime {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        app.output
            .line(karman_infer::probe_onnxruntime(&self.path).map_err(Worded::worded)?)
    }
}

/// `karman probe-model`
pub(crate) fn model() -> Result<(), TaskError> {
    let options = LoadOptions::default();
    let mut bytes = Vec::new();
    let read = std::io::stdin()
        .lock()
        .take(options.limits.model.0.saturating_add(1))
        .read_to_end(&mut bytes);
    read.map_err(|error| TaskError::unavailable(format!("standard input cannot be read: {error}")))?;
    karman_infer::probe_model(&bytes, &options).map_err(Worded::worded)
}
