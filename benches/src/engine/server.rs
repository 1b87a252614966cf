//! Ours and theirs as real processes.

use super::Setting;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// wasmtime's pool as ours is set: memory that stays resident between uses of a slot saves page faults.
const POOL: [&str; 5] = [
    "-Opooling-allocator",
    "-Opooling-memory-keep-resident=65536",
    "-Opooling-table-keep-resident=16384",
    "-Opooling-async-stack-keep-resident=32768",
    "-Opooling-pagemap-scan=auto",
];

/// A server that is killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

/// Which server, with which component.
pub(crate) enum Contender {
    Karman {
        program: PathBuf,
        component: PathBuf,
        state: PathBuf,
    },
    Wasmtime {
        program: PathBuf,
        precompiled: PathBuf,
        at_once: Option<u32>,
    },
}

impl Contender {
    pub(crate) fn karman(setting: &Setting, component: &Path, state: &Path) -> Self {
        Self::Karman {
            program: setting.karman.clone(),
            component: component.into(),
            state: state.into(),
        }
    }

    /// `wasmtime serve` with code compiled beforehand, as `karman` has it in its cache; `at_once` requests in one instance
    /// where that is not to be its default.
    pub(crate) fn wasmtime(
        program: &Path,
        component: &Path,
        folder: &Path,
        at_once: Option<u32>,
    ) -> Result<Self> {
        let precompiled = folder.join(
            component
                .with_extension("cwasm")
                .file_name()
                .context("a file has a name")?,
        );
        let compiled = Command::new(program)
            .arg("compile")
            .arg(component)
            .arg("-o")
            .arg(&precompiled)
            .status()?;
        if !compiled.success() {
            bail!("`wasmtime compile {}` failed", component.display());
        }
        Ok(Self::Wasmtime {
            program: program.into(),
            precompiled,
            at_once,
        })
    }

    fn command(&self, address: SocketAddr) -> Command {
        match self {
            Self::Karman {
                program,
                component,
                state,
            } => {
                let mut command = Command::new(program);
                command
                    .args(["-q", "serve"])
                    .arg(component)
                    .args(["--listen", &address.to_string()]);
                command
                    .env("KARMAN_STATE", state.join("state"))
                    .env("KARMAN_CACHE", state.join("cache"));
                command
            }
            Self::Wasmtime {
                program,
                precompiled,
                at_once,
            } => {
                let mut command = Command::new(program);
                command
                    .args(["serve", "--allow-precompiled", "-Scli", "--no-logging-prefix"])
                    .args(POOL);
                if let Some(at_once) = at_once {
                    command.arg(format!("--max-instance-concurrent-reuse-count={at_once}"));
                }
                command.arg("--addr");
                command.arg(address.to_string()).arg(precompiled);
                command
            }
        }
    }

    /// Starts it and waits for its first answer; also how long that took.
    pub(crate) fn start(&self) -> Result<(Server, Duration)> {
        // A port that was free a moment ago; nobody else asks for ports here.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = self.command(address);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let started = Instant::now();
        let mut server = Server {
            child: command.spawn()?,
            address,
        };
        while started.elapsed() < Duration::from_secs(30) {
            if get(address).is_ok() {
                return Ok((server, started.elapsed()));
            }
            if let Some(status) = server.child.try_wait()? {
                bail!("{command:?} ended with {status}");
            }
            // Asleep rather than spinning, so that the server that starts has every core.
            std::thread::park_timeout(Duration::from_micros(50));
        }
        bail!("{command:?} did not answer within 30 s")
    }
}

impl Server {
    pub(crate) const fn new(child: Child, address: SocketAddr) -> Self {
        Self { child, address }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that is kept from one request to the next.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) fn open(server: &Server) -> Result<Self> {
        let stream = TcpStream::connect(server.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Posts and reads the whole answer; its status.
    pub(crate) fn post(&mut self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<u16> {
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        request += "\r\n";
        self.0.get_mut().write_all(&[request.as_bytes(), body].concat())?;
        let (mut status, mut length) = (None, 0);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            status = status.or_else(|| line.split(' ').nth(1)?.parse().ok());
        }
        std::io::copy(&mut self.0.by_ref().take(length), &mut std::io::sink())?;
        status.context("the server closed the connection")
    }
}

/// One request on a connection of its own; an error unless it is answered with 200.
pub(crate) fn get(address: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if !answer.starts_with(b"HTTP/1.1 200") {
        bail!(
            "answered {}",
            String::from_utf8_lossy(&answer[..answer.len().min(80)])
        );
    }
    Ok(())
}
