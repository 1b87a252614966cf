//! Burn, which brings its own wgpu: `benches/gpu/burn` as a process of its own.

use anyhow::{Context, Result, anyhow, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The longest that it may be silent: it tries all its kernels before its first line.
const MOST: Duration = Duration::from_secs(600);

/// Burn's product of matrices of one side, tuned and with its data on the device. It is ended when dropped.
pub(crate) struct Burn {
    child: Child,
    asks: ChildStdin,
    answers: Receiver<String>,
    complaints: ChildStderr,
}

impl Burn {
    /// Starts it on the adapter of this name.
    pub(crate) fn start(adapter: &str, side: u32) -> Result<Self> {
        let mut command = Command::new(program()?);
        command.args([adapter, &side.to_string()]);
        // The most thorough tuning that it has, whatever it takes.
        command.env("CUBECL_AUTOTUNE_LEVEL", "full");
        // A panic ends with what it is about.
        command.env("RUST_BACKTRACE", "0");
        Self::of(command, adapter)
    }

    fn of(mut command: Command, adapter: &str) -> Result<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let (Some(asks), Some(says), Some(complaints)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            bail!("burn-product has no streams");
        };
        let (send, answers) = channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(says).lines().map_while(Result::ok);
            lines.all(|line| send.send(line).is_ok())
        });
        let mut burn = Self {
            child,
            asks,
            answers,
            complaints,
        };
        let name = burn.answer()?;
        ensure!(name == adapter, "Burn is on {name}, not on {adapter}");
        Ok(burn)
    }

    /// Products in a second, over one block.
    pub(crate) fn rate(&mut self) -> Result<f64> {
        // Where it has ended, it has said why.
        let _ = writeln!(self.asks);
        let answer = self.answer()?;
        answer
            .parse()
            .with_context(|| format!("burn-product said {answer}"))
    }

    /// Its next line.
    fn answer(&mut self) -> Result<String> {
        self.answers.recv_timeout(MOST).map_err(|why| {
            let _ = self.child.kill();
            let mut said = String::new();
            let _ = self.complaints.read_to_string(&mut said);
            let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = lines[lines.len().saturating_sub(3)..].join("; ");
            match why {
                RecvTimeoutError::Timeout => anyhow!("burn-product said nothing for {MOST:?}: {last}"),
                RecvTimeoutError::Disconnected => anyhow!("burn-product ended: {last}"),
            }
        })
    }
}

impl Drop for Burn {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where it is: `KARMAN_BURN`, or built now. It compiles for a quarter of an hour, and only a study that has a GPU knows that it has to.
fn program() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("KARMAN_BURN") {
        return Ok(program.into());
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--target-dir", "target/burn"]);
    cargo.args(["--manifest-path", "benches/gpu/burn/Cargo.toml"]);
    let status = cargo
        .status()
        .context("cargo does not start to build Burn; KARMAN_BURN names a burn-product that is built")?;
    ensure!(status.success(), "Burn does not build: cargo ended with {status}");
    Ok("target/burn/release/burn-product".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(script: &str) -> Result<Burn> {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        Burn::of(shell, "a GPU")
    }

    #[test]
    fn each_question_has_one_answer_and_an_end_its_reason() {
        let script =
            "echo a GPU; read x; echo 2.5; read x; echo 3; read x; printf 'oh\\nthe\\nGPU\\nis lost\\n' >&2";
        let mut burn = says(script).unwrap();
        assert_eq!((burn.rate().unwrap(), burn.rate().unwrap()), (2.5, 3.0));
        let why = burn.rate().unwrap_err().to_string();
        assert!(why.ends_with(": the; GPU; is lost"), "{why}");
    }

    #[test]
    fn another_adapter_is_refused() {
        let why = says("echo another; read x").err().unwrap().to_string();
        assert_eq!(why, "Burn is on another, not on a GPU");
    }
}
