//! Ours and theirs as real processes.

use super::Setting;
use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
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

    /// `wasmtime serve` with code compiled beforehand, as `karman` has it in its cache.
    pub(crate) fn wasmtime(program: &Path, component: &Path, folder: &Path) -> Result<Self> {
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
            Self::Wasmtime { program, precompiled } => {
                let mut command = Command::new(program);
                command
                    .args(["serve", "--allow-precompiled", "-Scli", "--no-logging-prefix"])
                    .args(POOL);
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
            std::hint::spin_loop();
        }
        bail!("{command:?} did not answer within 30 s")
    }
}

impl Server {
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
