//! `karman gpu`: what devices there are, whether they are right, and how fast.

mod bench;
mod check;
mod list;
mod serve;

pub(crate) use serve::{ServeGpu, probe};

use crate::app::App;
use clap::{Args, Subcommand};
use karman_gpu::DeviceInfo;
use karman_gpu::find::{Found, MOST_PROBE, find};
use karman_types::TaskError;
use std::path::PathBuf;
use std::process::Command;

/// `karman gpu`
#[derive(Args, Debug)]
pub(crate) struct Gpu {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the devices, and say why others are not there
    #[command(after_help = "Examples:\n  karman gpu list\n  karman gpu list --json")]
    List(list::List),
    /// Run every kernel on a device and compare with the same in double precision
    #[command(after_help = "Examples:\n  karman gpu check\n  karman gpu check --device vulkan-0 --json")]
    Check(check::Check),
    /// Measure what a device copies and computes in a second
    #[command(after_help = "Examples:\n  karman gpu bench\n  karman gpu bench --device vulkan-0 --tune")]
    Bench(bench::Bench),
}

impl Gpu {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        match &self.verb {
            Verb::List(verb) => verb.run(app),
            Verb::Check(verb) => verb.run(app),
            Verb::Bench(verb) => verb.run(app),
        }
    }
}

/// What the machine has; its drivers are asked by a child of this program.
fn found(app: &App) -> Result<Found, TaskError> {
    let _progress = app.progress("asking drivers");
    let mut probe = Command::new(program()?);
    probe.arg("probe-gpu");
    Ok(find(probe, MOST_PROBE))
}

fn program() -> Result<PathBuf, TaskError> {
    std::env::current_exe()
        .map_err(|error| TaskError::internal(format!("this program cannot be found: {error}")))
}

/// The devices that were asked for: the named one, or all.
///
/// # Errors
/// `unavailable` when the named one is not there, with why.
fn chosen(found: &Found, name: Option<&str>) -> Result<Vec<DeviceInfo>, TaskError> {
    let Some(name) = name else {
        return Ok(found.devices.clone());
    };
    if let Some(device) = found.devices.iter().find(|device| device.id == name) {
        return Ok(vec![device.clone()]);
    }
    let api = name.split('-').next().unwrap_or_default();
    let why = found
        .absent
        .iter()
        .find(|absent| absent.what == api || absent.what == "gpu");
    let why = why.map_or_else(String::new, |absent| format!(": {}", absent.why));
    Err(
        TaskError::unavailable(format!("this machine has no device `{name}`{why}"))
            .with_hint("`karman gpu list` shows what it has"),
    )
}

/// Where the shapes of tiles are kept that were measured here.
fn tiles(app: &App) -> PathBuf {
    app.places.cache.join("gpu-tiles.json")
}
