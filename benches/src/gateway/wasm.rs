//! A plugin on a route of the gateway, and the same component behind `wasmtime serve`.

use super::peers::{Peer, Running};
use super::{Blocks, CONNECTIONS, Setting};
use crate::engine::server::Contender;
use crate::wrk;
use anyhow::{Context, Result, ensure};
use karman_study::report::{Report, Target};
use std::path::PathBuf;

pub(super) const KEY: &str = "wasm_rps_vs_wasmtime_serve";
const GUEST: &str = "hello-http02";

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    for connections in CONNECTIONS {
        let cell = |key: &str| format!("{key}.c{connections}");
        match measure(setting, connections) {
            Ok(Blocks { rates, p99s }) => {
                report.ratio(&cell(KEY), rates, Target::AtLeast(1.0));
                report.ratio(&cell("wasm_p99_vs_wasmtime_serve"), p99s, Target::Shown);
            }
            Err(reason) => report.void(&cell(KEY), format!("{reason:#}")),
        }
    }
    Ok(())
}

fn measure(setting: &Setting, connections: u32) -> Result<Blocks> {
    let wasmtime = setting.wasmtime.as_ref();
    let wasmtime = wasmtime.map_err(|reason| anyhow::anyhow!("{reason}"))?;
    let component = PathBuf::from(format!("target/guests/{GUEST}.wasm"));
    ensure!(
        component.exists(),
        "{} is missing; run `cargo xtask guests` first",
        component.display()
    );
    let ours = Running::start(setting, &Peer::Karman)?;
    ours.deploy(setting, &component)?;
    let folder = tempfile::tempdir()?;
    let (theirs, _) = Contender::wasmtime(wasmtime, &component, folder.path(), None)?
        .start()
        .context("wasmtime serve")?;
    let (ours, theirs) = (
        format!("http://{}/http/{GUEST}/", ours.address),
        format!("http://{}/", theirs.address),
    );
    let seconds = if setting.quick { 1 } else { 2 };
    for url in [&ours, &theirs] {
        wrk::load(url, connections, 1, None)?;
    }
    Blocks::measure(
        setting.blocks(),
        || wrk::load(&ours, connections, seconds, None),
        || wrk::load(&theirs, connections, seconds, None),
    )
}
