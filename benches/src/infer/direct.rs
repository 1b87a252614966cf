//! ONNX Runtime without Karman: a session with the options that Karman gives it, called where the data lie.

use anyhow::{Context, Result, anyhow};
use karman_infer::OnnxRuntime;
use ort::session::Session;
use ort::session::builder::SessionBuilder;
use ort::value::TensorRef;

/// A model, ready to be called.
pub(super) struct Direct {
    session: Session,
    input: String,
}

impl Direct {
    pub(super) fn load(library: &OnnxRuntime, onnx: &[u8], threads: usize) -> Result<Self> {
        let refused = |error: ort::Error<SessionBuilder>| anyhow!("{error}");
        let session = Session::builder(library.environment())?
            .with_intra_threads(threads)
            .map_err(refused)?
            .with_inter_threads(1)
            .map_err(refused)?
            .with_config_entry("session.intra_op.allow_spinning", "0")
            .map_err(refused)?
            .with_config_entry("session.load_model_format", "ONNX")
            .map_err(refused)?
            .commit_from_memory(onnx)?;
        let inputs = session.inputs();
        let input = inputs.first().context("a model has an input")?.name().to_owned();
        Ok(Self { session, input })
    }

    /// Runs it on elements in this shape; `read` sees the first output where the library has put it.
    pub(super) fn run<T>(
        &mut self,
        shape: &[i64],
        elements: &[f32],
        read: impl FnOnce(&[f32]) -> T,
    ) -> Result<T> {
        let tensor = TensorRef::from_array_view((shape.to_vec(), elements))?;
        let outputs = self.session.run(vec![(self.input.as_str(), tensor)])?;
        let (_, elements) = outputs[0].try_extract_tensor::<f32>()?;
        Ok(read(elements))
    }
}
