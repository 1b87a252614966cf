//! Ours and theirs as real processes that serve the model.

use super::{MODEL, Setting};
use anyhow::{Context, Result, bail, ensure};
use karman_study::machine::{kill_tree, memory_of_tree};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to its first answer: Ray starts half a dozen processes.
const START: Duration = Duration::from_secs(90);
/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(20);

/// Who serves the model, with one of its settings.
#[derive(Clone, Debug)]
pub(super) enum Peer {
    Karman,
    /// Worker processes, and threads of each one's session.
    Kserve {
        workers: u32,
        threads: u32,
    },
    /// Replicas, and threads of each one's session.
    Ray {
        replicas: u32,
        threads: u32,
    },
    /// Axum over our pool of sessions; whether models run on the threads that answer.
    Axum {
        inline: bool,
    },
}

/// A server that is ended, with all that it has started, when dropped.
pub(super) struct Running {
    child: Child,
    pub(super) address: SocketAddr,
    path: &'static str,
    state: PathBuf,
}

impl Peer {
    fn command(&self, setting: &Setting, state: &Path, address: SocketAddr) -> Result<Command> {
        let port = address.port().to_string();
        let mut command = match self {
            Self::Karman => {
                let mut command = karman(setting, state);
                command.args(["-q", "gateway", "--listen", &address.to_string()]);
                command.args(["--open", "infer:*", "--open", "http:*"]);
                command
            }
            Self::Kserve { workers, threads } => {
                let mut command = python("kserve", "kserve_server.py")?;
                command.args([MODEL, &setting.model.to_string_lossy(), &port]);
                command.args([workers.to_string(), threads.to_string()]);
                command
            }
            Self::Ray { replicas, threads } => {
                let mut command = python("ray", "ray_server.py")?;
                command.args([MODEL, &setting.model.to_string_lossy(), &port]);
                command.args([replicas.to_string(), threads.to_string()]);
                command.env("RAY_USAGE_STATS_ENABLED", "0");
                command.env("RAY_AUTH_MODE", "disabled");
                command
            }
            Self::Axum { inline } => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["gateway", "--plain", &address.to_string()]);
                command.args(inline.then_some("--inline"));
                command
            }
        };
        command.env("KARMAN_ONNXRUNTIME", &setting.onnxruntime);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }
}

impl Running {
    /// Starts it, and waits until it serves the model.
    pub(super) fn start(setting: &Setting, peer: &Peer) -> Result<Self> {
        // A port that was free a moment ago; nobody else asks for ports here.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let state = tempfile::tempdir_in(setting.folder.path())?.keep();
        if matches!(peer, Peer::Karman) {
            let mut add = karman(setting, &state);
            add.args(["-q", "model", "add", MODEL]).arg(&setting.model);
            ensure!(add.status()?.success(), "`karman model add` failed");
        }
        let said = state.join("stderr");
        let mut command = peer.command(setting, &state, address)?;
        command.stderr(std::fs::File::create(&said)?);
        let path = match peer {
            Peer::Ray { .. } => "/",
            _ => "/v2/models/digits-m/infer",
        };
        let mut running = Self {
            child: command.spawn().with_context(|| format!("{command:?}"))?,
            address,
            path,
            state,
        };
        let started = Instant::now();
        while started.elapsed() < START {
            if running.answer().is_ok() {
                return Ok(running);
            }
            if let Some(status) = running.child.try_wait()? {
                let said = std::fs::read_to_string(&said).unwrap_or_default();
                let last: Vec<&str> = said.lines().rev().take(3).collect();
                bail!("{peer:?} ended with {status}: {}", last.join("; "));
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        bail!("{peer:?} did not answer within {START:?}")
    }

    /// Gives a node of ours a plugin.
    pub(super) fn deploy(&self, setting: &Setting, component: &Path) -> Result<()> {
        let mut deploy = karman(setting, &self.state);
        deploy.args(["-q", "deploy"]).arg(component);
        ensure!(deploy.status()?.success(), "`karman deploy` failed");
        Ok(())
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}{}", self.address, self.path)
    }

    /// Memory of all its processes.
    pub(super) fn memory(&self) -> u64 {
        memory_of_tree(self.child.id())
    }

    /// What the model gives for the image, by a connection of its own.
    pub(super) fn answer(&self) -> Result<Vec<f64>> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(ANSWER))?;
        let (path, body) = (self.path, question().to_string());
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "answered {answer:.200}");
        let body = answer.split_once("\r\n\r\n").context("no body")?.1;
        let body: Value = serde_json::from_str(body)?;
        let data = body["outputs"][0]["data"].as_array().context("no output")?;
        data.iter()
            .map(|value| value.as_f64().context("a number"))
            .collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        kill_tree(self.child.id());
        let _ = self.child.wait();
    }
}

/// One image, as the protocol has it.
pub(super) fn question() -> Value {
    let image: Vec<f32> = (0..64u8).map(|at| f32::from(at % 17) / 16.0).collect();
    json!({ "inputs": [{ "name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": image }] })
}

fn karman(setting: &Setting, state: &Path) -> Command {
    let mut command = Command::new(&setting.karman);
    command
        .env("KARMAN_STATE", state.join("state"))
        .env("KARMAN_CACHE", setting.folder.path().join("cache"))
        .env("XDG_CONFIG_HOME", state.join("config"));
    command
}

/// A script of `benches/gateway` in an environment of its own.
fn python(environment: &str, script: &str) -> Result<Command> {
    let python = std::path::absolute(format!("target/tools/{environment}/bin/python"))?;
    if !python.exists() {
        let why = std::fs::read_to_string(format!("target/tools/.{environment}-failed"));
        let why = why.unwrap_or_else(|_| "`cargo xtask bench gateway` installs it".to_owned());
        bail!("{environment} is not installed: {}", why.trim());
    }
    let mut command = Command::new(python);
    command.arg(std::path::absolute("benches/gateway")?.join(script));
    Ok(command)
}
