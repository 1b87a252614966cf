//! Asks in a child process what could end the process that asks: a driver, or a model from outside.

use crate::device::end;
use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The most bytes that count of what a child says.
const MOST_OUTPUT: u64 = 1 << 20;

/// The most characters that are told of what it complains.
const MOST_COMPLAINT: usize = 500;

/// Time for what a process that has ended said last.
const MOST_LAST_WORDS: Duration = Duration::from_secs(1);

/// A child that did not do what it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// It could not be started.
    #[error("the probe does not start: {0}")]
    Start(#[from] io::Error),
    /// It took too long and was ended.
    #[error("the probe was ended after {}", karman_types::format_duration(*.0))]
    Timeout(Duration),
    /// It failed, or was ended by a signal.
    #[error("the probe ended with {status}: {said}")]
    Failed {
        /// `exit status: 1`, `signal: 11 (SIGSEGV)`.
        status: ExitStatus,
        /// The end of its standard error, on one line.
        said: String,
    },
}

/// Runs a child with this on its standard input, of which it gets a copy, and gives what it prints: the first MiB. It comes back in
/// time whatever the child does: one that is held within its driver does not die, and what it has started may hold its streams.
///
/// # Errors
/// [`ChildError`] when it does not start, fails, or takes longer than this (then it is ended).
pub fn ask(mut command: Command, input: &[u8], within: Duration) -> Result<String, ChildError> {
    let until = Instant::now() + within;
    let streams = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = Running(streams.spawn()?);
    let pipes = (child.0.stdin.take(), child.0.stdout.take(), child.0.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(io::Error::other("it has no streams").into());
    };
    let (said, complained) = (reader(stdout)?, reader(stderr)?);
    let input = input.to_vec();
    // One that stops reading early broke its pipe, which is its own affair.
    apart(move || drop(stdin.write_all(&input)))?;
    let text = said.recv_timeout(within).ok();
    let Some((text, status)) = text.and_then(|text| Some((text, child.status(until)?))) else {
        return Err(ChildError::Timeout(within));
    };
    if status.success() {
        return Ok(text);
    }
    let complaint = complained.recv_timeout(MOST_LAST_WORDS).unwrap_or_default();
    Err(ChildError::Failed {
        status,
        said: last_words(&complaint),
    })
}

/// A child, ended when this is dropped.
struct Running(Child);

impl Running {
    /// How it ends until then, if it does.
    fn status(&mut self, until: Instant) -> Option<ExitStatus> {
        loop {
            match self.0.try_wait() {
                Ok(None) if Instant::now() < until => std::thread::park_timeout(Duration::from_millis(2)),
                ended => return ended.ok().flatten(),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// What comes out of a stream, once it has ended. What comes first is kept; the rest is read too, so that the child does not wait for
/// a reader.
fn reader(mut from: impl Read + Send + 'static) -> io::Result<Receiver<String>> {
    let (sender, text) = channel();
    apart(move || {
        let mut bytes = Vec::new();
        let _ = from.by_ref().take(MOST_OUTPUT).read_to_end(&mut bytes);
        let _ = io::copy(&mut from, &mut io::sink());
        // Who does not wait any more has had an answer.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    })?;
    Ok(text)
}

/// On a thread of its own, which stays for as long as a process holds the other end of its stream.
fn apart(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("karman-probe".into());
    thread.spawn(work).map(drop)
}

fn last_words(complaint: &str) -> String {
    let end = complaint.trim_end();
    let from = end.char_indices().rev().take(MOST_COMPLAINT).last();
    let from = from.map_or(0, |(at, _)| at);
    let words = end[from..].split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    match words.is_empty() {
        true => "it said nothing".to_owned(),
        false => words.join(" "),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn sh(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_child_answers_fails_crashes_or_hangs() {
        assert_eq!(ask(sh("echo 1.31.1"), &[], LONG).unwrap(), "1.31.1\n");
        assert_eq!(ask(sh("cat"), b"abc", LONG).unwrap(), "abc");
        let failed = ask(sh("echo no >&2; echo driver >&2; exit 4"), &[], LONG).unwrap_err();
        assert!(
            failed.to_string().ends_with("exit status: 4: no driver"),
            "{failed}"
        );
        let crashed = ask(sh("kill -SEGV $$"), &[], LONG).unwrap_err();
        assert!(crashed.to_string().contains("signal: 11"), "{crashed}");
        assert!(crashed.to_string().ends_with("said nothing"), "{crashed}");
        let hung = ask(sh("exec sleep 60"), &[], Duration::from_millis(50)).unwrap_err();
        assert!(matches!(hung, ChildError::Timeout(_)), "{hung}");
        let none = ask(Command::new("/nowhere"), &[], LONG).unwrap_err();
        assert!(matches!(none, ChildError::Start(_)), "{none}");
    }

    #[test]
    fn a_talkative_child_is_cut_short() {
        let said = ask(sh("head -c 10000000 /dev/zero | tr '\\0' x"), &[], LONG).unwrap();
        assert_eq!(said.len() as u64, MOST_OUTPUT);
        assert_eq!(last_words(&format!("a{}\n", "é".repeat(500))), "é".repeat(500));
    }

    #[test]
    fn a_child_that_does_not_read_is_not_waited_for() {
        assert_eq!(ask(sh("echo done"), &[0; 1 << 20], LONG).unwrap(), "done\n");
        let hung = ask(sh("exec sleep 60"), &[0; 1 << 20], Duration::from_millis(50)).unwrap_err();
        assert!(matches!(hung, ChildError::Timeout(_)), "{hung}");
    }

    /// As a process does that its driver holds: the streams stay open, whichever process is killed, until the test ends.
    #[test]
    fn streams_that_nobody_closes_hold_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let holds = format!(
            "(while [ -e {} ]; do sleep 0.05; done) &",
            folder.path().display()
        );
        let (sender, asked) = channel();
        for rest in ["exec sleep 600", "exit 0"] {
            let (sender, script) = (sender.clone(), format!("{holds} {rest}"));
            std::thread::spawn(move || sender.send(ask(sh(&script), &[], Duration::from_millis(50))));
        }
        for _ in 0..2 {
            let asked = asked.recv_timeout(LONG).expect("it comes back");
            assert!(matches!(asked, Err(ChildError::Timeout(_))), "{asked:?}");
        }
    }
}
