//! The gateway against what people put there instead: `wasmtime serve` for plugins; for the same ONNX model by the same protocol
//! (Open Inference Protocol v2, JSON over HTTP/1.1) KServe's model server, Ray Serve, and axum over the same pool of ONNX Runtime
//! sessions with nothing between.
//!
//! Keys: `wasm_rps_vs_wasmtime_serve.cN` (requests per second at N connections, a plugin on a route of the gateway),
//! `wasm_p99_vs_wasmtime_serve.cN`; `infer_rps_vs_kserve.cN`, `infer_rps_vs_ray_serve.cN`, `infer_rps_vs_plain_axum.cN`,
//! `infer_rps.NAME.cN`, `infer_p99_us.NAME.cN` (medians over blocks); `memory_mib.NAME` (proportional set sizes of all its processes
//! after the load). Each peer runs with the one of its settings (processes, threads) that is fastest at that number of connections.
//! The model is `digits-m` in float32 on one image; every contender's answer is compared with ours before it is measured.

mod infer;
mod peers;
mod plain;
mod wasm;

pub(crate) use plain::{Plain, serve as serve_plain};

use crate::engine;
use anyhow::{Result, ensure};
use karman_study::machine::beside_us;
use karman_study::pairs::{Pair, median};
use karman_study::report::Report;
use std::path::PathBuf;
use tempfile::TempDir;

/// Connections at once.
const CONNECTIONS: [u32; 3] = [1, 8, 64];
/// The model that everybody serves, and its file.
const MODEL: &str = "digits-m";
const FILE: &str = "tests/models/digits-m.onnx";

/// Programs and files of this study.
struct Setting {
    karman: PathBuf,
    wasmtime: Result<PathBuf, String>,
    onnxruntime: PathBuf,
    model: PathBuf,
    quick: bool,
    folder: TempDir,
}

pub(crate) fn run(quick: bool) -> Result<Report> {
    let onnxruntime = std::env::var_os("KARMAN_ONNXRUNTIME").map(PathBuf::from);
    let onnxruntime = onnxruntime.unwrap_or_default();
    ensure!(
        onnxruntime.exists(),
        "no ONNX Runtime at {}: `cargo xtask bench gateway` installs it and says where it is in KARMAN_ONNXRUNTIME",
        onnxruntime.display()
    );
    let setting = Setting {
        karman: beside_us("karman")?,
        wasmtime: engine::find_wasmtime(),
        onnxruntime,
        model: std::path::absolute(FILE)?,
        quick,
        folder: tempfile::tempdir()?,
    };
    let mut report = Report::new("gateway");
    report.register(cells());
    infer::run(&setting, &mut report)?;
    wasm::run(&setting, &mut report)?;
    Ok(report)
}

/// The cells of this study.
fn cells() -> impl Iterator<Item = String> {
    let keys = infer::PEERS.map(|peer| peer.key).into_iter().chain([wasm::KEY]);
    keys.flat_map(|key| CONNECTIONS.map(|connections| format!("{key}.c{connections}")))
}

impl Setting {
    const fn blocks(&self) -> usize {
        if self.quick { 3 } else { 30 }
    }
}

/// Blocks of ours and theirs, in random order within each pair: rates and 99th percentiles.
struct Blocks {
    rates: Vec<Pair>,
    p99s: Vec<Pair>,
}

impl Blocks {
    fn measure(
        blocks: usize,
        ours: impl Fn() -> Result<crate::wrk::Load>,
        theirs: impl Fn() -> Result<crate::wrk::Load>,
    ) -> Result<Self> {
        let mut all = Self {
            rates: Vec::new(),
            p99s: Vec::new(),
        };
        for _ in 0..blocks {
            let (ours, theirs) = match fastrand::bool() {
                true => {
                    let ours = ours()?;
                    (ours, theirs()?)
                }
                false => {
                    let theirs = theirs()?;
                    (ours()?, theirs)
                }
            };
            let pair = |ours, theirs| Pair { ours, theirs };
            all.rates.push(pair(ours.rate, theirs.rate));
            all.p99s.push(pair(ours.p99_us, theirs.p99_us));
        }
        Ok(all)
    }
}

fn median_of(pairs: &[Pair], which: fn(&Pair) -> f64) -> f64 {
    median(pairs.iter().map(which).collect())
}
