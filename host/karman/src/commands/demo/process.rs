use crate::control::Control;
use crate::error;
use karman_node::Home;
use karman_types::{NodeId, TaskError};
use serde::Deserialize;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// One node: this very program, in a folder of its own. Killed when dropped.
pub(super) struct Process {
    folder: PathBuf,
    /// Nothing once it was killed.
    child: Option<Child>,
    id: NodeId,
    url: String,
    control: Control,
}

/// What a node says once it answers.
#[derive(Deserialize)]
struct Up {
    node: NodeId,
    url: String,
}

impl Process {
    /// Writes the configuration, and starts the node. Returns once it answers.
    ///
    /// # Errors
    /// `unavailable` with the end of its log when it does not come up.
    pub(super) fn start(folder: &Path, arguments: &[&str]) -> Result<Self, TaskError> {
        let failed = |why: std::io::Error| error::file(folder, &why);
        let log = File::create(folder.join("log")).map_err(failed)?;
        let mut child = command(folder, arguments)?
            .arg("--link-profile")
            .arg(folder.join("links.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        let mut said = String::new();
        if let Some(stdout) = child.stdout.as_mut() {
            BufReader::new(stdout).read_line(&mut said).map_err(failed)?;
        }
        let Ok(Up { node, url }) = serde_json::from_str(&said) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(not_up(folder));
        };
        let home = Home::new(folder.join("state"));
        Ok(Self {
            folder: folder.to_owned(),
            child: Some(child),
            id: node,
            url,
            control: Control::at(&home)?,
        })
    }

    /// The node's id.
    pub(super) const fn id(&self) -> NodeId {
        self.id
    }

    /// Where it answers HTTP.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The way to its operator's socket.
    pub(super) const fn control(&self) -> &Control {
        &self.control
    }

    /// Its folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether it was not killed.
    pub(super) const fn is_up(&self) -> bool {
        self.child.is_some()
    }

    /// Kills it, as a power cut would.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command of this program on a node's folder; what it prints as JSON.
///
/// # Errors
/// `internal` with what it said instead.
pub(super) fn run(folder: &Path, arguments: &[&str]) -> Result<Value, TaskError> {
    let ran = command(folder, arguments)?.output();
    let ran = ran.map_err(|why| error::file(folder, &why))?;
    serde_json::from_slice(&ran.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
        TaskError::internal(format!("`karman {}` said: {said}", arguments.join(" ")))
    })
}

/// This program on the folder of a node, without what the user has set for nodes of their own.
fn command(folder: &Path, arguments: &[&str]) -> Result<Command, TaskError> {
    let program = std::env::current_exe().map_err(|error| TaskError::internal(error.to_string()))?;
    let mut command = Command::new(program);
    let own = std::env::vars_os().map(|(name, _)| name);
    for name in own.filter(|name| name.to_string_lossy().starts_with("KARMAN_")) {
        command.env_remove(name);
    }
    command
        .arg("--json")
        .arg("--state")
        .arg(folder.join("state"))
        .arg("--config")
        .arg(folder.join("node.toml"))
        .args(arguments)
        .env("KARMAN_CACHE", folder.join("cache"));
    Ok(command)
}

fn not_up(folder: &Path) -> TaskError {
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    let last = log.lines().last().unwrap_or("nothing").to_owned();
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    TaskError::unavailable(format!("the node `{name}` does not come up; it said: {last}"))
}
