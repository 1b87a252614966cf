//! A stage of a model as a program written for nothing else would run it: what comes over a wire are the bytes of its inputs, one after the
//! other, and what goes back are those of its outputs.

use anyhow::{Result, ensure};
use bytes::Bytes;
use karman_infer::{Backend, Model, Named};
use karman_tensor::{Shape, Tensor};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

const MODEL: &str = "stage.onnx";
const TERMS: &str = "stage.json";

/// It, and what both sides know of it.
pub(super) struct Stage {
    model: Arc<dyn Model>,
    terms: Terms,
}

#[derive(Deserialize, Serialize)]
struct Terms {
    shapes: Vec<Vec<u32>>,
    thread: Thread,
}

/// What becomes of the thread that a fragment runs on.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) enum Thread {
    /// What else it has to do waits: nobody has to be woken afterwards.
    Kept,
    /// Another one takes that over, as tokio's documentation has it.
    Replaced,
}

impl Thread {
    /// Both ways: which one is the faster depends on the fragment.
    pub(crate) const ALL: [Self; 2] = [Self::Kept, Self::Replaced];

    pub(crate) fn run<T>(self, step: impl FnOnce() -> T) -> T {
        match self {
            Self::Kept => step(),
            Self::Replaced => tokio::task::block_in_place(step),
        }
    }
}

impl Stage {
    /// Leaves it in a folder, for inputs like these, in its order.
    pub(super) fn leave(folder: &Path, onnx: &[u8], inputs: &Named, thread: Thread) -> Result<()> {
        let shapes = inputs.iter().map(|(_, tensor)| tensor.shape().dims().to_vec());
        let shapes = shapes.collect();
        let terms = serde_json::to_vec(&Terms { shapes, thread })?;
        std::fs::write(folder.join(MODEL), onnx)?;
        Ok(std::fs::write(folder.join(TERMS), terms)?)
    }

    /// The one that was left there.
    pub(super) fn load(folder: &Path) -> Result<Self> {
        let onnx = std::fs::read(folder.join(MODEL))?;
        Ok(Self {
            model: crate::infer::library()?.load(&onnx, &crate::infer::options(1)?)?,
            terms: serde_json::from_slice(&std::fs::read(folder.join(TERMS))?)?,
        })
    }

    /// Runs it on these bytes.
    pub(super) fn run(&self, mut body: Bytes) -> Result<Vec<Bytes>> {
        let inputs = self.model.inputs().iter().zip(&self.terms.shapes);
        let inputs = inputs.map(|(input, shape)| {
            let shape = Shape::new(shape)?;
            let bytes = Tensor::bytes_of(input.element, shape)?;
            ensure!(body.len() >= bytes, "{} is cut short", input.name);
            let tensor = Tensor::from_bytes(input.element, shape, body.split_to(bytes))?;
            Ok((input.name.clone(), tensor))
        });
        let inputs = inputs.collect::<Result<Named>>()?;
        let outputs = self.terms.thread.run(|| self.model.run(inputs))?;
        Ok(pieces(&outputs))
    }
}

/// The bytes of tensors, each shared with it.
pub(crate) fn pieces(tensors: &Named) -> Vec<Bytes> {
    tensors.iter().map(|(_, tensor)| tensor.to_bytes()).collect()
}
