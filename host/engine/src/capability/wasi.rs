//! The standard WASI interfaces, 0.2 and 0.3: clocks, randomness, files, command line, sockets, HTTP.
//!
//! Linked for everyone, because language runtimes import them whether they use them or not; what a plugin was not granted
//! is simply not there: no folder, no variable, no address, and a clock of one millisecond.

use crate::capability::logging::LogLines;
use crate::host::{Host, PluginInfo};
use karman_types::{Access, Grant, TaskError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wasmtime::component::Linker;
use wasmtime_wasi::{
    FsPerms, HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView,
};
use wasmtime_wasi_http::{WasiHttpCtxView, WasiHttpView};

/// The resolution of the clock without the grant `clock:fine`.
const COARSE: Duration = Duration::from_millis(1);

pub(crate) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    wasmtime_wasi::p3::add_to_linker(linker)?;
    wasmtime_wasi_http::p3::add_to_linker(linker)
}

/// A context with what the plugin was granted and nothing else.
///
/// # Errors
/// When a granted folder cannot be opened.
pub(crate) fn prepare(plugin: &PluginInfo) -> Result<WasiCtxBuilder, TaskError> {
    let mut builder = WasiCtxBuilder::new();
    builder
        .stdout(LogLines::new(&plugin.name, "stdout"))
        .stderr(LogLines::new(&plugin.name, "stderr"));
    builder.allow_tcp(false).allow_udp(false);
    if !plugin.grants.allows(&Grant::FineClock) {
        builder.monotonic_clock(CoarseClock(Instant::now()));
        builder.wall_clock(CoarseWallClock);
    }
    for grant in plugin.grants.iter() {
        match grant {
            Grant::Folder(path, access) => open_folder(&mut builder, &plugin.name, path, *access)?,
            Grant::Env(name) => {
                if let Ok(value) = std::env::var(name) {
                    builder.env(name, value);
                }
            }
            _ => {}
        }
    }
    Ok(builder)
}

fn open_folder(
    builder: &mut WasiCtxBuilder,
    plugin: &str,
    path: &str,
    access: Access,
) -> Result<(), TaskError> {
    let permissions = match access {
        Access::Read => FsPerms::ReadOnly,
        Access::ReadWrite => FsPerms::ReadWrite,
    };
    builder
        .preopened_dir(path, path, permissions)
        .map(|_| ())
        .map_err(|error| {
            TaskError::unavailable(format!(
                "folder `{path}`, granted to `{plugin}`, cannot be opened: {error}"
            ))
            .with_hint("make the folder, or revoke the grant")
        })
}

struct CoarseClock(Instant);

impl HostMonotonicClock for CoarseClock {
    fn resolution(&self) -> u64 {
        COARSE.as_nanos() as u64
    }

    fn now(&self) -> u64 {
        let elapsed = self.0.elapsed().as_nanos() as u64;
        elapsed - elapsed % self.resolution()
    }
}

/// The time of day: as fine as the other clock, or a plugin would measure with this one.
struct CoarseWallClock;

impl HostWallClock for CoarseWallClock {
    fn resolution(&self) -> Duration {
        COARSE
    }

    fn now(&self) -> Duration {
        // A clock that stands before 1970 is told as 1970.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Duration::from_millis(now.as_millis() as u64)
    }
}

impl Host {
    /// Made when first asked for: most calls of small plugins never do.
    fn wasi(&mut self) -> &mut WasiCtx {
        let plugin = &self.plugin;
        self.wasi.get_or_insert_with(|| {
            // Folders were opened when the call was prepared; without them nothing can fail here.
            prepare(plugin).map_or_else(|_| WasiCtxBuilder::new().build(), |mut builder| builder.build())
        })
    }
}

impl WasiView for Host {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi();
        let ctx = self.wasi.as_mut().expect("made by the line above");
        WasiCtxView {
            ctx,
            table: &mut self.table,
        }
    }
}

impl WasiHttpView for Host {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            ctx: &mut self.http,
            table: &mut self.table,
            hooks: &mut self.outgoing,
        }
    }
}
