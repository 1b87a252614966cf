//! The other side of each contender: this program once more, told to serve.

use super::Setting;
#[cfg(feature = "peers")]
use super::{grpc, nats};
use super::{karman, quinn};
use anyhow::{Context, Result};
use bytes::Bytes;
use clap::ValueEnum;
use karman_engine::{Engine, EngineOptions, Plugin};
use karman_types::{GrantSet, Manifest, TaskRequest};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// What to serve.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Serve {
    /// The tiny component over quinn.
    Quinn,
    /// Tensors over quinn.
    QuinnTensor,
    /// A stage of a model over quinn.
    QuinnStage,
    /// Tensors over Karman's mesh.
    KarmanTensor,
    /// The tiny component over gRPC.
    #[cfg(feature = "peers")]
    Grpc,
    /// The tiny component behind a NATS server.
    #[cfg(feature = "peers")]
    Nats,
}

/// Serves, says where on a line of standard output, and ends with the study.
pub(crate) fn serve(what: Serve, folder: &Path, at: Option<&str>) -> Result<()> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Runtime::new()?;
    let tiny = || Handler::new(Path::new("target/guests/tiny.wasm"));
    runtime.block_on(async {
        match what {
            Serve::Quinn => quinn::serve(folder, tiny()?).await,
            Serve::QuinnTensor => quinn::serve_tensor(folder).await,
            Serve::QuinnStage => quinn::serve_stage(folder).await,
            Serve::KarmanTensor => karman::serve_tensor(folder).await,
            #[cfg(feature = "peers")]
            Serve::Grpc => grpc::serve(folder, tiny()?).await,
            #[cfg(feature = "peers")]
            Serve::Nats => nats::serve(folder, tiny()?, at.context("where the NATS server is")?).await,
        }
    })?;
    let _ = at;
    Ok(())
}

/// Tells the study where this side is.
pub(super) fn ready(at: impl std::fmt::Display) {
    println!("{at}");
}

/// The tiny component on Karman's engine, in this process.
#[derive(Clone)]
pub(super) struct Handler(Arc<Plugin>);

impl Handler {
    fn new(component: &Path) -> Result<Self> {
        let bytes = std::fs::read(component).with_context(|| component.display().to_string())?;
        let engine = Engine::new(EngineOptions::default())?;
        let plugin = engine.load(&bytes, &GrantSet::default(), |world| {
            Manifest::foreign("tiny", world)
        })?;
        Ok(Self(plugin))
    }

    pub(super) async fn call(&self, body: Bytes) -> Result<Bytes> {
        let request = TaskRequest {
            body,
            ..TaskRequest::default()
        };
        let (response, _) = self.0.call(request, crate::engine::context()).await?;
        Ok(response.body)
    }
}

/// A process that is killed when dropped.
pub(super) struct Process(Child);

impl Process {
    pub(super) fn spawn(command: &mut Command) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        Ok(Self(child))
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    /// The first line for which `read` has an answer.
    pub(super) fn says<T>(stream: impl Read, read: impl Fn(&str) -> Option<T>) -> Result<T> {
        for line in BufReader::new(stream).lines() {
            if let Some(found) = read(&line?) {
                return Ok(found);
            }
        }
        anyhow::bail!("it ended before it answered")
    }

    /// This program as the other side, and where it is.
    pub(super) fn serving(setting: &Setting, what: Serve, at: Option<&str>) -> Result<(Self, String)> {
        let name = what.to_possible_value().context("a name")?;
        let program: PathBuf = std::env::current_exe()?;
        let mut command = Command::new(program);
        command.args(["mesh", "--serve", name.get_name(), "--folder"]);
        command.arg(setting.folder());
        command.args(at.map(|at| ["--at", at]).iter().flatten());
        let mut process = Self::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let said = process.0.stdout.take().context("piped")?;
        let at = Self::says(said, |line| Some(line.to_owned()))?;
        Ok((process, at))
    }

    pub(super) const fn child(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
