use super::server::Contender;
use super::{Setting, call};
use anyhow::{Context, Result, ensure};
use karman_engine::{Engine, EngineOptions, Plugin};
use karman_study::machine::memory_of;
use karman_study::report::{Report, Target};
use karman_types::{GrantSet, Manifest, TaskRequest};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: f64 = (1 << 20) as f64;
/// Different plugins that are loaded to see what one costs.
const PLUGINS: usize = 100;
/// Instances that live at once to see what one costs.
const INSTANCES: usize = 50;

/// What an idle node, a loaded plugin and a serving process hold.
pub(crate) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let node = idle_node(setting, folder.path())?;
    report.figure(
        "idle_node_resident",
        node / MIB,
        "MiB",
        Target::AtMost(30.0 * 1e6 / MIB),
    );
    report.figure(
        "plugin_memory_idle",
        plugin_memory(setting)? / 1024.0,
        "KiB",
        Target::Shown,
    );
    report.figure(
        "instance_memory_live",
        instance_memory(setting)? / 1024.0,
        "KiB",
        Target::Shown,
    );
    let guest = setting.guest("hello-http02")?;
    let (server, _) = Contender::karman(setting, &guest, folder.path()).start()?;
    let memory = memory_of(server.pid())?;
    report.figure(
        "serve_resident",
        memory.resident as f64 / MIB,
        "MiB",
        Target::Shown,
    );
    report.figure(
        "serve_proportional",
        memory.proportional as f64 / MIB,
        "MiB",
        Target::Shown,
    );
    Ok(())
}

fn idle_node(setting: &Setting, folder: &Path) -> Result<f64> {
    let state = folder.join("node");
    let mut child = Command::new(&setting.karman)
        .args(["-q", "node", "up", "--listen", "127.0.0.1:0"])
        .env("KARMAN_STATE", &state)
        .env("KARMAN_CACHE", folder.join("node-cache"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let started = Instant::now();
    while !state.join("control.sock").exists() && started.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    // It settles: what start-up freed has gone back.
    let settled = Instant::now();
    let mut resident = 0;
    while settled.elapsed() < Duration::from_secs(2) {
        resident = memory_of(child.id())?.resident;
        std::thread::yield_now();
    }
    child.kill()?;
    child.wait()?;
    Ok(resident as f64)
}

/// Bytes that one more instance adds to this process while it waits in a host call.
fn instance_memory(setting: &Setting) -> Result<f64> {
    let bytes = std::fs::read(setting.guest("hostile")?)?;
    let engine = Engine::new(EngineOptions::default())?;
    let plugin = engine.load(&bytes, &GrantSet::default(), |world| {
        Manifest::foreign("hostile", world)
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // What the first call of all costs is no instance's.
        let mut live = vec![waiting(&plugin).await?];
        let before = memory_of(std::process::id())?.resident;
        for _ in 0..INSTANCES {
            live.push(waiting(&plugin).await?);
        }
        let after = memory_of(std::process::id())?.resident;
        Ok(after.saturating_sub(before) as f64 / INSTANCES as f64)
    })
}

async fn waiting(plugin: &Arc<Plugin>) -> Result<impl Future + use<>> {
    let request = TaskRequest {
        body: "sleep 60000".into(),
        ..TaskRequest::default()
    };
    let plugin = plugin.clone();
    let mut call = Box::pin(async move { plugin.call(request, call::context()).await });
    ensure!(futures::poll!(&mut call).is_pending(), "the guest does not wait");
    Ok(call)
}

/// Bytes that one more loaded plugin adds to this process: the component is made different by a custom section.
fn plugin_memory(setting: &Setting) -> Result<f64> {
    let bytes = std::fs::read(setting.guest("tiny")?)?;
    let engine = Engine::new(EngineOptions::default())?;
    let load = |number: usize| {
        let mut bytes = bytes.clone();
        bytes.extend_from_slice(&[0, 10, 4, b'n', b'o', b't', b'e']);
        bytes.extend_from_slice(&[(number >> 8) as u8, number as u8, 0, 0, 0]);
        engine
            .load(&bytes, &GrantSet::default(), |world| {
                Manifest::foreign("tiny", world)
            })
            .context("a guest of ours loads")
    };
    let mut kept = vec![load(0)?];
    let before = memory_of(std::process::id())?.resident;
    for number in 1..=PLUGINS {
        kept.push(load(number)?);
    }
    let after = memory_of(std::process::id())?.resident;
    Ok(after.saturating_sub(before) as f64 / PLUGINS as f64)
}
