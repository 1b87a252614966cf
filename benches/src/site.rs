//! A node as a process of its own in a folder of its own, ordered about through the socket of its operator.

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;

/// Within which a node answers, and finds others.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// How often it is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(20);

/// One folder, and the node that runs there, killed when dropped.
pub(crate) struct Site {
    karman: PathBuf,
    folder: PathBuf,
    process: Option<Child>,
}

impl Site {
    /// A folder with this `node.toml`.
    pub(crate) fn new(karman: &Path, folder: PathBuf, config: &str) -> Result<Self> {
        let place = folder.join("config/karman");
        std::fs::create_dir_all(&place)?;
        std::fs::write(place.join("node.toml"), config)?;
        Ok(Self {
            karman: karman.into(),
            folder,
            process: None,
        })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.karman);
        command
            .args(arguments)
            .env("KARMAN_STATE", self.state())
            .env("KARMAN_CACHE", self.folder.join("cache"))
            .env("XDG_CONFIG_HOME", self.folder.join("config"))
            .env_remove("KARMAN_CONFIG");
        command
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Runs the tool there, and answers what it says.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String> {
        let ran = self.command(arguments).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&ran.stderr);
        ensure!(ran.status.success(), "karman {}: {said}", arguments.join(" "));
        Ok(String::from_utf8(ran.stdout)?.trim().to_owned())
    }

    /// Starts the node, and waits until it answers.
    pub(crate) async fn up(&mut self, more: &[&str]) -> Result<()> {
        let arguments = [&["node", "up", "--listen", "127.0.0.1:0"], more].concat();
        let log = File::create(self.folder.join("log"))?;
        let mut command = self.command(&arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = self.process.insert(command.spawn()?);
        let started = Instant::now();
        loop {
            ensure!(child.try_wait()?.is_none(), "{}", self.log());
            ensure!(started.elapsed() < SOON, "it does not answer: {}", self.log());
            if UnixStream::connect(self.folder.join("state/control.sock"))
                .await
                .is_ok()
            {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// The process of the node.
    pub(crate) fn pid(&self) -> Result<u32> {
        Ok(self.process.as_ref().context("the node is not up")?.id())
    }

    /// Kills the node as a power cut does.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let mut child = self.process.take().context("the node is not up")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Gives the running node an order.
    pub(crate) async fn order<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T> {
        let stream = UnixStream::connect(self.folder.join("state/control.sock")).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let carried = tokio::spawn(connection);
        let request = Request::builder()
            .method(&method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::new(body))?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        drop(sender);
        carried.await??;
        if !status.is_success() {
            bail!("{method} {path}: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(serde_json::from_slice(&body)?)
    }

    /// Tries until it succeeds: what a mesh has yet to hear of is there soon.
    pub(crate) async fn soon<T>(mut attempt: impl AsyncFnMut() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        loop {
            match attempt().await {
                Err(_) if started.elapsed() < SOON => tokio::time::sleep(LOOK).await,
                done => return done,
            }
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(child) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
