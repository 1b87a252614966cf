use super::ending::{Children, Running};
use crate::control::Control;
use crate::error;
use karman_node::Home;
use karman_types::{NodeId, TaskError};
use serde::Deserialize;
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Time for a node to come up: to open its state, to join its mesh.
const MOST_START: Duration = Duration::from_secs(60);

/// One node: this very program, in a folder of its own. Killed when dropped, and when this process is gone.
pub(super) struct Process {
    folder: PathBuf,
    /// Nothing once it was killed.
    up: Option<Up>,
    id: NodeId,
    url: String,
    control: Control,
}

/// A process that has said something.
struct Up {
    _running: Running,
    said: String,
    /// It may say more.
    _stdout: BufReader<ChildStdout>,
}

/// What a node says once it answers.
#[derive(Deserialize)]
struct Said {
    node: NodeId,
    url: String,
}

impl Process {
    /// Writes the configuration, and starts the node. Returns once it answers.
    ///
    /// # Errors
    /// `unavailable` with the end of its log when it does not come up.
    pub(super) fn start(children: &Children, folder: &Path, arguments: &[&str]) -> Result<Self, TaskError> {
        let failed = |why: io::Error| error::file(folder, &why);
        let log = File::create(folder.join("log")).map_err(failed)?;
        let mut command = command(folder, arguments)?;
        command
            .arg("--link-profile")
            .arg(folder.join("links.toml"))
            .args(["--end-with", &std::process::id().to_string()])
            .stderr(log);
        let up = Up::start(children, &mut command, MOST_START).map_err(failed)?;
        let said = up.as_ref().and_then(|up| serde_json::from_str(&up.said).ok());
        let Said { node, url } = said.ok_or_else(|| not_up(folder))?;
        let home = Home::new(folder.join("state"));
        Ok(Self {
            folder: folder.to_owned(),
            up,
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

    /// Another way to the same, for a thread of its own.
    ///
    /// # Errors
    /// `internal` when the system has no more descriptors.
    pub(super) fn another_control(&self) -> Result<Control, TaskError> {
        Control::at(&Home::new(self.folder.join("state")))
    }

    /// Its folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether it was not killed.
    pub(super) const fn is_up(&self) -> bool {
        self.up.is_some()
    }

    /// Kills it, as a power cut would.
    pub(super) fn kill(&mut self) {
        self.up = None;
    }
}

impl Up {
    /// Starts a process and waits for its first line; nothing where it says none in this time.
    fn start(children: &Children, command: &mut Command, within: Duration) -> io::Result<Option<Self>> {
        let running = children.start(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
        let Some(stdout) = running.child().stdout.take() else {
            return Ok(None);
        };
        let (sender, line) = channel();
        std::thread::Builder::new().spawn(move || {
            let (mut stdout, mut said) = (BufReader::new(stdout), String::new());
            let read = stdout.read_line(&mut said);
            // Who does not wait any more has killed it.
            let _ = sender.send(read.map(|_| (stdout, said)));
        })?;
        let Ok(read) = line.recv_timeout(within) else {
            return Ok(None);
        };
        let (stdout, said) = read?;
        Ok(Some(Self {
            _running: running,
            said,
            _stdout: stdout,
        }))
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
    TaskError::unavailable(format!("the node `{name}` does not come up: it said: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    /// Whether the process whose id is in this file is there, other than as one that nobody has asked after.
    fn is_there(file: &Path) -> bool {
        let pid = std::fs::read_to_string(file).unwrap();
        let id = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::test_kill_process(id.unwrap()).is_ok()
    }

    #[test]
    fn a_process_that_says_nothing_is_given_up_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let mute = sh(&format!("echo $$ > {}; exec sleep 600", file.display()));
        let (children, mut mute) = (Children::default(), mute);
        // Until it has written its id; the last time it is not asked for a line either.
        while !file.exists() || std::fs::read(&file).unwrap().is_empty() {
            let up = Up::start(&children, &mut mute, Duration::from_millis(100)).unwrap();
            assert!(up.is_none());
        }
        assert!(!is_there(&file));
    }

    #[test]
    fn a_process_goes_on_after_its_line_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let mut command = sh(&format!(
            "echo $$ > {}; echo here; exec sleep 600",
            file.display()
        ));
        let up = Up::start(&Children::default(), &mut command, MOST_START).unwrap();
        assert_eq!(up.as_ref().unwrap().said, "here\n");
        assert!(is_there(&file));
        drop(up);
        assert!(!is_there(&file));
    }
}
