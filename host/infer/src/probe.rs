//! Tries in a child process what could end the process that tries it: a driver, or a model from outside.

use crate::apart::short;
use crate::{Backend, BackendName, InferError, LoadOptions, OnnxRuntime, Tract};
use karman_tensor::Tensor;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The most that a child may say.
const MOST_OUTPUT: u64 = 64 << 10;

/// A child that did not do what it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// It could not be started or read.
    #[error("the probe could not be run: {0}")]
    Start(#[from] std::io::Error),
    /// It took too long and was ended.
    #[error("the probe was ended after {}", karman_types::format_duration(*.0))]
    Timeout(Duration),
    /// It failed, or was ended by a signal.
    #[error("the probe ended with {status}: {said}")]
    Failed {
        /// `exit status: 1`, `signal: 11 (SIGSEGV)`.
        status: String,
        /// The end of its standard error.
        said: String,
    },
}

/// Loads the ONNX Runtime at this path in this process and gives its version. For the child: what
/// `karman probe-onnxruntime PATH` runs and prints.
///
/// # Errors
/// [`InferError::Unavailable`].
pub fn probe_onnxruntime(path: &Path) -> Result<String, InferError> {
    Ok(OnnxRuntime::load(path)?.version().to_owned())
}

/// Loads a model with tract and runs it once on zeros, in at most this much memory. For the child: what
/// `karman probe-model` runs on its standard input. Never call it elsewhere: it bounds the address space of the process.
///
/// # Errors
/// Those of [`Backend::load`] and [`Model::run`](crate::Model::run); it may also never return.
pub fn probe_model(model: &[u8], options: &LoadOptions) -> Result<(), InferError> {
    // Room for the program itself and the large stack besides.
    let limits = &options.limits;
    let room = limits.run.0 + 8 * (limits.model.0 + limits.constants.0) + (1 << 30);
    let bound = Rlimit {
        current: Some(room),
        maximum: Some(room),
    };
    setrlimit(Resource::As, bound).map_err(|error| InferError::Unavailable {
        backend: BackendName::Tract,
        reason: format!("the memory of the trial could not be bounded: {error}"),
    })?;
    let model = Tract.load(model, options)?;
    let zeros = model.inputs().iter().map(|info| {
        let shape = info.shape_with(Some(1)).unwrap_or_default();
        let bytes = Tensor::bytes_of(info.element, shape)
            .ok()
            .filter(|n| *n as u64 <= limits.tensor.0)?;
        let tensor = Tensor::new(info.element, shape, &vec![0; bytes]).ok()?;
        Some((info.name.clone(), tensor))
    });
    match zeros.collect::<Option<Vec<_>>>() {
        // Zeros need not make sense to the model, but must not break anything.
        Some(zeros) => match model.run(zeros) {
            Err(error @ (InferError::Panicked { .. } | InferError::Limit { .. })) => Err(error),
            _ => Ok(()),
        },
        None => Ok(()),
    }
}

/// Runs a child and gives the first line it prints: for [`probe_onnxruntime`], the version.
///
/// # Errors
/// [`ProbeError`] when it cannot be started, fails, or takes longer than `timeout` (then it is ended).
pub fn probe_in_child(command: Command, timeout: Duration) -> Result<String, ProbeError> {
    feed_child(command, &[], timeout)
}

/// The same with something on the child's standard input: for [`probe_model`], the model.
///
/// # Errors
/// Those of [`probe_in_child`].
pub fn feed_child(mut command: Command, input: &[u8], timeout: Duration) -> Result<String, ProbeError> {
    let end = Instant::now() + timeout;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(std::io::Error::other("the child has no pipes").into());
    };
    std::thread::scope(|scope| {
        // Each ends when the child does; one that stops reading early broke its pipe, which is its own affair.
        scope.spawn(move || stdin.write_all(input));
        let out = scope.spawn(move || read(stdout));
        let err = scope.spawn(move || read(stderr));
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if Instant::now() >= end {
                child.kill()?;
                child.wait()?;
                break None;
            }
            std::thread::park_timeout(Duration::from_millis(2));
        };
        let said = |thread: std::thread::ScopedJoinHandle<'_, String>| thread.join().unwrap_or_default();
        let (out, err) = (said(out), said(err));
        match status {
            None => Err(ProbeError::Timeout(timeout)),
            Some(status) if status.success() => Ok(out.lines().next().unwrap_or_default().trim().to_owned()),
            Some(status) => Err(ProbeError::Failed {
                status: status.to_string(),
                said: short(err.get(err.len().saturating_sub(500)..).unwrap_or(&err)),
            }),
        }
    })
}

/// What comes first is kept; the rest is read too, so that the child does not wait for a reader.
fn read(mut pipe: impl Read) -> String {
    let mut kept = Vec::new();
    let _ = pipe.by_ref().take(MOST_OUTPUT).read_to_end(&mut kept);
    let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_child_answers_fails_crashes_or_hangs() {
        assert_eq!(
            probe_in_child(sh("echo 1.31.1; echo more"), LONG).unwrap(),
            "1.31.1"
        );
        assert_eq!(feed_child(sh("cat"), b"abc", LONG).unwrap(), "abc");
        let failed = probe_in_child(sh("echo no driver >&2; exit 4"), LONG).unwrap_err();
        assert!(
            failed.to_string().contains("exit status: 4: no driver"),
            "{failed}"
        );
        let crashed = probe_in_child(sh("kill -SEGV $$"), LONG).unwrap_err();
        assert!(crashed.to_string().contains("signal: 11"), "{crashed}");
        let hung = probe_in_child(sh("exec sleep 60"), Duration::from_millis(50)).unwrap_err();
        assert!(matches!(hung, ProbeError::Timeout(_)), "{hung}");
        assert!(matches!(
            probe_in_child(Command::new("/nowhere"), LONG),
            Err(ProbeError::Start(_))
        ));
    }

    #[test]
    fn a_talkative_child_is_cut_short() {
        let said = probe_in_child(sh("head -c 10000000 /dev/zero | tr '\\0' x"), LONG).unwrap();
        assert_eq!(said.len() as u64, MOST_OUTPUT);
    }
}
