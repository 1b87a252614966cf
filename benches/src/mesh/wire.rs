//! What a link on this machine takes by itself: bare quinn to another process, for studies of what is put on top.

use super::quinn::Quinn;
use super::serve::Serve;
use super::stage::{Stage, Thread};
use super::{Setting, trust};
use anyhow::{Result, ensure};
use bytes::Bytes;
use karman_infer::Named;
use karman_study::machine::beside_us;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Runtime;

/// Another process that answers.
pub(crate) struct Wire {
    other: Arc<Quinn>,
    setting: Setting,
}

impl Wire {
    /// One that takes bytes and says how many.
    pub(crate) fn start() -> Result<Self> {
        Self::to(Serve::QuinnTensor, |_| Ok(()))
    }

    /// One that runs this stage on the bytes of inputs like these, one after the other, and sends back those of its outputs.
    pub(crate) fn to_stage(onnx: &[u8], inputs: &Named, thread: Thread) -> Result<Self> {
        let leave = |setting: &Setting| Stage::leave(setting.folder(), onnx, inputs, thread);
        Self::to(Serve::QuinnStage, leave)
    }

    fn to(what: Serve, prepare: impl FnOnce(&Setting) -> Result<()>) -> Result<Self> {
        let setting = Setting {
            karman: beside_us("karman")?,
            tiny: "target/guests/tiny.wasm".into(),
            quick: false,
            runtime: Runtime::new()?,
            folder: tempfile::tempdir()?,
        };
        trust::make(setting.folder())?;
        prepare(&setting)?;
        let other = setting.runtime.block_on(Quinn::start(&setting, what))?;
        Ok(Self {
            other: Arc::new(other),
            setting,
        })
    }

    /// Seconds until the other side has these bytes, and this one its word.
    pub(crate) fn send(&self, bytes: Bytes) -> Result<f64> {
        let expected = bytes.len().to_string();
        let (said, took) = self.ask(move || Ok(vec![bytes]))?;
        ensure!(said == expected, "answered {said:?}");
        Ok(took)
    }

    /// What the other side answers to what `make` gives, and how many seconds both took: as a task of the runtime like any handler's.
    pub(crate) fn ask(
        &self,
        make: impl FnOnce() -> Result<Vec<Bytes>> + Send + 'static,
    ) -> Result<(Bytes, f64)> {
        let other = self.other.clone();
        let asked = self.setting.runtime.spawn(async move {
            let started = Instant::now();
            let answer = other.send(&mut make()?).await?;
            Ok((answer, started.elapsed().as_secs_f64()))
        });
        self.setting.runtime.block_on(asked)?
    }
}
