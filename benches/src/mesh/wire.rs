//! What a link on this machine takes by itself: bare quinn to another process, for studies of what is put on top.

use super::contender::{Contender, times};
use super::quinn::Quinn;
use super::serve::Serve;
use super::{Setting, trust};
use anyhow::Result;
use bytes::Bytes;
use karman_study::machine::beside_us;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Another process that takes bytes and says how many.
pub(crate) struct Wire {
    contender: Arc<dyn Contender>,
    setting: Setting,
}

impl Wire {
    pub(crate) fn start() -> Result<Self> {
        let setting = Setting {
            karman: beside_us("karman")?,
            tiny: "target/guests/tiny.wasm".into(),
            quick: false,
            runtime: Runtime::new()?,
            folder: tempfile::tempdir()?,
        };
        trust::make(setting.folder())?;
        let contender = setting
            .runtime
            .block_on(Quinn::start(&setting, Serve::QuinnTensor))?;
        Ok(Self {
            contender: Arc::new(contender),
            setting,
        })
    }

    /// Seconds until the other side has these bytes, and this one its word.
    pub(crate) fn send(&self, bytes: Bytes) -> Result<f64> {
        let took = self
            .setting
            .runtime
            .block_on(times(self.contender.clone(), bytes, 1))?;
        Ok(took[0])
    }
}
