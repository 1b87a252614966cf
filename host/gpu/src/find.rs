//! What devices a machine has, and why there is none where there could be.

use crate::device::{Cpu, Device, DeviceInfo, adapters, describe};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What was found.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Found {
    /// Devices, the one to prefer first; the processor is last and always there.
    pub devices: Vec<DeviceInfo>,
    /// What is not there, and why.
    pub absent: Vec<Absent>,
}

/// Something that a machine could have.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Absent {
    /// What: `vulkan`, `cuda`.
    pub what: String,
    /// Why it is not there, and what would bring it.
    pub why: String,
}

/// Time for drivers to say what they have.
pub const MOST_PROBE: Duration = Duration::from_secs(30);

/// The most that a child may say.
const MOST_OUTPUT: u64 = 1 << 20;

/// Asks every driver in this process what it has. A bad driver may crash or hang here: call it in a child, through [`find`].
pub fn probe() -> Found {
    let mut devices = describe(&adapters());
    let mut absent = Vec::new();
    if cfg!(target_os = "linux") && !devices.iter().any(|device| device.api == crate::Api::Vulkan) {
        let why = match library("libvulkan.so.1") {
            Err(why) => format!("no Vulkan loader ({why}); Debian and Ubuntu: apt-get install libvulkan1"),
            Ok(()) => "the Vulkan loader is there, but no driver answers it; Debian and Ubuntu: apt-get install \
                       mesa-vulkan-drivers, or your maker's driver; VK_ICD_FILENAMES, if set, has to name a good one"
                .into(),
        };
        absent.push(Absent {
            what: "vulkan".into(),
            why,
        });
    }
    let cuda = match library(if cfg!(windows) {
        "nvcuda.dll"
    } else {
        "libcuda.so.1"
    }) {
        Ok(()) => {
            "a CUDA driver is there, but this build has no CUDA kernels yet: the GPU is used through Vulkan"
                .into()
        }
        Err(why) => format!("no CUDA driver ({why}); this build has no CUDA kernels yet either"),
    };
    absent.push(Absent {
        what: "cuda".into(),
        why: cuda,
    });
    // Within a class Vulkan and its like come before OpenGL, which can do less.
    devices.sort_by_key(|device| (device.class, device.api == crate::Api::Gl));
    devices.push(Cpu::new(0).info().clone());
    Found { devices, absent }
}

/// Whether a library of the system can be loaded.
#[expect(unsafe_code, reason = "loading a library runs its code")]
fn library(name: &str) -> Result<(), String> {
    // SAFETY: these are drivers' entrances, made to be loaded so; `probe` is called in a child because they may be broken.
    unsafe { libloading::Library::new(name) }
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Runs a child that prints [`probe`] as JSON, and gives what it found. When it crashes, hangs or says nothing, there is the processor,
/// and that is said.
pub fn find(mut child: Command, within: Duration) -> Found {
    let asked = child
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let answered = asked
        .map_err(|error| format!("the probe does not start: {error}"))
        .and_then(|child| wait(child, within));
    let read = |text: String| {
        serde_json::from_str(text.trim())
            .map_err(|error| format!("the probe's answer does not read: {error}"))
    };
    answered.and_then(read).unwrap_or_else(|why| Found {
        devices: vec![Cpu::new(0).info().clone()],
        absent: vec![Absent {
            what: "gpu".into(),
            why,
        }],
    })
}

/// What the child prints.
fn wait(mut child: std::process::Child, within: Duration) -> Result<String, String> {
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("the probe has no streams".into());
    };
    let end = Instant::now() + within;
    std::thread::scope(|scope| {
        let out = scope.spawn(move || read(stdout));
        let err = scope.spawn(move || read(stderr));
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < end => std::thread::park_timeout(Duration::from_millis(2)),
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break None;
                }
            }
        };
        let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
        match status {
            Some(status) if status.success() => Ok(out),
            Some(status) => {
                let last = err
                    .lines()
                    .rfind(|line| !line.trim().is_empty())
                    .unwrap_or_default();
                let said = if last.is_empty() {
                    String::new()
                } else {
                    format!(": {last}")
                };
                Err(format!(
                    "a GPU driver ended the process that asked it, {status}{said}; mend or remove it"
                ))
            }
            None => {
                let within = karman_types::format_duration(within);
                Err(format!(
                    "a GPU driver did not answer within {within}; mend or remove it"
                ))
            }
        }
    })
}

fn read(from: impl Read) -> String {
    let mut text = Vec::new();
    let _ = from.take(MOST_OUTPUT).read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    fn why(found: &Found) -> &str {
        assert_eq!(found.devices.len(), 1, "the processor alone");
        &found.absent[0].why
    }

    #[test]
    fn a_driver_that_crashes_or_hangs_leaves_the_processor() {
        let crashed = find(sh("echo segfault >&2; kill -SEGV $$"), MOST_PROBE);
        assert!(
            why(&crashed).contains("signal: 11") && why(&crashed).contains("segfault"),
            "{crashed:?}"
        );
        let hung = find(sh("exec sleep 60"), Duration::from_millis(50));
        assert!(why(&hung).contains("50 ms"), "{hung:?}");
        let mute = find(sh("echo hello"), MOST_PROBE);
        assert!(why(&mute).contains("does not read"), "{mute:?}");
        let none = find(Command::new("/nowhere"), MOST_PROBE);
        assert!(why(&none).contains("does not start"), "{none:?}");
    }

    #[test]
    fn what_a_child_found_is_read() {
        let found = Found {
            devices: vec![Cpu::new(1).info().clone()],
            absent: vec![],
        };
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(find(sh(&format!("echo '{text}'")), MOST_PROBE), found);
    }
}
