//! Calls between two nodes against what carries calls elsewhere, encrypted on all sides, the other side a process of its own:
//! bare quinn (a new stream per call), gRPC (`tonic`), NATS request-reply; behind each of them the same tiny component on the
//! same engine.
//!
//! Keys: `call_rtt_vs_raw_quinn`, `call_rtt_vs_grpc`, `call_rtt_vs_nats` (p50 of a call with 1 KiB, one after the other),
//! `call_p50_us.NAME`, `call_p99_us.NAME`; `tensor_throughput_vs_raw_quinn` (256 MiB in one call to a native handler that
//! holds them in one buffer), `tensor_mb_per_s.NAME`, `tensor_cpu_s_per_gb.NAME` (both sides' processor time).

mod contender;
#[cfg(feature = "peers")]
mod grpc;
mod karman;
#[cfg(feature = "peers")]
mod nats;
mod quinn;
mod rtt;
mod serve;
mod stage;
mod tensor;
mod trust;
mod wire;

use anyhow::{Result, ensure};
use karman_study::machine::beside_us;
use karman_study::report::Report;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub(crate) use serve::{Serve, serve};
pub(crate) use stage::{Thread, pieces};
pub(crate) use wire::Wire;

/// Programs, guest, certificates, threads.
pub(crate) struct Setting {
    pub(crate) karman: PathBuf,
    pub(crate) tiny: PathBuf,
    pub(crate) quick: bool,
    pub(crate) runtime: Runtime,
    folder: TempDir,
}

pub(crate) fn run(quick: bool) -> Result<Report> {
    let tiny = std::path::absolute("target/guests/tiny.wasm")?;
    ensure!(
        tiny.exists(),
        "{} is missing; run `cargo xtask guests` first",
        tiny.display()
    );
    let setting = Setting {
        karman: beside_us("karman")?,
        tiny,
        quick,
        runtime: Runtime::new()?,
        folder: tempfile::tempdir()?,
    };
    trust::make(setting.folder())?;
    let mut report = Report::new("mesh");
    rtt::run(&setting, &mut report)?;
    tensor::run(&setting, &mut report)?;
    Ok(report)
}

impl Setting {
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) const fn blocks(&self) -> usize {
        if self.quick { 5 } else { 30 }
    }
}
