//! Runs the tool in a folder of its own.

mod answer;
pub(crate) mod member;
mod registry;

pub(crate) use answer::{Answer, exchange};
pub(crate) use registry::Registry;

use serde_json::Value;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long an answer may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A home of its own: state, cache, configuration.
pub(crate) struct Home(TempDir);

/// What a run left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Adds this to the configuration of its node.
    pub(crate) fn configure(&self, more: &str) {
        let file = self.path().join("config/karman/node.toml");
        let before = std::fs::read_to_string(&file).unwrap();
        std::fs::write(file, format!("{before}\n{more}")).unwrap();
    }

    /// The tool with these arguments, in this home.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_karman"));
        command
            .args(arguments)
            .env("KARMAN_STATE", self.path().join("state"))
            .env("KARMAN_CACHE", self.path().join("cache"))
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env("KARMAN_TOOLS", root().join("target/tools"))
            .env("VIRTUAL_ENV", root().join("target/tools/venv"))
            .env_remove("KARMAN_CONFIG")
            .current_dir(self.path());
        command
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ran {
        self.run_with(arguments, b"")
    }

    pub(crate) fn run_with<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        input: &[u8],
    ) -> Ran {
        let mut command = self.command(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // A tool that refuses its input before reading it is no failure of the test.
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Ran::of(output)
    }

    /// What the running node tells its operator.
    pub(crate) fn control(&self, path: &str) -> Value {
        self.ask("GET", path, &[], b"").expect("no node answers").json()
    }

    /// Every line that the running node has logged that begins so.
    pub(crate) fn said(&self, begin: &str) -> String {
        let logs = self.control("/logs");
        let events = logs.as_array().unwrap().iter();
        let lines = events.filter_map(|event| event["message"].as_str());
        lines
            .filter(|line| line.starts_with(begin))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// What it answers to any request; nothing when no node answers.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Option<Answer> {
        let stream = UnixStream::connect(self.path().join("state/control.sock")).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let answer = exchange(stream, method, path, headers, body);
        (answer.status > 0).then_some(answer)
    }

    /// Runs one order of the `hostile` guest.
    pub(crate) fn hostile(&self, order: &str, more: &[&str]) -> Ran {
        let guest = guest("hostile");
        let mut arguments = vec!["run", guest.to_str().unwrap(), "-"];
        arguments.extend(more);
        self.run_with(arguments, order.as_bytes())
    }

    /// Starts a server (`serve …`, `node up …`) and waits until it says that it answers.
    pub(crate) fn start<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Server {
        self.started(self.command(arguments))
    }

    /// Starts a server by this command.
    pub(crate) fn started(&self, mut command: Command) -> Server {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut server = Server {
            child,
            address: String::new(),
            said: String::new(),
            stderr: None,
        };
        let mut stderr = BufReader::new(server.child.stderr.take().unwrap());
        while server.address.is_empty() {
            let mut line = String::new();
            let more = stderr.read_line(&mut line).unwrap() > 0;
            server.said.push_str(&line);
            assert!(more, "it ended before it answered:\n{}", server.said);
            let url = line
                .split_once("on http")
                .map(|(_, url)| url.trim_start_matches('s'));
            if let Some(rest) = url.and_then(|url| url.strip_prefix("://")) {
                server.address = rest.split_whitespace().next().unwrap().to_owned();
            }
        }
        server.stderr = Some(stderr);
        server
    }
}

impl Ran {
    pub(crate) fn of(output: std::process::Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim().to_owned()
    }

    /// The run must have ended well.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// The run must have ended with this exit code, and said this.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, says: &str) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.contains(says), "`{says}` is not in {self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        self
    }
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    /// What it said until it answered.
    pub(crate) said: String,
    pub(crate) stderr: Option<BufReader<ChildStderr>>,
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.send("POST", path, headers, body)
    }

    /// Nothing when the server is gone; an answer with status 0 when it went in the middle.
    pub(crate) fn try_post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<Answer> {
        let stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(exchange(stream, "POST", path, headers, body))
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        exchange(stream, method, path, headers, body)
    }

    /// Kills it as a power cut would, and does not wait for its end.
    pub(crate) fn signal_kill(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    /// Leaves it there without doing anything, as a board that swaps itself to death.
    pub(crate) fn signal_stop(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        // One of its threads takes the signal, and the others go on until it has.
        let stopped = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED);
        assert!(stopped.unwrap().is_some_and(|(_, status)| status.stopped()));
    }

    /// Asks it to stop, and does not wait for its end.
    pub(crate) fn signal_terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Kills it as a power cut would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop, and answers its exit code and what it said besides.
    pub(crate) fn stop(mut self) -> (i32, String) {
        self.signal_terminate();
        let mut said = String::new();
        self.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code().unwrap_or(-1), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Between two looks at a node, whose core it may be.
pub(crate) fn pause() {
    std::thread::park_timeout(Duration::from_millis(20));
}

/// Waits until it holds; where that takes longer, says what does not come about.
#[track_caller]
pub(crate) fn until(within: Duration, what: impl Display, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < within, "{what}");
        pause();
    }
}

/// The repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// A guest that `cargo xtask guests` built.
pub(crate) fn guest(name: &str) -> PathBuf {
    let path = root().join("target/guests").join(format!("{name}.wasm"));
    assert!(
        path.exists(),
        "{} is missing: run `cargo xtask guests`",
        path.display()
    );
    path
}

/// The `tiny` guest with so many bytes more that it has this length, in a file of this home.
pub(crate) fn padded(home: &Home, length: usize) -> PathBuf {
    let mut bytes = std::fs::read(guest("tiny")).unwrap();
    // A custom section, which engines pass over: its number, its length in five bytes of LEB128, an empty name.
    let payload = length - bytes.len() - 6;
    bytes.push(0);
    bytes.extend((0..5).map(|at| (payload >> (7 * at) & 0x7f) as u8 | if at < 4 { 0x80 } else { 0 }));
    bytes.push(0);
    let mut noise = fastrand::Rng::with_seed(7);
    bytes.extend((1..payload).map(|_| noise.u8(..)));
    assert_eq!(bytes.len(), length);
    let path = home.path().join("tiny.wasm");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A component written as text, in a file of this home.
pub(crate) fn component(home: &Home, name: &str, text: &str) -> PathBuf {
    let path = home.path().join(name);
    std::fs::write(&path, wat::parse_str(text).unwrap()).unwrap();
    path
}

/// Resident bytes of a process.
pub(crate) fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
