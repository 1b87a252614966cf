//! The engine against wasmtime: `wasmtime serve` of the same version over HTTP, wasmtime's own `InstancePre` in process.
//!
//! Keys: `http_rps_vs_wasmtime_serve.cN[.wasi03]` (requests per second, N connections), `http_p99_vs_wasmtime_serve.…`
//! (99th percentile of latency), `cold_start_vs_wasmtime_serve` (process start to first response, code precompiled),
//! `call_vs_bare_wasmtime` (p50 of instantiate + call + drop), `idle_node_resident`, `plugin_memory_idle`,
//! `instance_memory_live` (one more instance that waits in a host call), `honest_p99_excess` (what 1,000 hostile calls and a
//! spinning guest per core add to the p99 of honest calls), `memory_growth_by_hostile`. `.wasi03-shared` are the same rows
//! with 16 requests at once in one instance of theirs, which we do not do: one that traps takes the others with it.

mod call;
mod cold_start;
mod isolation;
mod memory;
pub(crate) mod server;
mod throughput;

use anyhow::{Result, bail};
use karman_study::machine::beside_us;
use karman_study::report::Report;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use call::context;

/// The version that we are built on and compare with.
const WASMTIME: &str = "48.";

/// Programs and guests of this study.
pub(crate) struct Setting {
    pub(crate) karman: PathBuf,
    pub(crate) wasmtime: Result<PathBuf, String>,
    pub(crate) guests: PathBuf,
    pub(crate) quick: bool,
}

pub(crate) fn run(quick: bool) -> Result<Report> {
    let setting = Setting {
        karman: beside_us("karman")?,
        wasmtime: find_wasmtime(),
        guests: PathBuf::from("target/guests"),
        quick,
    };
    let mut report = Report::new("engine");
    call::run(&setting, &mut report)?;
    memory::run(&setting, &mut report)?;
    cold_start::run(&setting, &mut report)?;
    isolation::run(&setting, &mut report)?;
    throughput::run(&setting, &mut report)?;
    Ok(report)
}

impl Setting {
    pub(crate) fn guest(&self, name: &str) -> Result<PathBuf> {
        let path = self.guests.join(format!("{name}.wasm"));
        if !path.exists() {
            bail!("{} is missing; run `cargo xtask guests` first", path.display());
        }
        Ok(path)
    }

    pub(crate) const fn blocks(&self) -> usize {
        if self.quick { 3 } else { 30 }
    }
}

/// `wasmtime` 48 from `WASMTIME`, from `target/tools`, or from the path.
pub(crate) fn find_wasmtime() -> Result<PathBuf, String> {
    let named = std::env::var_os("WASMTIME").map(PathBuf::from);
    let candidates = named.into_iter().chain([
        PathBuf::from("target/tools/bin/wasmtime"),
        PathBuf::from("wasmtime"),
    ]);
    for candidate in candidates {
        if version(&candidate).is_some_and(|version| version.starts_with(WASMTIME)) {
            return Ok(candidate);
        }
    }
    Err("no `wasmtime` 48 here: `cargo xtask bench engine` installs it".into())
}

fn version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    String::from_utf8(output.stdout)
        .ok()?
        .split_whitespace()
        .nth(1)
        .map(str::to_owned)
}
