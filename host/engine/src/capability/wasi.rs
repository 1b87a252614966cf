//! The standard WASI interfaces, 0.2 and 0.3: clocks, randomness, files, command line, sockets, HTTP.
//!
//! Linked for everyone, because language runtimes import them whether they use them or not; what a plugin was not granted
//! is simply not there: no folder, no variable, no address, and a clock of one millisecond.

use crate::capability::logging::LogLines;
use crate::host::{Host, PluginInfo};
use cap_primitives::ambient_authority;
use cap_primitives::fs::{open_ambient_dir, open_dir};
use karman_types::{Access, Grant, GrantSet, TaskError};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wasmtime::component::Linker;
use wasmtime_wasi::{
    FsPerms, HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView,
};
use wasmtime_wasi_http::{WasiHttpCtxView, WasiHttpView};

/// The resolution of the clock without the grant `clock:fine`.
const COARSE: Duration = Duration::from_millis(1);
/// Where the system names what this process holds open.
const HELD: &str = match cfg!(target_os = "linux") {
    true => "/proc/self/fd",
    false => "/dev/fd",
};

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
        .stdout(LogLines::new(plugin, "stdout"))
        .stderr(LogLines::new(plugin, "stderr"));
    builder.allow_tcp(false).allow_udp(false);
    if !plugin.grants.allows(&Grant::FineClock) {
        builder.monotonic_clock(CoarseClock(Instant::now()));
        builder.wall_clock(CoarseWallClock);
    }
    for folder in &plugin.folders {
        folder.open(&mut builder).map_err(|error| {
            let (path, plugin) = (&folder.path, &plugin.name);
            TaskError::unavailable(format!(
                "folder `{path}`, granted to `{plugin}`, cannot be opened: {error}"
            ))
            .with_hint("make the folder, or revoke the grant")
        })?;
    }
    for grant in plugin.grants.iter() {
        if let Grant::Env(name) = grant
            && let Ok(value) = std::env::var(name)
        {
            builder.env(name, value);
        }
    }
    Ok(builder)
}

/// A folder that a plugin sees.
#[derive(Debug)]
pub(crate) struct Folder {
    path: String,
    access: Access,
    /// The folder that the operator allowed, in which it lies.
    root: String,
}

impl Folder {
    /// Those that a plugin holds, of those that the operator allows.
    pub(crate) fn of(grants: &GrantSet, allowed: &GrantSet) -> Vec<Self> {
        let folders = grants.iter().filter_map(|grant| match grant {
            Grant::Folder(path, access) => Some(Self {
                path: path.clone(),
                access: *access,
                root: allowed.root_of(grant).unwrap_or(path).to_owned(),
            }),
            _ => None,
        });
        folders.collect()
    }

    /// Links that lead to the root are the operator's and are followed. Below it they may be the plugin's own: none leads out of it.
    fn open(&self, builder: &mut WasiCtxBuilder) -> wasmtime::Result<()> {
        let permissions = match self.access {
            Access::Read => FsPerms::ReadOnly,
            Access::ReadWrite => FsPerms::ReadWrite,
        };
        let (path, root) = (Path::new(&self.path), Path::new(&self.root));
        let below = path.strip_prefix(root).unwrap_or_else(|_| Path::new(""));
        if below.as_os_str().is_empty() {
            builder.preopened_dir(path, &self.path, permissions)?;
            return Ok(());
        }
        let opened = open_dir(&open_ambient_dir(root, ambient_authority())?, below)?;
        // The builder takes paths only. By this one it gets what was opened, wherever the path leads by now.
        let held = format!("{HELD}/{}", opened.as_raw_fd());
        builder.preopened_dir(held, &self.path, permissions)?;
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn no_link_in_a_folder_that_was_allowed_leads_out_of_it() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for name in ["jail/inner", "secrets"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        symlink("../secrets", at("jail/out")).unwrap();
        symlink(at("secrets"), at("jail/away")).unwrap();
        symlink("inner", at("jail/in")).unwrap();
        symlink("jail", at("operators")).unwrap();
        let grant = |name: &str| -> Grant { format!("fs:{}:rw", at(name).display()).parse().unwrap() };
        let opens = |asked: &str, allowed: &[&str]| {
            let (asked, allowed) = (
                GrantSet::new([grant(asked)]),
                allowed.iter().map(|name| grant(name)),
            );
            let allowed = GrantSet::new(allowed);
            let folders = Folder::of(&asked.intersection(&allowed), &allowed);
            assert_eq!(folders.len(), 1);
            folders[0].open(&mut WasiCtxBuilder::new()).is_ok()
        };
        for asked in ["jail/out", "jail/away", "jail/missing"] {
            assert!(!opens(asked, &["jail"]), "{asked}");
            assert!(!opens(asked, &["jail", asked]), "{asked}");
        }
        for asked in ["jail", "jail/inner", "jail/in"] {
            assert!(opens(asked, &["jail"]), "{asked}");
        }
        assert!(opens("operators", &["operators"]));
        assert!(opens("operators/inner", &["operators"]));
        // The operator's own word for a link is no plugin's.
        assert!(opens("jail/out", &["jail/out"]));
    }
}
